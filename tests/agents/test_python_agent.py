"""An agent that is a Python function: what it may return, and how it can go wrong."""

import os
import sys
import threading
from datetime import timedelta

import pytest

from routines.agents.base import Reply, Usage
from routines.agents.output import HEAD_BYTES, TAIL_BYTES
from routines.agents.process_table import leftovers
from routines.agents.python_agent import run_python
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.outcome import Outcome, Reason
from tests.agents.stubs import HALF_AN_HOUR, LimitWhen, eventually

HEAD = (
    "import asyncio, os, subprocess, sys, threading, time\n"
    "from routines.agents.base import *\n"
    "here = os.path.dirname(__file__)\n"
)


@pytest.fixture
def own_process(monkeypatch):
    """Give back working directory, search path and environment, as a turn process need not."""
    here, environ, path = os.getcwd(), dict(os.environ), [*sys.path]
    yield
    os.chdir(here)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:] = path


@pytest.fixture
def limit(tmp_path):
    """Arguments by which the limit passes once the agent has made the file `ready`."""
    return {"timeout": HALF_AN_HOUR, "clock": LimitWhen(tmp_path / "ready")}


@pytest.fixture
def run(own_process, turn, env, clock, tmp_path):
    """Write *body* as a module of its own and run its function `go`."""
    made = []

    def call(body, function="go", name=None, **changes):
        # A name of its own each time: a module is imported once.
        module = f"agent_{abs(hash(str(tmp_path)))}_{len(made)}"
        made.append(module)
        (tmp_path / f"{module}.py").write_text(HEAD + body)
        arguments = {"cwd": str(tmp_path), "env": env, "clock": clock}
        arguments |= {"timeout": timedelta(seconds=60), "grace": timedelta(seconds=20)} | changes
        spec = AgentSpec(name="py", kind=AgentKind.PYTHON, python=name or f"{module}:{function}")
        return run_python(spec, turn, **arguments)

    call.made = made
    yield call
    for module in made:
        sys.modules.pop(module, None)


def verdict(result):
    return result.outcome, result.reason, result.detail


# What it answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("def go(turn): return f'got {turn.prompt}'", "got say hello"),
        ("async def go(turn): await asyncio.sleep(0); return turn.session", "routine:digest"),
        ("def go(turn): return Reply(text='x')", "x"),
        ("async def go(turn): return Reply(text='x')", "x"),
        ("async def go(turn):\n    yield 'a'\n    await asyncio.sleep(0)\n    yield 'ä'", "aä"),
        ("async def go(turn):\n    yield 'part'\n    yield Reply(text='whole')", "whole"),
        ("async def go(turn):\n    yield 'part'\n    yield Reply(native_session='n')", "part"),
        ("def go(turn):\n    yield 'a'\n    yield None\n    yield 'b'", "ab"),
        ("async def inner(): return 'in'\ndef go(turn): return inner()", "in"),
        (
            "class Agent:\n    async def run(self, turn): return 'method'\ngo = Agent().run",
            "method",
        ),
        ("class Agent:\n    def __call__(self, turn): return 'called'\ngo = Agent()", "called"),
    ],
)
def test_answer_is_a_text_or_a_reply_however_it_is_given(run, body, text):
    result = run(body)

    assert verdict(result) == (Outcome.COMPLETED, None, "")
    assert result.reply.text == text
    assert result.reply.warnings == ()


@pytest.mark.parametrize(
    "body",
    [
        "def go(turn): pass",
        "async def go(turn): return ' '",
        "async def go(turn):\n    if 0: yield 'x'",
    ],
)
def test_no_answer_is_completed_and_not_clean(run, body):
    result = run(body)

    assert (result.outcome, result.reply.warnings) == (Outcome.COMPLETED, ("empty-reply",))


@pytest.mark.parametrize("body", ["def go(turn): return 7", "def go(turn): yield b'x'"])
def test_answer_of_another_type_is_a_failure(run, body):
    result = run(body)

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.AGENT)
    assert "is expected" in result.detail


def test_whole_reply_is_kept_and_checked(run):
    result = run(
        "def go(turn):\n"
        "    return Reply(text='x', native_session='n-1', usage=Usage(usd=0.5), warnings=('denied: Bash',))"
    )

    assert result.reply == Reply(
        text="x", native_session="n-1", usage=Usage(usd=0.5), warnings=("denied: Bash",)
    )
    assert (
        run("def go(turn): return Reply(text='x', native_session='-x')").reply.native_session
        is None
    )


def test_declared_failure_is_a_failure(run):
    result = run("def go(turn): return Reply(text='t', failed='no credit')")

    assert verdict(result) == (Outcome.FAILED, Reason.AGENT, "no credit")
    assert result.reply.text == "t"


@pytest.mark.parametrize(
    "body",
    [
        "def go(turn): return 'x' * 3_000_000",
        "async def go(turn):\n    for _ in range(300): yield 'x' * 10_000",
    ],
)
def test_reply_is_bounded(run, body):
    result = run(body)

    assert len(result.reply.text) < HEAD_BYTES + TAIL_BYTES + 100
    assert result.reply.warnings == ("truncated",)


# What it raises ---------------------------------------------------------------------------------


def test_where_an_exception_came_from_is_told_on_stderr(run, capfd):
    run("def helps(): raise ValueError('boom')\ndef go(turn): helps()")

    told = capfd.readouterr().err
    assert "in helps" in told
    assert told.endswith("ValueError: boom\n")


def test_an_exception_that_is_a_word_for_how_a_turn_ends_needs_no_traceback(run, capfd):
    run("def go(turn): raise TurnFailed('nothing to do')")

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["def go(turn):", "async def go(turn):"])
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ("SessionBusy('pid 4 holds it')", (None, Reason.BUSY, "pid 4 holds it")),
        ("AgentUnavailable('refused')", (None, Reason.NOT_STARTED, "refused")),
        ("TurnFailed('out of credit')", (Outcome.FAILED, Reason.AGENT, "out of credit")),
        ("TurnFailed()", (Outcome.FAILED, Reason.AGENT, "TurnFailed")),
        ("OutcomeUnknown('lost it')", (Outcome.INTERRUPTED, Reason.OUTCOME_UNKNOWN, "lost it")),
        ("ValueError('a\\n\\x1bb')", (Outcome.FAILED, Reason.AGENT, "ValueError: a \\x1bb")),
        ("SystemExit(0)", (Outcome.FAILED, Reason.AGENT, "SystemExit: 0")),
        ("KeyboardInterrupt()", (Outcome.FAILED, Reason.AGENT, "KeyboardInterrupt")),
    ],
)
def test_exceptions_say_how_it_ended(run, kind, raised, expected):
    assert verdict(run(f"{kind} raise {raised}")) == expected


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("raised", ["SessionBusy", "AgentUnavailable"])
def test_what_comes_after_the_first_output_counts_as_started(run, kind, raised):
    result = run(f"{kind} go(turn):\n    yield 'begun'\n    raise {raised}('late')")

    assert verdict(result) == (Outcome.FAILED, Reason.AGENT, f"{raised}: late")
    assert result.reply.text == "begun"


@pytest.mark.parametrize("raised", ["SessionBusy", "AgentUnavailable"])
def test_a_generator_that_gave_nothing_yet_never_started(run, raised):
    assert run(f"async def go(turn):\n    yield ''\n    raise {raised}('x')").outcome is None


# What can't be found ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module_here:go", "no module named no_such_module_here"),
        ("no_such_package.inner:go", "no module named no_such_package"),
        ("json.no_such_part:go", "no module named json.no_such_part"),
        ("json:no_such_function", "module json has no function no_such_function"),
        ("json:__name__", "has no function"),
        ("json", "is not module:function"),
        (":go", "is not module:function"),
    ],
)
def test_missing_module_or_function_is_not_found(run, name, says):
    result = run("", name=name)

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.NOT_FOUND)
    assert says in result.detail


def test_a_module_that_is_missing_inside_the_module_is_its_own_failure(run):
    result = run("import no_such_module_here")

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.AGENT)
    assert "no_such_module_here" in result.detail


def test_a_module_that_cannot_be_read_is_a_failure(run):
    assert run("def go(turn) return").reason is Reason.AGENT


def test_missing_working_directory_is_named(run, tmp_path):
    result = run("", cwd=str(tmp_path / "gone"))

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.NOT_FOUND)
    assert "working directory not found" in result.detail


def test_it_runs_in_its_folder_with_its_environment(run, turn, tmp_path):
    result = run(
        "def go(turn): return os.getcwd() + ' ' + os.environ['ROUTINES_TURN'] + ' ' + sys.path[0]"
    )

    assert result.reply.text == f"{tmp_path} {turn.key} {tmp_path}"


# How it is ended ----------------------------------------------------------------------------------


def test_coroutine_is_cancelled_at_the_limit_and_may_clean_up(run, limit, tmp_path):
    result = run(
        "async def go(turn):\n"
        "    open(here + '/ready', 'w').close()\n"
        "    try: await asyncio.sleep(600)\n"
        "    finally: open(here + '/cleaned', 'w').close()",
        **limit,
    )

    assert (result.outcome, result.reason) == (Outcome.TIMED_OUT, Reason.TIMEOUT)
    assert "did not stop" not in result.detail
    assert (tmp_path / "cleaned").exists()


def test_generator_keeps_what_it_said_before_the_limit(run, limit):
    result = run(
        "async def go(turn):\n"
        "    yield 'so far'\n"
        "    open(here + '/ready', 'w').close()\n"
        "    await asyncio.sleep(600)",
        **limit,
    )

    assert (result.outcome, result.reply.text) == (Outcome.TIMED_OUT, "so far")


@pytest.mark.parametrize(
    "body",
    [
        "def go(turn):\n    while not os.path.exists(here + '/go'): time.sleep(0.01)",
        "async def go(turn):\n    while not os.path.exists(here + '/go'): time.sleep(0.01)",
        """async def go(turn):
    while not os.path.exists(here + '/go'):
        try: await asyncio.sleep(0.01)
        except asyncio.CancelledError: pass""",
    ],
)
def test_function_that_cannot_be_ended_is_left_in_its_thread_and_said(run, tmp_path, body):
    result = run(body, timeout=timedelta(seconds=0.2), grace=timedelta(seconds=0.2))

    assert result.outcome is Outcome.TIMED_OUT
    assert result.detail.endswith("it did not stop when it was told to")
    (tmp_path / "go").write_text("")
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "agent"])


@pytest.mark.parametrize(
    ("word", "outcome", "reason"),
    [
        ("cancel", Outcome.CANCELLED, Reason.PERSON),
        ("stop", Outcome.INTERRUPTED, Reason.STOPPED),
        ("supersede", Outcome.SUPERSEDED, None),
    ],
)
def test_request_to_stop_cancels_it(run, tmp_path, word, outcome, reason):
    result = run(
        "async def go(turn):\n    open(here + '/ready', 'w').close()\n    await asyncio.sleep(600)",
        stop_requested=lambda: word if (tmp_path / "ready").exists() else None,
    )

    assert (result.outcome, result.reason) == (outcome, reason)


def test_function_that_returned_before_the_request_is_judged_by_its_answer(run, tmp_path):
    def ask():
        # It returns while we ask.
        (tmp_path / "asked").write_text("")
        eventually(lambda: not [t for t in threading.enumerate() if t.name == "agent"])
        return "cancel"

    result = run(
        "def go(turn):\n"
        "    while not os.path.exists(here + '/asked'): time.sleep(0.01)\n"
        "    return 'done'",
        stop_requested=ask,
    )

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "done")


@pytest.mark.skipif(sys.platform != "linux", reason="found by their environment")
def test_processes_that_it_started_end_with_the_turn(run, state, turn):
    result = run(
        "kept = []\n"
        "def go(turn):\n"
        "    kept.append(subprocess.Popen(['sleep', '300'], start_new_session=True))\n"
        "    return str(kept[0].pid)"
    )

    assert result.outcome is Outcome.COMPLETED
    assert sys.modules[run.made[0]].kept[0].wait(timeout=60) == -15
    assert leftovers(state, turn.key) == []


def test_coroutine_may_start_processes_of_its_own(run):
    result = run(
        "async def go(turn):\n"
        "    p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=asyncio.subprocess.PIPE)\n"
        "    return (await p.communicate())[0].decode()"
    )

    assert result.reply.text == "hi\n"
