"""The agent that answers with the prompt, and shows that the conversation lasts."""

import asyncio
import json

from routines.agents.echo import EchoAgent, run_echo
from routines.domain.outcome import Outcome, Reason
from tests.agents.stubs import make_turn


def test_reply_is_the_prompt_with_the_number_of_the_turn(tmp_path):
    transcript = str(tmp_path / "made" / "hello.jsonl")

    first = run_echo(make_turn(prompt="say hello"), transcript=transcript)
    second = run_echo(make_turn(prompt="again\nplease"), transcript=transcript)

    assert (first.outcome, first.reply.text) == (
        Outcome.COMPLETED,
        "turn 1 of routine:digest: say hello",
    )
    assert second.reply.text == "turn 2 of routine:digest: again\nplease"


def test_transcript_holds_prompts_and_replies(tmp_path):
    path = tmp_path / "hello.jsonl"

    run_echo(make_turn(prompt="ä\ud800"), transcript=str(path))

    assert json.loads(path.read_text()) == {
        "turn": 1,
        "key": make_turn().key,
        "prompt": "ä\ud800",
        "reply": "turn 1 of routine:digest: ä\ud800",
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_torn_by_a_crash_swallows_nothing_and_is_not_counted(tmp_path):
    path = tmp_path / "hello.jsonl"
    run_echo(make_turn(), transcript=str(path))
    with path.open("ab") as file:
        file.write(b'{"turn": 7, "pro')

    assert run_echo(make_turn(), transcript=str(path)).reply.text.startswith("turn 2 of")
    assert run_echo(make_turn(), transcript=str(path)).reply.text.startswith("turn 3 of")


def test_a_transcript_of_something_else_counts_from_one(tmp_path):
    path = tmp_path / "hello.jsonl"
    path.write_bytes(b'notes\n[1]\n{"turn": "x"}\n{"turn": -4}\n\xff\n')

    assert run_echo(make_turn(), transcript=str(path)).reply.text.startswith("turn 1 of")


def test_transcript_that_cannot_be_kept_is_a_failure(tmp_path):
    result = run_echo(make_turn(), transcript=str(tmp_path))

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.AGENT)
    assert "transcript" in result.detail


def test_object_for_an_engine_keeps_sessions_apart(tmp_path):
    async def talk(agent):
        turns = [make_turn(session=name, prompt="p") for name in ("a", "b/../c", "a")]
        return [(await agent.run(turn)).text for turn in turns]

    expected = ["turn 1 of a: p", "turn 1 of b/../c: p", "turn 2 of a: p"]
    assert asyncio.run(talk(EchoAgent())) == expected
    assert asyncio.run(talk(EchoAgent(str(tmp_path)))) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b%2F..%2Fc.jsonl"]
