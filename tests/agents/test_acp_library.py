"""What we say in the Agent Client Protocol, held against the official library."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from routines.agents.acp_agent import run_acp
from routines.agents.acp_protocol import Asked, Conversation
from routines.agents.base import Usage
from routines.agents.handover import McpServer
from routines.domain.acp_agent import DEFAULT_ACP_READ, AcpSpec
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.masking import Masker
from routines.domain.outcome import Outcome
from tests.agents.stubs import RealClock, make_turn

schema = pytest.importorskip("acp.schema", reason="agent-client-protocol is a witness, in `dev`")

AGENT = str(Path(__file__).parent / "acp_by_the_library.py")
SPEC = AgentSpec(
    name="lib",
    kind=AgentKind.ACP,
    command=(sys.executable, AGENT),
    acp=AcpSpec(),
    read=DEFAULT_ACP_READ,
)
SERVER = McpServer("/usr/bin/python", ("-m", "routines"), {"A": "b"})
MODELS = {
    "initialize": "InitializeRequest",
    "authenticate": "AuthenticateRequest",
    "session/new": "NewSessionRequest",
    "session/load": "LoadSessionRequest",
    "session/resume": "ResumeSessionRequest",
    "session/prompt": "PromptRequest",
    "session/cancel": "CancelNotification",
}


def converse(answers, *, session=None, authenticate=None):
    """Say a turn to an agent of which only the answers are known; return what was said to it."""
    said = []
    spec = AgentSpec(name="x", kind=AgentKind.ACP, acp=AcpSpec(authenticate=authenticate))
    asked = Asked(
        prompt="hi", cwd="/ws", native_session=session, servers=(SERVER,), version="1.0.0"
    )
    conversation = Conversation(asked, spec, mask=Masker().mask)
    conversation.begin(lambda data: said.append(json.loads(data)))
    for answer in answers:
        message = {"jsonrpc": "2.0", **answer}
        if "method" not in answer:
            message["id"] = said[-1]["id"]
        conversation.hear(json.dumps(message).encode() + b"\n")
    return conversation, said


def able(**capabilities):
    return {"result": {"protocolVersion": 1, "agentCapabilities": capabilities}}


RESUMES = {"sessionCapabilities": {"resume": {}}}


def test_every_message_of_ours_is_one_of_the_protocol():
    seen = set()
    for words in (
        {
            "answers": [able(), {"result": {}}, {"result": {"sessionId": "s"}}],
            "authenticate": "key",
        },
        {"answers": [able(loadSession=True), {"result": {}}], "session": "s"},
        {"answers": [able(**RESUMES), {"result": {}}], "session": "s"},
    ):
        conversation, said = converse(**words)
        conversation.interrupt()
        for message in said:
            assert message["jsonrpc"] == "2.0"
            getattr(schema, MODELS[message["method"]]).model_validate(message["params"])
            seen.add(message["method"])
    assert seen == set(MODELS)


def test_answers_to_its_questions_are_those_of_the_protocol():
    option = {"optionId": "n", "name": "No", "kind": "reject_once"}
    for options in ([option], []):
        ask = {
            "id": 7,
            "method": "session/request_permission",
            "params": {"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": options},
        }
        schema.RequestPermissionRequest.model_validate(ask["params"])
        _, said = converse([able(), {"result": {"sessionId": "s"}}, ask])
        schema.RequestPermissionResponse.model_validate(said[-1]["result"])


def run(prompt, session=None):
    turn = make_turn(prompt=prompt, native_session=session, first=session is None)
    return run_acp(
        SPEC,
        turn,
        cwd=os.getcwd(),
        env=dict(os.environ),
        folder=None,
        clock=RealClock(),
        timeout=timedelta(seconds=120),
        servers=[SERVER],
        version="1.0.0",
    )


def test_agent_made_with_the_library_is_driven_through_two_turns():
    first = run("good morning")

    assert (first.outcome, first.reply.text) == (Outcome.COMPLETED, "lib-1 heard good morning")
    assert first.reply.usage == Usage(tokens=7)
    second = run("please give me leave", session=first.reply.native_session)
    assert second.outcome is Outcome.COMPLETED
    assert second.reply.text == "nlib-1 heard please give me leave"
    assert second.reply.warnings == ("denied: rm",)
