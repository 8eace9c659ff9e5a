"""An agent that speaks the Agent Client Protocol: one turn said with a real process, and hostile ones."""

import json
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from routines.agents.acp_agent import run_acp
from routines.agents.base import Usage
from routines.agents.handover import McpServer
from routines.agents.output import HEAD_BYTES, TAIL_BYTES
from routines.domain.acp_agent import DEFAULT_ACP_READ, AcpSpec
from routines.domain.agent import AgentKind, AgentSpec, Signs
from routines.domain.outcome import Outcome, Reason
from tests.agents.stubs import HALF_AN_HOUR, LimitWhen

STUB = str(Path(__file__).parent / "acp_stub.py")
NEVER = (None, Reason.NOT_STARTED)
FAILED = (Outcome.FAILED, Reason.AGENT)
LOST = (None, Reason.SESSION_LOST)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "stub"
    made.mkdir()
    return made


@pytest.fixture
def run(turn, env, clock, tmp_path, folder, state):
    """Put a turn to the stub that behaves as the words say."""

    def call(*words, prompt="hello", session=None, spec=None, **changes):
        keys = {"acp": AcpSpec(), "read": DEFAULT_ACP_READ} | (spec or {})
        entry = AgentSpec(
            name="stub",
            kind=AgentKind.ACP,
            command=(sys.executable, "-Ss", STUB, str(folder), *words),
            **keys,
        )
        given = replace(turn, prompt=prompt, native_session=session, first=session is None)
        arguments = {
            "cwd": str(tmp_path),
            "env": env,
            "clock": clock,
            "folder": str(tmp_path / "output"),
            "timeout": timedelta(seconds=60),
            "grace": timedelta(seconds=5),
        } | changes
        # What is handed to a turn process is read back there.
        return run_acp(AgentSpec.from_json(entry.to_json()), given, **arguments)

    return call


@pytest.fixture
def told(folder):
    """What the stub was told, oldest first: whole messages."""

    def read():
        return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]

    return read


@pytest.fixture
def limit(folder):
    """Arguments by which the limit passes once the stub has made the file `ready`."""
    return {"timeout": HALF_AN_HOUR, "clock": LimitWhen(folder / "ready")}


def end(result):
    return result.outcome, result.reason


def methods(messages):
    return [message["method"] for message in messages if "method" in message]


# One turn ---------------------------------------------------------------------------------------


def test_first_turn_begins_a_conversation_and_says_its_id(run, told, tmp_path):
    ids = []
    result = run("load", on_native_session=ids.append)

    assert (end(result), result.reply.text) == ((Outcome.COMPLETED, None), "turn 1: hello")
    assert result.reply.warnings == ()
    assert ids == [result.reply.native_session]
    assert methods(told()) == ["initialize", "session/new", "session/prompt"]
    hello, new, prompt = told()
    assert hello["params"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }
    assert new["params"] == {"cwd": str(tmp_path), "mcpServers": []}
    assert prompt["params"]["prompt"] == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (["load"], "session/load"),
        (["load", "answers-first"], "session/load"),
        (["resume"], "session/resume"),
        (["load", "resume"], "session/resume"),
    ],
)
def test_later_turn_takes_the_conversation_up_and_what_is_played_back_is_no_reply(
    run, told, folder, words, method
):
    first = run(*words)
    second = run(*words, prompt="again", session=first.reply.native_session)

    assert second.reply.text == "turn 2: again"
    assert second.reply.native_session == first.reply.native_session
    assert methods(told())[3:] == ["initialize", method, "session/prompt"]


def test_agent_that_keeps_no_conversations_is_not_said_to(run):
    first = run()
    assert (first.outcome, first.reply.native_session) == (Outcome.COMPLETED, None)
    # One that was kept by an earlier version of it.
    later = run(session="s-1")
    assert end(later) == LOST
    assert "can't take up a conversation" in later.detail


@pytest.mark.parametrize(
    "prompt", ["naïve \U0001f98a\0\x1b[31m", 'quote " and \\', "x" * 3_000_000]
)
def test_prompt_arrives_exactly(run, told, prompt):
    assert run("load", prompt=prompt).outcome is Outcome.COMPLETED
    assert told()[-1]["params"]["prompt"][0]["text"] == prompt


def test_half_a_character_is_said_and_nothing_is_started(run, folder):
    result = run("load", prompt="a\ud800")

    assert end(result) == FAILED
    assert "half a character" in result.detail
    assert not (folder / "told.jsonl").exists()


def test_servers_are_handed_over_with_the_conversation(run, told):
    server = McpServer("/usr/bin/routines", ("mcp",), {"ROUTINES_ROOT": "/ws"})
    first = run("load", servers=[server])
    run("load", servers=[server], session=first.reply.native_session)

    handed = {
        "name": "routines",
        "command": "/usr/bin/routines",
        "args": ["mcp"],
        "env": [{"name": "ROUTINES_ROOT", "value": "/ws"}],
    }
    for message in told():
        if message.get("method") in ("session/new", "session/load"):
            assert message["params"]["mcpServers"] == [handed]


def test_tokens_are_those_that_the_agent_says(run):
    assert run("load").reply.usage == Usage(tokens=15)
    read = {"tokens_total": "usage.inputTokens"}
    assert run("load", spec={"read": read}).reply.usage == Usage(tokens_total=10)


def test_only_what_it_says_to_us_is_its_reply_and_a_tool_makes_a_gap(run):
    result = run(
        "load",
        prompt="stub: thought hm\nstub: say Looking.\nstub: tool read it\nstub: other\nstub: say Found.",
    )

    assert result.reply.text == "Looking.\n\nFound."


def test_login_is_asked_for_where_the_entry_says_how(run, told):
    result = run("load", spec={"acp": AcpSpec(authenticate="api-key")})

    assert result.outcome is Outcome.COMPLETED
    assert methods(told())[:3] == ["initialize", "authenticate", "session/new"]
    assert told()[1]["params"] == {"methodId": "api-key"}


# What it may do -----------------------------------------------------------------------------------


def test_what_it_asks_leave_for_is_refused_and_said(run):
    result = run("load", prompt="stub: ask execute rm -rf /")

    assert "'optionId': 'no'" in result.reply.text
    assert result.outcome is Outcome.COMPLETED
    assert result.reply.warnings == ("denied: rm -rf /",)


@pytest.mark.parametrize(
    ("spec", "question", "answer"),
    [
        (AcpSpec(kinds=("read",)), "read a file", "yes"),
        (AcpSpec(kinds=("read",)), "execute a file", "no"),
        (AcpSpec(titles=("deploy it",)), "execute deploy it", "yes"),
        (AcpSpec(titles=("deploy it",)), "execute deploy it now", "no"),
        (AcpSpec(titles=("deploy it",)), "execute Deploy it", "no"),
    ],
)
def test_only_what_is_listed_is_approved_and_only_once(run, spec, question, answer):
    result = run("load", prompt=f"stub: ask {question}", spec={"acp": spec})

    assert f"'optionId': '{answer}'" in result.reply.text
    assert bool(result.reply.warnings) == (answer == "no")


def test_tools_of_our_own_server_are_approved_and_nothing_that_is_called_so(run):
    own = {"own_tools": ["wake (routines MCP Server)"]}

    assert (
        "'yes'"
        in run("load", prompt="stub: ask other wake (routines MCP Server)", **own).reply.text
    )
    for question in ("execute wake (routines MCP Server)", "other wake (other MCP Server)"):
        assert "'no'" in run("load", prompt=f"stub: ask {question}", **own).reply.text
    assert "'no'" in run("load", prompt="stub: ask other wake (routines MCP Server)").reply.text


@pytest.mark.parametrize("spec", [AcpSpec(), AcpSpec(kinds=("execute",))])
def test_leave_that_lasts_is_never_given_nor_refused(run, spec):
    result = run("load", "only-always", prompt="stub: ask execute x", spec={"acp": spec})

    assert "'outcome': 'cancelled'" in result.reply.text
    assert result.reply.warnings == ("denied: x",)


def test_files_and_shell_are_not_given_through_us(run):
    result = run("load", prompt="stub: fs")

    assert json.loads(result.reply.text)["code"] == -32601


# How it ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ('"max_tokens"', FAILED),
        ('"max_turn_requests"', FAILED),
        ('"refusal"', FAILED),
        ('"cancelled"', FAILED),
        ('"something_new"', (Outcome.FAILED, Reason.BAD_OUTPUT)),
        ("null", (Outcome.FAILED, Reason.BAD_OUTPUT)),
        ("{}", (Outcome.FAILED, Reason.BAD_OUTPUT)),
    ],
)
def test_only_the_end_of_a_turn_is_completed(run, stop, expected):
    result = run("load", prompt=f"stub: say half\nstub: stop {stop}")

    assert end(result) == expected
    assert result.reply.text == "half"
    assert result.detail


def test_no_reply_is_completed_and_not_clean(run):
    result = run("load", prompt="stub: thought hm")

    assert (result.outcome, result.reply.warnings) == (Outcome.COMPLETED, ("empty-reply",))


def test_error_for_a_prompt_is_a_failure_with_its_words(run):
    result = run("load", prompt="stub: error no credit left")

    assert end(result) == FAILED
    assert result.detail == "session/prompt: Internal error: no credit left"


def test_error_that_the_entry_lists_never_started_unless_it_had_begun(run):
    busy = {"busy": Signs(error=("in use",))}

    assert end(run("load", prompt="stub: error in use", spec=busy)) == (None, Reason.BUSY)
    assert end(run("load", prompt="stub: late-error in use", spec=busy)) == FAILED
    down = {"not_started": Signs(error=("no network",))}
    assert end(run("load", "fails-at:session/new:-32603:no network", spec=down)) == NEVER


@pytest.mark.parametrize(
    ("words", "session", "expected", "says"),
    [
        (["dies-at-once"], None, NEVER, "exit 2: no such option"),
        (["dies-at:initialize"], None, NEVER, "during initialize, exit 3"),
        (["dies-at:session/new"], None, NEVER, "during session/new"),
        (["dies-at:session/load"], "s-1", NEVER, "during session/load"),
        (["version-2"], None, FAILED, "version 2"),
        (["bad-id"], None, (Outcome.FAILED, Reason.BAD_OUTPUT), "no id"),
        (["fails-at:initialize:-32600:no"], None, FAILED, "initialize: no"),
        (["fails-at:session/new:-32000:Log in"], None, FAILED, "logged in: Log in"),
        (["fails-at:session/new:-32603:broken"], None, FAILED, "session/new: broken"),
        # What is not there any more, and what may be there again in a minute.
        ([], "s-0", LOST, "Resource not found"),
        (["fails-at:session/load:-32603:Session not found"], "s-1", LOST, "not found"),
        (["fails-at:session/load:-32603:MCP server x not found"], "s-1", NEVER, "not found"),
        (["fails-at:session/load:-32603:disk trouble"], "s-1", NEVER, "disk trouble"),
        (["fails-at:session/load:-32000:Log in"], "s-1", FAILED, "logged in"),
    ],
)
def test_what_ends_before_the_prompt_was_given_has_done_nothing(
    run, words, session, expected, says
):
    result = run("load", *words, session=session)

    assert end(result) == expected
    assert says in result.detail


def test_entry_may_say_how_its_agent_says_that_a_conversation_is_gone(run):
    spec = {"lost": Signs(error=("service failure",))}
    result = run("load", "fails-at:session/load:-32603:service failure", session="s-1", spec=spec)

    assert end(result) == LOST


@pytest.mark.parametrize(
    ("prompt", "expected", "says"),
    [
        ("stub: die 1", (Outcome.FAILED, Reason.EXIT), "during session/prompt, exit 1: gone"),
        ("stub: die 0", (Outcome.FAILED, Reason.BAD_OUTPUT), "exit 0"),
        ("stub: kill", (Outcome.FAILED, Reason.SIGNAL), "SIGKILL"),
    ],
)
def test_what_ends_after_it_had_started(run, prompt, expected, says):
    result = run("load", prompt=prompt)

    assert end(result) == expected
    assert says in result.detail
    if "die" in prompt:
        assert result.reply.text == "last words"


@pytest.mark.parametrize("method", ["initialize", "session/new", "authenticate"])
def test_agent_that_never_answers_before_the_prompt_never_started(run, folder, method):
    spec = {"acp": AcpSpec(authenticate="x")}
    # Its time to begin is over once it has fallen silent, however slow the machine is.
    clock = LimitWhen(folder / "ready")
    result = run("load", f"silent-at:{method}", clock=clock, timeout=timedelta(hours=2), spec=spec)

    assert end(result) == NEVER
    assert f"no answer to {method}" in result.detail


def test_agent_that_is_not_there_is_not_found(run, turn, env, clock, tmp_path):
    spec = AgentSpec(name="x", kind=AgentKind.ACP, command=("no-such-agent",), acp=AcpSpec())
    result = run_acp(
        spec, turn, cwd=str(tmp_path), env=env, folder=None, clock=clock, timeout=HALF_AN_HOUR
    )

    assert end(result) == (Outcome.FAILED, Reason.NOT_FOUND)


# How it is ended ------------------------------------------------------------------------------------


def test_agent_is_asked_to_cancel_at_the_limit(run, limit, told):
    result = run("load", prompt="stub: wait", **limit)

    assert end(result) == (Outcome.TIMED_OUT, Reason.TIMEOUT)
    assert result.reply.text == "so far"
    assert methods(told())[-1] == "session/cancel"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("cancel", (Outcome.CANCELLED, Reason.PERSON)),
        ("stop", (Outcome.INTERRUPTED, Reason.STOPPED)),
        ("supersede", (Outcome.SUPERSEDED, None)),
    ],
)
def test_agent_is_asked_to_cancel_at_a_stop(run, folder, told, word, expected):
    def stop():
        return word if (folder / "ready").exists() else None

    result = run("load", prompt="stub: wait", stop_requested=stop)

    assert end(result) == expected
    assert methods(told())[-1] == "session/cancel"


def test_agent_that_does_not_cancel_is_ended_with_its_whole_tree(run, limit):
    # The fixture looks whether anything of the turn is left.
    result = run(
        "load", "deaf", prompt="stub: child\nstub: hang", **limit, grace=timedelta(seconds=0.3)
    )

    assert end(result) == (Outcome.TIMED_OUT, Reason.TIMEOUT)
    assert result.reply.text == "so far"


def test_second_signal_ends_it_at_once(run, folder, told):
    def stop():
        return "now" if (folder / "ready").exists() else None

    result = run(
        "load", "deaf", prompt="stub: hang", stop_requested=stop, grace=timedelta(seconds=60)
    )

    assert end(result) == (Outcome.INTERRUPTED, Reason.STOPPED)
    assert "session/cancel" not in methods(told())


@pytest.mark.parametrize("words", [["stays"], ["deaf"]])
def test_agent_that_stays_when_all_is_said_is_ended(run, words):
    result = run("load", *words, prompt="stub: child\nstub: say done", grace=timedelta(seconds=0.3))

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "done")


# Hostile ones ---------------------------------------------------------------------------------------


def test_lines_that_are_no_messages_are_nothing(run):
    result = run("load", prompt="stub: garbage\nstub: say sound")

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "sound")


def test_line_of_fifty_megabytes_is_dropped_in_bounded_memory(run, tmp_path):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run("load", prompt="stub: huge 50\nstub: say still here")

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "still here")
    assert result.reply.warnings == ("truncated",)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80_000
    assert os.path.getsize(tmp_path / "output" / "stdout.log") < HEAD_BYTES + TAIL_BYTES + 200


def test_reply_is_bounded(run):
    result = run("load", prompt="stub: size 3000000")

    assert len(result.reply.text) < HEAD_BYTES + TAIL_BYTES + 100
    assert result.reply.warnings == ("truncated",)


def test_agent_that_asks_without_end_and_reads_no_answer_fails(run):
    result = run("load", prompt="stub: requests 20000")

    assert end(result) == (Outcome.FAILED, Reason.BAD_OUTPUT)
    assert "without end" in result.detail
