"""`routines mcp`: the tools, their texts, and whose wake-ups they are."""

import json

import pytest

from routines.domain.wake_texts import tools
from routines.store.wakeups import WakeupStore

TURN = {
    "ROUTINES_SESSION": "routine:daily",
    "ROUTINES_ROUTINE": "daily",
    "ROUTINES_TURN": "w/daily@2026-11-29T08:00:00Z",
}


@pytest.fixture
def turn(ws):
    """The environment of a turn of `daily`."""
    ws.settings("tz: Europe/Berlin\nagent: echo\ndeliver: [desktop, {file: digests/}]\n")
    ws.routine("daily", 'cron: "0 9 * * *"\n')
    root = str(ws.root)
    return {**TURN, "ROUTINES_ROOT": root, "ROUTINES_STATE": f"{root}/.routines"}


def test_it_says_who_asks_where_and_where_a_plain_reply_goes(server, turn):
    hello = server(greet=False, cwd="/", **turn).greet()

    assert hello["serverInfo"]["name"] == "routines"
    assert hello["instructions"] == (
        "You are daily, in the conversation routine:daily."
        " Your plain reply goes to desktop and digests/."
    )


def test_it_offers_three_tools_of_flat_texts(server):
    found = server().ask("tools/list")["result"]["tools"]

    for one, tool in zip(found, tools(zone_key="Europe/Berlin"), strict=True):
        assert (one["name"], one["description"]) == (tool.name, tool.description)
        assert one["inputSchema"] == tool.schema()
        assert one["annotations"] == tool.annotations()
        assert one["title"] == tool.title


def test_within_a_turn_a_wake_up_is_of_its_session(ws, server, turn):
    answer = server(cwd="/", **turn).call("wake", {"prompt": "look", "in": "10m"})

    (one,) = WakeupStore(ws.state).pending("routine:daily")
    (part,) = answer["content"]
    assert not answer["isError"]
    assert one.id in part["text"]
    assert one.created_in_turn == TURN["ROUTINES_TURN"]


def test_what_it_answers_is_whole_in_both_forms(server, turn):
    """Claude Code and Codex show their model the structured one alone."""
    answer = server(**turn).call("wake", {"prompt": "look", "in": "10m"})

    (part,) = answer["content"]
    data = answer["structuredContent"]
    assert data["answer"] == part["text"]
    assert set(data) == {"answer", "id", "session", "next_at", "already"}


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("wake", {"prompt": "look", "in": "30s"}, 'in "30s" is too soon; the shortest is 1m.'),
        ("wake", {"prompt": "look", "in": 600}, 'in "600": 600 what?'),
        ("wake", {"message": "look", "in": "10m"}, "the text goes in prompt"),
        ("wake", {"prompt": {"a": ["b"]}, "in": "10m"}, "prompt must be text, not dict"),
        ("wake", {"prompt": "x" * 32769, "in": "10m"}, "the most is 32768"),
        ("wake", {"prompt": "look \0", "in": "10m"}, "a NUL character"),
        ("unwake", {"id": "w-000000"}, "no wake-up 'w-000000' is pending here"),
        ("wakeups", {"all": "yes"}, "it has none"),
        ("schedule", {}, 'there is no tool "schedule"'),
    ],
    ids=range(9),
)
def test_a_refusal_is_a_result_that_is_an_error(ws, server, turn, name, arguments, said):
    answer = server(**turn).call(name, arguments)

    (part,) = answer["content"]
    assert answer["isError"] is True
    assert part["text"].startswith("Refused: ")
    assert said in part["text"]
    assert answer["structuredContent"]["answer"] == part["text"]
    assert WakeupStore(ws.state).count() == (0, 0)


def test_it_says_the_same_as_the_command(ws, server, turn):
    one = server(**turn)
    said = one.text("wake", {"prompt": "look", "every": "30m"})

    listed = one.text("wakeups")
    (mine,) = WakeupStore(ws.state).pending("routine:daily")
    ws.environ |= turn
    again = ws.ask("wake", "--every", "30m", "look").out

    assert f"{mine.id}" in said
    assert f"Already set: {mine.id} is the same prompt" in again
    assert f"{mine.id}  " in listed
    assert (
        ws.ask("unwake", mine.id).out
        == f"Cancelled: {mine.id} never fires. 0 of 20 pending here.\n"
    )
    assert one.text("wakeups") == "Nothing is pending in this conversation."


def test_outside_of_a_turn_it_says_that_each_gets_a_conversation_of_its_own(ws, server):
    ws.scheduler()
    one = server(greet=False)

    assert one.greet()["instructions"].startswith(
        "You are outside of a turn: a wake-up begins a new"
    )
    assert "in a new conversation: the prompt must say all that it needs." in one.text(
        "wake", {"prompt": "look", "in": "10m"}
    )
    assert one.text("wakeups").startswith("1 pending over all conversations; ")


def test_a_session_can_be_named(ws, server, turn):
    said = server("--session", "named:ops", **turn).call("wake", {"prompt": "look", "in": "10m"})

    assert said["structuredContent"]["session"] == "named:ops"
    assert len(WakeupStore(ws.state).pending("named:ops")) == 1


def test_a_turn_sees_and_cancels_its_own_alone(server, turn):
    other = server("--session", "named:ops").call("wake", {"prompt": "look", "in": "10m"})
    one = server(**turn)

    assert one.text("wakeups") == "Nothing is pending in this conversation."
    assert one.call("unwake", {"id": other["structuredContent"]["id"]})["isError"]


def test_without_a_scheduler_it_says_that_nothing_fires(server, turn):
    said = server(**turn).text("wake", {"prompt": "look", "in": "10m"})

    assert said.startswith("Set, but no scheduler is alive on ~/agents: it fires only once one is")


def test_without_a_workspace_its_answers_say_so(ws, server, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    one = server(cwd=elsewhere)

    answer = one.call("wake", {"prompt": "look", "in": "10m"})

    assert len(one.ask("tools/list")["result"]["tools"]) == 3
    assert answer["isError"]
    assert "routines init" in json.dumps(answer)
    assert one.close() == 0
    assert one.process.stderr.read().startswith(b"no call can succeed: ")
    assert list(elsewhere.iterdir()) == []


def test_being_asked_what_there_is_writes_nothing(ws, server):
    one = server()
    one.ask("tools/list")

    assert one.text("wakeups") == "Nothing is pending."
    assert not (ws.root / ".routines").exists()


def test_an_edit_of_the_files_is_seen_by_the_next_call(ws, server):
    one = server()
    ws.settings("tz: Asia/Tokyo\nagent: echo\n")

    assert "Asia/Tokyo" in one.text("wake", {"prompt": "look", "in": "10m"})
