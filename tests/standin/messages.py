"""Anthropic's Messages, as far as programs ask for them."""

import json

from tests.standin.script import INPUT_TOKENS, OUTPUT_TOKENS, Asked

_USAGE = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}


def _parts(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def read(body, _path):
    texts, newest, results = [], [], []
    for message in body.get("messages", []):
        if message["role"] == "assistant":
            newest, results = [], []
            continue
        for part in _parts(message["content"]):
            if part["type"] == "text":
                texts.append(part["text"])
                newest.append(part["text"])
            elif part["type"] == "tool_result":
                said = [piece.get("text", "") for piece in _parts(part.get("content", ""))]
                results.append("\n".join(said))
    return Asked(
        model=body.get("model", "standin"),
        stream=bool(body.get("stream")),
        texts=tuple(texts),
        newest=tuple(newest),
        results=tuple(results),
        tools={tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools", [])},
    )


def _message(asked, answer, number):
    if answer.tool is None:
        content = [{"type": "text", "text": answer.text}]
    else:
        call = {"id": f"toolu_{number:08}", "name": answer.tool, "input": answer.arguments}
        content = [{"type": "tool_use", **call}]
    return {
        "id": f"msg_{number:08}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": content,
        "stop_reason": "end_turn" if answer.tool is None else "tool_use",
        "stop_sequence": None,
        "usage": _USAGE,
    }


def whole(asked, answer, number):
    return _message(asked, answer, number)


def stream(asked, answer, number):
    message = _message(asked, answer, number)
    (part,) = message["content"]
    if answer.tool is None:
        empty, delta = {**part, "text": ""}, {"type": "text_delta", "text": answer.text}
    else:
        text = json.dumps(answer.arguments)
        empty, delta = {**part, "input": {}}, {"type": "input_json_delta", "partial_json": text}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events = [
        ("message_start", {"message": {**message, "content": [], "stop_reason": None}}),
        ("content_block_start", {"index": 0, "content_block": empty}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": ending, "usage": _USAGE}),
        ("message_stop", {}),
    ]
    for name, data in events:
        yield f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"
