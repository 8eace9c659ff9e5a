"""A supervisor whose runs outlive whoever asked for them: a folder each, and one process at work.

    python supervisor.py --seconds 20

A run is begun once, whoever asks for it how often, and goes on where it was when this process is
started again. What it does here is to wait, and to answer with what it was asked, in capitals.
"""

import argparse
import json
import time
from pathlib import Path

RUNS = Path(__file__).resolve().parent / "runs"


def write(path: Path, data: dict[str, object]) -> None:
    """Write *data* whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(data))
    draft.rename(path)


def look_at(run: Path, seconds: float) -> None:
    """Begin a run that is new, and end one that has had its time or is cancelled."""
    if (run / "result.json").exists():
        return
    request = json.loads((run / "request.json").read_text())
    begun = run / "begun.json"
    if not begun.exists():
        write(begun, {"at": time.time()})
        print(f"{run.name} begun for {request['session']}", flush=True)
    if (run / "cancel").exists():
        write(run / "result.json", {"word": "cancelled", "detail": "on request"})
    elif time.time() - json.loads(begun.read_text())["at"] >= seconds:
        write(run / "result.json", {"word": "completed", "reply": request["prompt"].upper()})
    else:
        return
    print(f"{run.name} ended", flush=True)


def main() -> None:
    """Look at all runs, ten times a second, until this process is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a run takes")
    seconds = parser.parse_args().seconds
    RUNS.mkdir(exist_ok=True)
    while True:
        for run in sorted(RUNS.iterdir()):
            # A name with a dot is a request that somebody is writing.
            if not run.name.startswith("."):
                look_at(run, seconds)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
