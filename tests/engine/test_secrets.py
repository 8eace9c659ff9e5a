"""What a turn prints of its secrets is kept nowhere: not in logs, reply, or record."""

import json
import logging
import sys
from pathlib import Path

from routines.agents.base import Reply
from routines.domain.agent import AgentKind, AgentSpec, OutputFormat
from routines.operations.log_lines import LineFormatter
from routines.testing import RecordingAgent
from tests.engine.stage import routine

DECLARED = "correct-horse-battery"
FORM = "sk-" + "ant-api03-" + "a1B2" * 8


def telling(code):
    return AgentSpec(name="teller", kind=AgentKind.COMMAND, command=(sys.executable, "-c", code))


def kept(stage):
    """Every file of the state folder with what is in it, the handed-over work aside."""
    files = [path for path in Path(stage.path).rglob("*") if path.is_file()]
    return {path: path.read_text(errors="replace") for path in files if path.name != "work.json"}


async def tell(stage, code):
    secret = routine(agent="teller", env=(("SHOP_API_KEY", DECLARED),))
    async with stage.running(secret, agents={"teller": telling(code)}) as engine:
        return await engine.run("digest")


async def test_secret_in_a_reply_is_masked_and_the_rest_is_kept(stage):
    record = await tell(
        stage, f"import os; print('key', os.environ['SHOP_API_KEY'], '{FORM}', 'ok')"
    )

    assert record.outcome == "completed"
    assert record.end["reply"] == "key *** *** ok"
    assert [p for p, text in kept(stage).items() if DECLARED in text or FORM in text] == []


async def test_secret_in_the_words_of_a_failure_is_masked(stage):
    code = f"import sys; sys.stderr.write('denied for {FORM}\\n'); sys.exit(1)"
    record = await tell(stage, code)

    assert record.end["detail"] == "exit 1: denied for ***"
    assert [p for p, text in kept(stage).items() if FORM in text] == []


async def test_secret_in_what_an_agent_says_as_json_is_masked(stage):
    spec = AgentSpec(
        name="teller",
        kind=AgentKind.COMMAND,
        command=(sys.executable, "-c", f'print(\'{{"r": "key \\\\u0073k-{FORM[3:]} ok"}}\')'),
        output=OutputFormat.JSON,
        read={"reply": "r"},
    )
    async with stage.running(routine(agent="teller"), agents={"teller": spec}) as engine:
        record = await engine.run("digest")

    assert record.end["reply"] == "key *** ok"


async def test_secret_in_what_a_tool_that_was_denied_is_called_is_masked_before_the_cut(stage):
    tool = f"{'x' * 30} {FORM}"
    spec = AgentSpec(
        name="teller",
        kind=AgentKind.COMMAND,
        command=(sys.executable, "-c", f"print({json.dumps({'r': 'ok', 'd': [tool]})!r})"),
        output=OutputFormat.JSON,
        read={"reply": "r", "denied": "d"},
    )
    async with stage.running(routine(agent="teller"), agents={"teller": spec}) as engine:
        record = await engine.run("digest")

    assert record.end["warnings"] == [f"denied: {'x' * 30} ***"]


async def test_secret_in_the_warnings_of_an_agent_of_the_host_is_masked(stage):
    stage.agent = RecordingAgent(lambda _turn: Reply(text="ok", warnings=(f"denied: {FORM}",)))
    async with stage.running(routine()) as engine:
        record = await engine.run("digest")

    assert record.end["warnings"] == ["denied: ***"]


async def test_secret_in_the_words_of_an_agent_of_the_host_is_masked(stage):
    def fail(_turn):
        raise RuntimeError(f"denied for {FORM}")

    stage.agent = RecordingAgent(fail)
    async with stage.running(routine()) as engine:
        record = await engine.run("digest")

    assert record.end["detail"] == "RuntimeError: denied for ***"


async def test_secret_that_comes_in_two_pieces_is_masked(stage):
    code = (
        "import os, sys, time; k = os.environ['SHOP_API_KEY']\n"
        "sys.stdout.write('a ' + k[:9]); sys.stdout.flush(); time.sleep(0.2)\n"
        "sys.stdout.write(k[9:] + ' b'); sys.stdout.flush()"
    )
    record = await tell(stage, code)

    assert record.end["reply"] == "a *** b"


async def test_endless_line_is_kept_without_holding_it_all_back(stage):
    code = f"import sys; sys.stdout.write('x' * 300000 + ' {FORM} ' + 'y' * 300000)"
    await tell(stage, code)

    (log,) = Path(stage.path).rglob("stdout.log")
    assert FORM not in log.read_text()
    assert log.stat().st_size > 590_000


def test_log_line_with_a_secret_is_masked():
    record = logging.makeLogRecord({"msg": "settled", "detail": f"denied for {FORM}"})

    for as_json in (False, True):
        assert FORM not in LineFormatter(as_json=as_json).format(record)
