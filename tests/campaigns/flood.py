"""Agents that print without end: `python -m tests.campaigns.flood --mib 2048`.

Each way of printing that much is one turn, by a real agent and a real turn process: lines, one
single line, events of JSON, stderr alone. The turn has to end with its last words kept, and
neither the memory of its process nor the files that it leaves may grow with what was printed.
"""

import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.helpers import Workspace, end_all, processes_of, turn_processes

# An interpreter, head and tail of two streams, and what a line may take while it is read.
MOST_RSS_MIB = 160
# Head and tail of each stream, prompt and reply.
MOST_KEPT_MIB = 4
LINE = "x" * 79
EVENT = '{"type":"noise","text":"' + "x" * 200 + '"}'
LAST_EVENT = '{"type":"end","text":"the end"}'
OF_EVENTS = {"output": "jsonl", "read": {"reply": "text where type = end"}}
WAYS = {
    "lines": ("yes $LINE | head -c $BYTES; echo; echo the end", {}),
    "one line": ("head -c $BYTES /dev/zero | tr '\\0' x; echo; echo the end", {}),
    "events": ('yes "$EVENT" | head -c $BYTES; echo; echo "$LAST"', OF_EVENTS),
    "one event": (
        """printf '{"text":"'; head -c $BYTES /dev/zero | tr '\\0' x; echo '"}'; echo "$LAST\"""",
        OF_EVENTS,
    ),
    "stderr": ("yes $LINE | head -c $BYTES >&2; echo >&2; echo the end >&2; exit 3", {}),
}


@dataclass
class Flooded:
    """What became of one turn."""

    way: str
    seconds: float
    rss_mib: float
    kept_mib: float
    wrong: list[str] = field(default_factory=list)

    def line(self):
        words = "; ".join(self.wrong) or "ok"
        return (
            f"{self.way:<10} {self.seconds:6.1f} s  {self.rss_mib:6.1f} MiB of memory"
            f"  {self.kept_mib:5.2f} MiB kept  {words}"
        )


def flood(way, mib, root):
    script, keys = WAYS[way]
    workspace = Workspace(Path(root))
    known = f"LINE={LINE} EVENT='{EVENT}' LAST='{LAST_EVENT}' BYTES={mib * 1024 * 1024}"
    workspace.agent(f"{known}\n{script}", **keys).routine("digest", timeout="1h")
    began, peak = time.monotonic(), 0.0
    try:
        run = workspace.begin("run", "digest")
        while run.poll() is None:
            peak = max([peak, *(_peak(pid) for pid in turn_processes(workspace.root))])
            time.sleep(0.02)
        seconds = time.monotonic() - began
        record = workspace.record()
        folder = Path(workspace.state, "output", record.occurrence.place)
        kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
        found = Flooded(way, seconds, peak, kept)
        _judge(found, record, folder)
        if processes_of(workspace.root):
            found.wrong.append("something is left of it")
        return found
    finally:
        end_all(workspace.root)


def _peak(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    known = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(known[1]) / 1024 if known else 0.0


def _judge(found, record, folder):
    end = record.end or {}
    if found.way == "stderr":
        if (record.outcome, end.get("detail")) != ("failed", "exit 3: the end"):
            found.wrong.append(f"it ended as {record.outcome}: {end.get('detail')}")
    else:
        if record.outcome != "completed":
            found.wrong.append(f"it ended as {record.outcome}: {end.get('detail')}")
        reply = (folder / "reply.md").read_text() if (folder / "reply.md").exists() else ""
        if not reply.rstrip().endswith("the end"):
            found.wrong.append("its last words are lost")
        cut = "truncated" in end.get("warnings", ())
        if cut != (found.way != "events"):
            found.wrong.append(f"warnings are {end.get('warnings')}")
    if not 0 < found.rss_mib < MOST_RSS_MIB:
        found.wrong.append(f"its memory is over {MOST_RSS_MIB} MiB, or was not seen")
    if found.kept_mib > MOST_KEPT_MIB:
        found.wrong.append(f"it keeps more than {MOST_KEPT_MIB} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=2048, help="printed in each way")
    parser.add_argument("--way", choices=WAYS, action="append", help="all of them by default")
    args = parser.parse_args()
    wrong = 0
    for way in args.way or WAYS:
        with tempfile.TemporaryDirectory(prefix="routines-flood-") as root:
            found = flood(way, args.mib, root)
        print(found.line(), flush=True)
        wrong += bool(found.wrong)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
