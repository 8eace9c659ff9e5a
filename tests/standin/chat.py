"""OpenAI's Chat Completions, as far as programs ask for them."""

import json

from tests.standin.script import INPUT_TOKENS, OUTPUT_TOKENS, Asked

_USAGE = {
    "prompt_tokens": INPUT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def _texts(content):
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or [] if part.get("type") == "text"]


def read(body, _path):
    texts, newest, results = [], [], []
    for message in body.get("messages", []):
        said = _texts(message.get("content"))
        match message["role"]:
            case "user":
                texts += said
                newest += said
            case "assistant":
                newest, results = [], []
            case "tool":
                results.append("\n".join(said))
    functions = [tool["function"] for tool in body.get("tools") or [] if "function" in tool]
    return Asked(
        model=body.get("model", "standin"),
        stream=bool(body.get("stream")),
        texts=tuple(texts),
        newest=tuple(newest),
        results=tuple(results),
        tools={function["name"]: function.get("parameters", {}) for function in functions},
    )


def _said(answer, number):
    if answer.tool is None:
        return {"role": "assistant", "content": answer.text}
    function = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
    call = {"index": 0, "id": f"call_{number:08}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _base(asked, number, kind):
    return {"id": f"chatcmpl-{number:08}", "object": kind, "created": 0, "model": asked.model}


def _ending(answer):
    return "stop" if answer.tool is None else "tool_calls"


def whole(asked, answer, number):
    choice = {"index": 0, "message": _said(answer, number), "finish_reason": _ending(answer)}
    base = _base(asked, number, "chat.completion")
    return {**base, "choices": [choice], "usage": _USAGE}


def stream(asked, answer, number):
    base = _base(asked, number, "chat.completion.chunk")
    deltas = [(_said(answer, number), None), ({}, _ending(answer))]
    for delta, ending in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": ending}
        yield f"data: {json.dumps({**base, 'choices': [choice]})}\n\n"
    yield f"data: {json.dumps({**base, 'choices': [], 'usage': _USAGE})}\n\n"
    yield "data: [DONE]\n\n"
