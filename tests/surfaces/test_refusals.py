"""docs/concepts/wake-ups.md has every refusal of the wake tools, and each is one that they make."""

import ast
import functools
import inspect
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from routines.domain import wake_calls, wake_request, wake_timing
from routines.domain.wake_timing import NOTHING
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.engine import tools as engine_tools
from routines.engine.tools import ToolAnswer, WakeTools
from tests.surfaces.world import World
from tests.test_docs import text_of
from tests.test_readme import REPOSITORY

PAGE = "docs/concepts/wake-ups.md"
SECTION = "## What is refused"
# Its sentence stands above the table: it would be in each row.
_NOTHING = re.compile(r" Nothing was (?:scheduled|changed)\.")
_REFUSING = ("refused", "_refused", "WakeupRefused")
# Only a program gives an anchor: `engine.wakeups()`.
_NOT_BY_A_TOOL = {"anchor goes with every alone."}

LOOK = {"prompt": "look"}
# Each refusal once, in the order of the table.
CALLS = [
    ("wake", LOOK),
    ("wake", LOOK | {"in": "1h", "at": "09:00"}),
    ("wake", {"in": "10m"}),
    ("wake", {"in": "10m", "prompt": 7}),
    ("wake", {"in": "10m", "prompt": "x" * 40_000}),
    ("wake", LOOK | {"in": "600"}),
    ("wake", LOOK | {"in": "soon"}),
    ("wake", LOOK | {"in": "30s"}),
    ("wake", LOOK | {"at": "noon"}),
    ("wake", LOOK | {"at": "9"}),
    ("wake", LOOK | {"at": "2026-11-29T09:00"}),
    ("wake", LOOK | {"at": "16:18:30"}),
    ("wake", LOOK | {"in": "367d"}),
    ("wake", LOOK | {"every": "5m"}),
    ("wake", LOOK | {"cron": "0,5 9 * * *"}),
    ("wake", LOOK | {"cron": "61 * * * *"}),
    ("wake", LOOK | {"at": "09:00", "tz": "Mars/Olympus"}),
    ("wake", LOOK | {"in": "2h"}),
    ("unwake", {}),
    ("unwake", {"id": "w-7k3m9q"}),
    ("wake", {"message": "look", "in": "10m"}),
    ("wake", LOOK | {"in": "10m", "in_": "10m"}),
    ("wake", LOOK | {"in": {"minutes": 10}}),
    ("wake", {"prompt": "look\0", "in": "10m"}),
    ("wake", "look in ten minutes"),
    ("wake", ["look", "10m"]),
    ("wake", " " * 2_000_000 + "{}"),
    ("remind", {}),
]
# What only an engine with bounds of its own can be asked.
SHORTER = ("wake", LOOK | {"every": "30s"})


@functools.cache
def rows():
    """The texts of the table: what comes after `Refused: `."""
    _, _, section = text_of(PAGE).partition(f"{SECTION}\n")
    section = section.partition("\n## ")[0]
    return tuple(re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE))


def of_session(ws: World, **changes) -> WakeTools:
    given = {
        "session": "named:chat",
        "by": "w/turn",
        "turn": "w/turn",
        "clock": ws.clock,
        "zone": "Europe/Berlin",
        "bounds": DEFAULT_BOUNDS,
        "no_scheduler": lambda: None,
    }
    return WakeTools(ws.state, **(given | changes))


def said(answer: ToolAnswer) -> str:
    """The first line of a refusal as the table has it."""
    assert answer.refused, answer.text
    assert answer.text.startswith("Refused: ")
    first, _, _ = answer.text.removeprefix("Refused: ").partition("\n")
    return _NOTHING.sub("", first)


@pytest.fixture
def refusals(ws):
    """What the tools answer to each of the calls, in their order."""
    tools = of_session(ws)
    answers = []
    for name, given in CALLS:
        if given == LOOK | {"in": "2h"}:
            for number in range(20):
                tools.ask(prompt=f"look at {number}", in_="1h")
        answers.append(said(tools.call(name, given)))
    shorter = of_session(ws, bounds=replace(DEFAULT_BOUNDS, apart=timedelta(seconds=10)))
    return [*answers, said(shorter.call(*SHORTER))]


def test_each_row_is_what_the_tools_answer_and_each_answer_is_a_row(refusals):
    assert list(rows()) == refusals


def templates(module) -> list[str]:
    """The messages of a module's refusals, as patterns: what is put into them is anything."""
    found = []
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        # The helpers that make one have the message of whoever calls them.
        if isinstance(function, ast.FunctionDef) and function.name not in _REFUSING:
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and is_a_refusal(call):
                    texts = [a for a in call.args if isinstance(a, ast.Constant | ast.JoinedStr)]
                    assert texts, f"{module.__name__}:{call.lineno}: its message can't be read"
                    found.append(pattern_of(texts[0]))
    return found


def is_a_refusal(call: ast.Call) -> bool:
    """Whether it makes one, and does not only answer with one that was raised."""
    answers = [getattr(one, "id", "") for one in call.args] == ["error"]
    return getattr(call.func, "id", "") in _REFUSING and not answers


def pattern_of(text: ast.Constant | ast.JoinedStr) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    whole = ""
    for part in parts:
        if isinstance(part, ast.Constant):
            whole += str(part.value)
        elif getattr(part.value, "id", "") == "NOTHING":
            whole += NOTHING
        else:
            whole += "\0"
    return ".+".join(map(re.escape, _NOTHING.sub("", whole).split("\0")))


REFUSING = [wake_calls, wake_request, wake_timing, engine_tools]


@pytest.mark.parametrize("module", REFUSING, ids=lambda one: one.__name__)
def test_each_refusal_in_the_code_has_a_row(module):
    found = templates(module)

    assert found, "nothing was found: how are refusals made now?"
    for pattern in found:
        if not any(re.fullmatch(pattern, one) for one in _NOT_BY_A_TOOL):
            assert any(re.fullmatch(pattern, row) for row in rows()), pattern


def test_no_other_module_refuses_what_an_agent_asks():
    """What a program does to a wake-up that it manages is no call of the tools."""
    package = REPOSITORY / "routines"
    found = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path in package.rglob("*.py")
        if "WakeupRefused(" in path.read_text().replace("class WakeupRefused(", "")
    }

    assert found == {one.__name__ for one in REFUSING} | {"routines.domain.wake_managing"}


def test_what_the_state_folder_says_is_a_refusal_too(ws):
    """It is no mistake of the agent's: the page says to tell the person."""
    tools = of_session(ws)
    (ws.root / ".routines" / "wakeups").write_text("no folder")

    answer = tools.call("wake", LOOK | {"in": "10m"})

    assert answer.refused
    assert answer.text.startswith("Refused: ")
    assert answer.data["code"] in ("not-durable", "store-fault", "state-unusable")


def test_a_fault_of_ours_is_answered_with_the_word_that_the_page_has(ws):
    def broken() -> str:
        raise KeyError

    answer = of_session(ws, no_scheduler=broken).call("wake", LOOK | {"in": "10m"})

    assert answer.refused
    assert answer.text.startswith("Failed: KeyError. Whether anything was changed can't be told")
    assert "`Failed:`" in text_of(PAGE)


@pytest.mark.parametrize("wakeup_id", ["w-7k3m9q", "w" * 1_000_000, "\x1b[31m\n" * 100_000])
def test_an_id_that_is_not_pending_is_refused_in_a_line_that_needs_no_shell(ws, wakeup_id):
    answer = of_session(ws).call("unwake", {"id": wakeup_id})

    first, _, hint = answer.text.partition("\n")
    assert first.startswith("Refused: no wake-up '")
    assert first.endswith(" is pending here. Nothing was changed.")
    assert first.isprintable()
    assert len(answer.text) < 500
    assert hint == "wakeups() shows what is pending"
    assert answer.data["code"] == "unknown-wakeup"
    assert len(str(answer.data)) < 1000


def test_an_id_that_is_nearly_right_is_offered(ws):
    tools = of_session(ws)
    tools.ask(prompt="look", in_="1h")
    (pending,) = tools.pending()

    answer = tools.call("unwake", {"id": pending.id[:-1]})

    assert answer.text.endswith(f" Nothing was changed.\ndid you mean {pending.id!r}?")
