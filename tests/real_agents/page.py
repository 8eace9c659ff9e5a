"""The report as a page: docs/agents/last-run.md."""

from tests.real_agents.shows import SHOWS

_MARKS = {"ok": "yes", "no": "**no**", "none": "-"}
_WORDS = {**_MARKS, "none": "not there"}


def page(report):
    """Return the page for *report*."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report):
    programs = report["programs"]
    found = {name: program for name, program in programs.items() if program["version"]}
    absent = [name for name, program in programs.items() if not program["version"]]
    yield "# The last run with real programs"
    yield ""
    yield "Written by a program, not by hand: `python -m tests.real_agents --markdown`. It installs nothing, takes the"
    yield "programs that it finds, and points each at a stand-in for its model's server that runs on the same machine"
    yield "and costs nothing. The workspace's agent is the preset as it is in the package; each line below was seen with"
    yield "processes, signals and times as a person has them. What a model would have answered it can't show."
    yield ""
    yield f"On {report['system']} with Python {report['python']} and routines {report['routines']}; times are in UTC."
    yield ""
    yield f"| | {' | '.join(found)} |"
    yield f"|---|{'---|' * len(found)}"
    versions = [_cell(program["version"]) for program in found.values()]
    yield f"| version | {' | '.join(versions)} |"
    yield f"| begun | {' | '.join(program['at'] for program in found.values())} |"
    for name, _ in SHOWS:
        marks = [_MARKS.get(_result(program, name), "") for program in found.values()]
        yield f"| {name} | {' | '.join(marks)} |"
    if absent:
        yield ""
        yield f"Absent on that machine, and so not shown: {', '.join(absent)}."
    yield ""
    yield "## What each line means"
    yield ""
    for name, show in SHOWS:
        yield f"- **{name}**: {_first_line(show)}"
    for name, program in found.items():
        yield ""
        yield f"## {name}"
        yield ""
        for show in program["shows"]:
            yield f"- {show['show']}: {_WORDS[show['result']]}; {_cell(show['says'])}"


def _result(program, name):
    return next((show["result"] for show in program["shows"] if show["show"] == name), None)


def _first_line(show):
    return show.__doc__.strip().splitlines()[0]


def _cell(text):
    """Return *text*, which a program may have said, in one line that no page takes for more."""
    line = " ".join(text.split())
    line = line if len(line) <= 300 else f"{line[:297]}..."
    return "".join(f"\\{c}" if c in "\\|<>[]*_`" else c for c in line)
