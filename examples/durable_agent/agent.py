"""The durable agent: how routines reaches the runs of the supervisor beside it."""

import hashlib
import json
import tempfile
from pathlib import Path

from routines import Reply, RunState, Turn

RUNS = Path(__file__).resolve().parent / "runs"


class Supervised:
    """Runs in a folder each; the name of a run follows from its key, so that one key is one run."""

    def start(self, turn: Turn) -> str:
        """Ask for a run, unless this key has one."""
        run_id = hashlib.sha256(turn.key.encode()).hexdigest()[:16]
        RUNS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=RUNS, prefix=".") as folder:
            draft = Path(folder) / "run"
            draft.mkdir()
            request = {"key": turn.key, "session": turn.session, "prompt": turn.prompt}
            (draft / "request.json").write_text(json.dumps(request))
            try:
                # It appears whole or not at all, and a second time not at all.
                draft.rename(RUNS / run_id)
            except OSError:
                if not (RUNS / run_id / "request.json").exists():
                    raise
        return run_id

    def inspect(self, run_id: str) -> RunState:
        """Say how a run stands; while the supervisor is away it stands as it was left."""
        if not (RUNS / run_id).is_dir():
            return RunState("missing")
        try:
            result = json.loads((RUNS / run_id / "result.json").read_text())
        except FileNotFoundError:
            return RunState("active")
        reply = Reply(text=result.get("reply", ""))
        return RunState(result["word"], reply, result.get("detail", ""))

    def cancel(self, run_id: str) -> None:
        """Leave word that a run is to end; one that has ended stays as it is."""
        (RUNS / run_id / "cancel").touch()
