"""The protocol without a process: whatever an agent says, in whatever pieces."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from routines.agents.acp_protocol import Asked, Conversation
from routines.domain.acp_agent import DEFAULT_ACP_READ, AcpSpec
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.masking import Masker
from routines.domain.outcome import Outcome, Reason

SPEC = AgentSpec(name="x", kind=AgentKind.ACP, acp=AcpSpec(kinds=("read",)), read=DEFAULT_ACP_READ)
WORDS = st.sampled_from(
    ["initialize", "session/update", "session/request_permission", "fs/read_text_file", "s", "",
     "agent_message_chunk", "tool_call", "text", "end_turn", "read", "reject_once", "allow_once"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["id", "method", "params", "result", "error", "sessionId", "update", "sessionUpdate",
     "content", "type", "text", "options", "optionId", "kind", "toolCall", "title", "stopReason",
     "usage", "totalTokens", "code", "message", "data", "protocolVersion", "agentCapabilities",
     "sessionCapabilities", "resume", "loadSession"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(), WORDS, st.text(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
# What looks like a message, with anything in the places that are looked at.
METHODS = st.sampled_from(["session/update", "session/request_permission", "fs/read_text_file"])
UPDATES = st.fixed_dictionaries(
    {"method": METHODS, "params": st.one_of(VALUES, st.fixed_dictionaries({
        "sessionId": st.just("s"), "update": VALUES, "toolCall": VALUES, "options": VALUES
    }))},
    optional={"id": VALUES},
)  # fmt: skip
ANSWERS = st.fixed_dictionaries(
    {"id": st.integers(0, 9)}, optional={"result": VALUES, "error": VALUES}
)
MESSAGES = st.one_of(st.none(), UPDATES, ANSWERS, VALUES)
# Answers that lead on, so that what is random meets every phase.
STEPS = [
    {"result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}},
    {"result": {"sessionId": "s"}},
    {"result": {"stopReason": "end_turn"}},
]


SECRET = "correct-horse-battery"
MASK = Masker([SECRET]).mask


def begin(said, session=None):
    asked = Asked(prompt="hi", cwd="/ws", native_session=session)
    conversation = Conversation(asked, SPEC, mask=MASK)
    conversation.begin(lambda data: said.append(json.loads(data)))
    return conversation


def line(message):
    return json.dumps(message).encode() + b"\n"


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=12), st.booleans())
@example([None, None, {"method": "session/update", "params": [1]}], False)
@example([None, None, {"method": "session/request_permission", "id": 1, "params": 7}], False)
@example([{"id": 1, "error": "words"}], False)
@example(
    [
        None,
        None,
        {"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": []}}},
    ],
    False,
)
def test_whatever_an_agent_says_is_no_error_of_ours(messages, resumed):
    said, steps = [], iter(STEPS)
    conversation = begin(said, "s" if resumed else None)
    for message in messages:
        # None of them stands for the next answer that leads on.
        step = next(steps, None) if message is None else None
        conversation.hear(line(message if step is None else {"id": said[-1].get("id"), **step}))
        conversation.settle()
    conversation.interrupt()

    text, _ = conversation.reply()
    assert isinstance(text, str)
    conversation.said.usage()
    assert conversation.over or conversation.verdict is None
    assert all(message["jsonrpc"] == "2.0" for message in said)


@settings(deadline=None)
@given(st.lists(st.integers(1, 400), max_size=20))
def test_messages_may_come_in_any_pieces(sizes):
    said = []
    conversation = begin(said)
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "naïve"}}
    update = {"method": "session/update", "params": {"sessionId": "s", "update": chunk}}
    for step in (STEPS[0], STEPS[1], update, STEPS[2]):
        data = line(step if "method" in step else {"id": said[-1]["id"], **step})
        for size in sizes:
            conversation.hear(data[:size])
            data = data[size:]
        conversation.hear(data)

    assert conversation.verdict.outcome is Outcome.COMPLETED
    assert conversation.reply() == ("naïve", ())


def test_answer_that_comes_twice_is_one():
    said = []
    conversation = begin(said)
    first = {"id": said[0]["id"], **STEPS[0]}
    conversation.hear(line(first) * 3)

    assert [message["method"] for message in said] == ["initialize", "session/new"]


def prompted(said, session=None):
    """Return a conversation that has been given its prompt."""
    conversation = begin(said, session)
    for step in STEPS[: 2 - (session is not None)]:
        conversation.hear(line({"id": said[-1]["id"], **step}))
    return conversation


def asks(number, **call):
    params = {"sessionId": "s", "toolCall": call, "options": []}
    return line({"id": number, "method": "session/request_permission", "params": params})


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ({"title": f"curl -H 'X-Key: {SECRET}'"}, "curl -H 'X-Key: ***'"),
        # The cut would leave the head of it.
        ({"title": f"{'x' * 50} {SECRET} y"}, f"{'x' * 50} *** y"),
        ({"title": "", "kind": f"{SECRET}\x1b[2J"}, "***\\x1b[2J"),
        ({"kind": "k" * 100_000}, "k" * 57 + "..."),
        ({"title": "\n", "kind": "execute"}, "execute"),
        ({}, "a tool"),
    ],
)
def test_what_was_denied_is_said_without_secrets_in_a_few_words(call, shown):
    conversation = prompted([])
    conversation.hear(asks(1, **call))

    assert conversation.reply()[1] == (f"denied: {shown}",)


@pytest.mark.parametrize("number", ["x" * 257, 10**256], ids=["text", "number"])
@pytest.mark.parametrize("method", ["session/request_permission", "fs/read_text_file"])
def test_question_under_an_id_without_end_fails_and_is_not_answered(method, number):
    said = []
    conversation = prompted(said)
    known = len(said)
    conversation.hear(line({"id": number, "method": method, "params": {"sessionId": "s"}}))

    verdict = conversation.verdict
    assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, Reason.BAD_OUTPUT)
    assert verdict.detail == "it asks under an id without end"
    assert len(said) == known


@pytest.mark.parametrize("number", ["x" * 256, -(10**254), "", 0], ids=["text", "number", "", "0"])
def test_question_is_answered_under_its_own_id(number):
    said = []
    prompted(said).hear(line({"id": number, "method": "fs/read_text_file"}))

    assert said[-1]["id"] == number


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": -32002, "message": "gone"}, Reason.SESSION_LOST),
        ({"message": "Session not found"}, Reason.SESSION_LOST),
        ({"message": "no", "data": {"details": "Session not found: s"}}, Reason.SESSION_LOST),
        ({"message": "Error: session 's.1:2' not found."}, Reason.SESSION_LOST),
        ({"message": "Session with id s was not found"}, Reason.SESSION_LOST),
        ({"message": "sessionId: s not found"}, Reason.SESSION_LOST),
        ({"message": "the conversation s: not found"}, Reason.SESSION_LOST),
        ({"message": "Not found: session s"}, Reason.SESSION_LOST),
        # Something else was not there, and the conversation may well be.
        ({"message": "MCP server 'routines' not found"}, Reason.NOT_STARTED),
        ({"message": "session s: MCP server 'routines' not found"}, Reason.NOT_STARTED),
        ({"message": "MCP server not found in session s"}, Reason.NOT_STARTED),
        ({"message": "can't load session s since its tool x was not found"}, Reason.NOT_STARTED),
        ({"message": "session/load failed, command not found"}, Reason.NOT_STARTED),
        ({"message": "session", "data": "not found"}, Reason.NOT_STARTED),
    ],
)
def test_only_a_conversation_that_is_itself_not_found_is_gone(error, reason):
    said = []
    conversation = begin(said, "s")
    for answer in (STEPS[0], {"error": error}):
        conversation.hear(line({"id": said[-1]["id"], **answer}))

    assert (conversation.verdict.outcome, conversation.verdict.reason) == (None, reason)
