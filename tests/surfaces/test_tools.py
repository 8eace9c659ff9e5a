"""The tools for programs that call tools: functions, schemas, and calls of which none raises."""

import asyncio
import inspect
import json
import typing
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import routines
from routines.errors import InvalidName, UnknownSession, WakeupRefused, WorkspaceNotFound
from routines.store.wakeups import WakeupStore
from routines.testing import FakeClock, RecordingAgent

NAMES = ["wake", "unwake", "wakeups"]


@pytest.fixture
def tools(ws):
    # The tools of a program go by the machine's clock: beside it the world's would be mute.
    ws.scheduler(beat_at=datetime.now(UTC))
    return routines.tools("named:chat", root=str(ws.root), environ=ws.environ)


def pending(ws, session="named:chat"):
    return WakeupStore(ws.state).pending(session)


def test_the_functions_are_typed_and_documented_as_the_schemas_are(tools):
    assert [one.__name__ for one in tools.functions] == NAMES
    for function, tool in zip(tools.functions, tools.offered, strict=True):
        hints = typing.get_type_hints(function)
        assert hints.pop("return") is str
        assert set(hints.values()) <= {str}
        names = list(inspect.signature(function).parameters)
        assert [name.removesuffix("_") for name in names] == list(tool.params)
        assert function.__doc__ == tool.docstring()
    wake = tools.functions[0]
    assert "Use this and not a sleep" in wake.__doc__
    assert "Exactly one of in_, at, every, cron." in wake.__doc__
    assert '    in_: "10m", "2h30m", "1d"; at least 1m\n' in wake.__doc__


def test_a_function_sets_a_wake_up_and_returns_its_words(ws, tools):
    wake, unwake, wakeups = tools.functions

    said = wake("look at the deploy", in_="10m")

    (one,) = pending(ws)
    assert said.startswith(f"Set. {one.id} fires ")
    assert one.prompt == "look at the deploy"
    assert one.id in wakeups()
    assert unwake(one.id) == f"Cancelled: {one.id} never fires. 0 of 20 pending here."
    assert pending(ws) == []


def test_a_function_returns_a_refusal_and_the_method_raises_it(tools):
    said = tools.functions[0]("look", in_="30s")

    assert said.startswith('Refused: in "30s" is too soon')
    # In the words of the schema that its model was shown.
    assert said.endswith('Ask again with in_="1m".')
    assert "exactly one of in_, at, every, cron" in tools.functions[0]("look")
    with pytest.raises(WakeupRefused):
        tools.wake("look", in_="30s")


def test_the_schemas_are_those_that_the_apis_want(tools):
    chat, responses, anthropic = tools.openai(), tools.openai(responses=True), tools.anthropic()

    assert [one["function"]["name"] for one in chat] == NAMES
    assert {one["type"] for one in chat} == {one["type"] for one in responses} == {"function"}
    for one, two, three in zip(chat, responses, anthropic, strict=True):
        assert one["function"]["parameters"] == two["parameters"] == three["input_schema"]
        assert one["function"]["description"] == two["description"] == three["description"]
        assert set(three) == {"name", "description", "input_schema"}
    assert json.loads(json.dumps([chat, responses, anthropic]))


@pytest.mark.parametrize(
    "arguments", [{"prompt": "look", "in": "10m"}, '{"prompt": "look", "in": "10m"}']
)
def test_a_call_takes_a_mapping_or_json(ws, tools, arguments):
    answer = tools.call("wake", arguments)

    assert not answer.refused
    assert str(answer) == answer.text
    assert answer.data["id"] == pending(ws)[0].id
    assert json.loads(json.dumps(answer.data)) == answer.data


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("wake", {"prompt": "look", "in": 600}, 'in "600": 600 what?'),
        ("wake", {"prompt": "look"}, "no time is given"),
        ("wake", {"in": "10m"}, "prompt is missing."),
        ("wake", {"message": "look", "in": "10m"}, "the text goes in prompt"),
        ("wake", "look", "are no JSON."),
        ("unwake", {}, "id is missing"),
        ("unwake", {"id": ""}, "id is missing"),
        ("unwake", {"id": "../../x"}, "no wake-up '../../x' is pending here"),
        ("unwake", {"id": "w-000000"}, "no wake-up 'w-000000' is pending here"),
        (
            "wake",
            {"prompt": ["look"], "in": "10m"},
            "Refused: prompt must be text, not list. Nothing was scheduled.",
        ),
        (
            "wake",
            {"prompt": "look", "in": ["10m"]},
            'not list: "10m", "2h30m", "1d"; at least 1m. Nothing was scheduled.',
        ),
        ("schedule", {}, 'there is no tool "schedule": there are wake, unwake, wakeups.'),
        ("wake\x1b[2J" * 100, {}, 'there is no tool "wake\\x1b[2J'),
        (None, None, 'there is no tool "NoneType"'),
        (["wake"], {}, 'there is no tool "list"'),
    ],
)
def test_a_call_that_is_refused_says_why_and_changes_nothing(ws, tools, name, arguments, said):
    answer = tools.call(name, arguments)

    assert answer.refused
    assert answer.text.startswith("Refused: ")
    assert said in answer.text
    assert answer.data["code"] in {"wake-refused", "unknown-wakeup"}
    assert pending(ws) == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from([*NAMES, "", "x"]),
    arguments=st.dictionaries(
        st.sampled_from(["prompt", "in", "at", "every", "cron", "tz", "id", "x"]),
        st.none() | st.text(max_size=20) | st.integers() | st.lists(st.integers(), max_size=2),
    ),
)
def test_no_call_raises(tools, name, arguments):
    answer = tools.call(name, arguments)

    assert isinstance(answer.text, str)
    assert answer.text


def test_what_breaks_inside_is_an_answer_too_and_in_the_log(tools, monkeypatch, caplog):
    monkeypatch.setattr(WakeupStore, "wake", lambda *_, **__: 1 / 0)

    answer = tools.call("wake", {"prompt": "look", "in": "10m"})

    assert answer.refused
    assert answer.text == (
        "Failed: ZeroDivisionError. Whether anything was changed can't be told: wakeups() says."
    )
    assert "tool-failed" in caplog.text


def test_a_fault_of_the_store_is_an_answer_too(ws, tools):
    (ws.root / ".routines" / "wakeups").write_text("no folder")

    answer = tools.call("wake", {"prompt": "look", "in": "10m"})

    assert answer.refused
    assert answer.text.startswith("Refused: ")
    assert "wakeups" in answer.text
    assert answer.data["code"] in {"store-fault", "not-durable"}


# Which session, which workspace --------------------------------------------------------------------


def test_a_name_of_a_routine_stands_for_its_conversation(ws):
    ws.routine("daily", 'cron: "0 9 * * *"\n')

    routines.tools("daily", root=str(ws.root), environ=ws.environ).wake("look", in_="10m")

    assert [one.prompt for one in pending(ws, "routine:daily")] == ["look"]


def test_a_session_that_can_not_be_is_an_error_at_once(ws):
    with pytest.raises(UnknownSession):
        routines.tools("chat", root=str(ws.root), environ=ws.environ)


@pytest.mark.parametrize("session", [5, b"daily", ["daily"], "", "named:\0", "routine:daily\n"])
def test_what_is_no_name_of_a_session_is_an_error_at_once(ws, session):
    ws.routine("daily", "every: 1d\n")

    with pytest.raises(InvalidName):
        routines.tools(session, root=str(ws.root), environ=ws.environ)


def test_a_period_is_said_in_days_where_it_is_no_whole_number_of_weeks(tools):
    assert ", then every 366d until unwake" in tools.wake("look", every="366d")
    assert ", then every 8d12h until unwake" in tools.wake("look", every="8d12h")
    assert ", then every 2w until unwake" in tools.wake("look", every="14d")


def test_without_a_session_it_is_that_of_the_turn(ws):
    turn = {**ws.environ, "ROUTINES_SESSION": "routine:daily", "ROUTINES_TURN": "w/daily@x"}

    routines.tools(root=str(ws.root), environ=turn).wake("look", in_="10m")

    (one,) = pending(ws, "routine:daily")
    assert (one.created_by, one.created_in_turn) == ("w/daily@x", "w/daily@x")


def test_outside_of_a_turn_each_gets_a_conversation_of_its_own_and_all_are_listed(ws):
    ws.scheduler()
    outside = routines.tools(root=str(ws.root), environ=ws.environ)
    assert outside.wakeups() == "Nothing is pending."

    said = outside.call("wake", {"prompt": "look", "in": "10m"})

    assert "in a new conversation: the prompt must say all that it needs." in said.text
    assert said.data["session"] == f"wake:{said.data['id']}"
    head, line = outside.wakeups().split("\n")
    assert head.startswith("1 pending over all conversations; it is ")
    assert line.endswith(f'"look"  in wake:{said.data["id"]}')
    assert not outside.call("unwake", {"id": said.data["id"]}).refused


def test_of_many_the_first_are_shown_and_the_rest_counted(ws):
    outside = routines.tools(root=str(ws.root), environ=ws.environ)
    for number in range(23):
        outside.wake(f"look {number}", in_=f"{number + 5}m")

    lines = outside.wakeups().split("\n")

    assert len(lines) == 22
    assert '"look 0"' in lines[1]
    assert lines[-1] == "  ... 3 more: routines wakeups"


def test_without_a_workspace_it_is_an_error_that_names_init(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkspaceNotFound, match="init"):
        try:
            routines.tools(environ={"HOME": str(tmp_path)})
        except WorkspaceNotFound as error:
            raise WorkspaceNotFound(f"{error.message} {error.hint}") from error


def test_the_tools_of_an_engine_are_bound_to_its_bounds_and_zone(tmp_path):
    async def play() -> tuple[str, str, str]:
        bounds = routines.Bounds(ahead=timedelta(minutes=5))
        async with routines.Engine(
            str(tmp_path / "state"),
            agent=RecordingAgent(),
            clock=FakeClock(),
            limits=routines.Limits(wakeups=bounds),
        ) as engine:
            found = engine.tools("named:chat")
            description = found.anthropic()[0]["input_schema"]["properties"]["in"]["description"]
            refused = await asyncio.to_thread(found.call, "wake", {"prompt": "look", "in": "2m"})
            answer = await asyncio.to_thread(found.call, "wake", '{"prompt": "look", "in": "5m"}')
            return description, refused.text, answer.text

    description, refused, answer = asyncio.run(play())

    assert description.endswith("at least 5m")
    # Nobody is in a turn here, who could wait within it.
    assert refused.endswith('the shortest is 5m. Nothing was scheduled.\nAsk again with in="5m".')
    assert answer.startswith("Set. w-")
