"""The stand-in itself: that each dialect says what programs of that dialect understand."""

import json
import urllib.error
import urllib.request

import pytest

from tests.standin.script import Asked, answer
from tests.standin.server import StandIn

TOOL = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "why": {"type": "string"}},
    "required": ["command", "why"],
}
MESSAGES = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "text", "text": "I was given 1 texts."}]},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
    ],
    "tools": [{"name": "Bash", "input_schema": TOOL}],
}
RESPONSES = {
    "model": "m",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "two"}]},
    ],
    "tools": [{"type": "function", "name": "shell", "parameters": TOOL}],
}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "you are a test"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "I was given 1 texts."},
        {"role": "user", "content": "two"},
    ],
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": TOOL}}],
}
GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "one"}]},
        {"role": "model", "parts": [{"text": "I was given 1 texts."}]},
        {"role": "user", "parts": [{"text": "two"}]},
    ],
    "tools": [
        {"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": TOOL}]}
    ],
}
PATHS = {
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/chat/completions": CHAT,
    "/v1beta/models/g:generateContent": GEMINI,
}


@pytest.fixture
def standin(tmp_path):
    with StandIn(str(tmp_path / "requests.jsonl")) as server:
        yield server


def ask(standin, path, body):
    request = urllib.request.Request(standin.url + path, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def streamed(path, body):
    """Return path and body of the same request, its answer wanted as a stream."""
    if ":" in path:
        return path.replace(":generate", ":streamGenerate"), body
    return path, {**body, "stream": True}


def saying(body, text):
    """Return *body* with *text* in the place of its newest text."""
    return json.loads(json.dumps(body).replace('"two"', json.dumps(text)))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("as_stream", [False, True])
def test_answer_says_how_many_texts_there_were(standin, path, as_stream):
    where, body = streamed(path, PATHS[path]) if as_stream else (path, PATHS[path])

    assert "I was given 2 texts." in ask(standin, where, body)

    (seen,) = standin.requests()
    assert (seen["texts"], seen["newest"]) == (["one", "two"], ["two"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("as_stream", [False, True])
def test_line_of_a_prompt_has_the_program_run_a_command_by_the_shell_it_offers(
    standin, path, as_stream
):
    asked = saying(PATHS[path], "do\nstandin: shell touch here")
    where, body = streamed(path, asked) if as_stream else (path, asked)

    answer = ask(standin, where, body)

    assert "touch here" in answer
    (seen,) = standin.requests()
    # What else the schema insists on is filled in.
    assert seen["arguments"] == {"command": "touch here", "why": "set an alarm"}


@pytest.mark.parametrize("path", PATHS)
def test_tool_that_is_not_offered_is_not_called_and_that_is_said(standin, path):
    answer = ask(standin, path, saying(PATHS[path], 'standin: call wake {"in": "2m"}'))

    assert "I was not offered wake" in answer
    assert standin.requests()[0]["called"] is None


def test_result_of_a_tool_is_repeated_and_the_tool_not_called_again(standin):
    body = saying(CHAT, "standin: shell date")
    body["messages"] += [
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]},
        {"role": "tool", "tool_call_id": "c", "content": "Monday"},
    ]

    assert "The tool said: Monday" in ask(standin, "/v1/chat/completions", body)


def test_work_goes_on_for_the_model_after_the_shell_has_answered():
    asked = {"model": "m", "stream": False, "texts": ("standin: work 30 date",)}

    first = answer(Asked(**asked, newest=asked["texts"], tools={"bash": TOOL}))
    second = answer(Asked(**asked, newest=(), results=("Monday",)))

    assert (first.arguments["command"], first.wait_s) == ("date", 0)
    assert (second.tool, second.wait_s) == (None, 30)


def test_newest_line_of_the_newest_texts_counts(standin):
    # As after a turn that was ended: its prompt has no answer, and stands beside the next one.
    body = saying(CHAT, "standin: shell date")
    body["messages"].append({"role": "user", "content": "standin: plain"})

    ask(standin, "/v1/chat/completions", body)

    assert standin.requests()[0]["called"] is None


def test_tool_of_an_mcp_server_is_called_by_its_own_name(standin):
    tools = [{"type": "namespace", "name": "mcp__routines", "tools": RESPONSES["tools"]}]
    body = saying({**RESPONSES, "tools": tools}, 'standin: call shell {"command": "date"}')

    answer = json.loads(ask(standin, "/v1/responses", body))

    call = answer["output"][0]
    assert (call["namespace"], call["name"]) == ("mcp__routines", "shell")


def test_slow_answer_waits_and_its_request_is_in_the_log_before(standin):
    body = {**saying(CHAT, "standin: slow 30")}

    with pytest.raises((urllib.error.URLError, TimeoutError)):
        request = urllib.request.Request(
            standin.url + "/v1/chat/completions", json.dumps(body).encode()
        )
        urllib.request.urlopen(request, timeout=0.5)

    assert standin.requests()[0]["wait_s"] == 30


def test_path_that_no_dialect_has_is_not_found_and_noted(standin):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(standin, "/v1/embeddings", {})

    assert standin.requests()[0]["path"] == "/v1/embeddings"
