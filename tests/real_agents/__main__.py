"""`python -m tests.real_agents`: drives the programs that are found, and says what held.

Exit code: 0 if everything held for all that were found, 1 if something did not, 2 if none of those
asked for was found.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from routines.version import VERSION
from tests.real_agents.page import page
from tests.real_agents.place import Place, Unmet
from tests.real_agents.programs import BY_NAME, PROGRAMS, search_path, version_of
from tests.real_agents.shows import SHOWS, NotHere

_WORDS = {"ok": "holds", "no": "DOES NOT HOLD", "none": "not there"}


def drive(program, path, folder, say, only=()):
    """Run all shows for *program*; return a list of (show, "ok" | "no" | "none", sentence)."""
    results = []
    with Place(folder, program, path) as place:
        for name, show in SHOWS:
            if only and name not in only:
                continue
            try:
                found = ("ok", show(place))
            except NotHere as reason:
                found = ("none", str(reason))
            except Unmet as found_instead:
                found = ("no", str(found_instead))
            except Exception:
                found = ("no", traceback.format_exc())
            results.append({"show": name, "result": found[0], "says": found[1]})
            say(f"{program.preset:12} {name:18} {_WORDS[found[0]]:14} {found[1]}")
    return results


def whole(names, folders, *, jobs=1, keep=None, say=print, only=()):
    """Drive the programs *names*; return the report as a value."""
    path = search_path(folders)
    report = {
        "routines": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "programs": {},
    }

    def one(name):
        program = BY_NAME[name]
        version = version_of(program, path)
        if version is None:
            say(f"{name:12} absent: no {program.word} on PATH")
            return name, {"version": None, "shows": []}
        base = keep or tempfile.mkdtemp(prefix="real-agents-")
        folder = os.path.join(base, name)
        os.makedirs(folder)
        try:
            return name, {
                "version": version,
                "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
                "shows": drive(program, path, folder, say, only),
            }
        finally:
            if keep is None:
                shutil.rmtree(base, ignore_errors=True)

    with ThreadPoolExecutor(jobs) as pool:
        report["programs"] = dict(pool.map(one, names))
    return report


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.real_agents", description=__doc__)
    known = [program.preset for program in PROGRAMS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--bin", action="append", default=[], metavar="DIR", help="also look there")
    parser.add_argument("--jobs", type=int, default=1, help="so many programs at the same time")
    parser.add_argument(
        "--only", action="append", default=[], metavar="SHOW", help="only this show"
    )
    parser.add_argument("--keep", metavar="DIR", help="leave the workspaces there, to look at")
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    parser.add_argument("--markdown", action="store_true", help="the report as a page on stdout")
    args = parser.parse_args(argv)
    unknown = set(args.names) - set(known)
    if unknown:
        parser.error(f"no preset is called {', '.join(sorted(unknown))}")

    def say(line):
        print(line, file=sys.stderr, flush=True)

    folders = [os.path.abspath(folder) for folder in args.bin]
    report = whole(
        args.names or known, folders, jobs=args.jobs, keep=args.keep, say=say, only=args.only
    )
    if args.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    if args.markdown:
        print(page(report), end="")
    found = [program for program in report["programs"].values() if program["version"]]
    if not found:
        return 2
    return int(any(show["result"] == "no" for program in found for show in program["shows"]))


if __name__ == "__main__":
    sys.exit(main())
