"""OpenAI's Responses, as far as programs ask for them."""

import json

from tests.standin.script import INPUT_TOKENS, OUTPUT_TOKENS, Asked

_USAGE = {
    "input_tokens": INPUT_TOKENS,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def _texts(content):
    if isinstance(content, str):
        return [content]
    return [part.get("text", "") for part in content or [] if isinstance(part, dict)]


def _tools(tools, prefix=""):
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _tools(tool.get("tools", []), prefix=f"{tool['name']}.")
        elif "name" in tool:
            yield prefix + tool["name"], tool.get("parameters", {})


def read(body, _path):
    texts, newest, results = [], [], []
    items = body.get("input", [])
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item["role"] == "user":
            said = _texts(item.get("content"))
            texts += said
            newest += said
        elif kind.endswith("_output"):
            output = item.get("output", "")
            results.append("\n".join(_texts(output)))
        elif kind.endswith("_call") or item.get("role") == "assistant":
            newest, results = [], []
    return Asked(
        model=body.get("model", "standin"),
        stream=bool(body.get("stream")),
        texts=tuple(texts),
        newest=tuple(newest),
        results=tuple(results),
        tools=dict(_tools(body.get("tools", []))),
    )


def _item(answer, number):
    if answer.tool is None:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        return {
            "id": f"msg_{number:08}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    space, _, name = answer.tool.rpartition(".")
    return {
        "id": f"fc_{number:08}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{number:08}",
        "name": name,
        "arguments": json.dumps(answer.arguments),
        **({"namespace": space} if space else {}),
    }


def whole(asked, answer, number):
    return {
        "id": f"resp_{number:08}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": asked.model,
        "output": [_item(answer, number)],
        "usage": _USAGE,
    }


def stream(asked, answer, number):
    done = whole(asked, answer, number)
    item = done["output"][0]
    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    at = {"item_id": item["id"], "output_index": 0}
    events = [
        ("response.created", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": _empty(item)}),
    ]
    if answer.tool is None:
        at["content_index"] = 0
        events.append(("response.output_text.delta", {**at, "delta": answer.text}))
        events.append(("response.output_text.done", {**at, "text": answer.text}))
    else:
        text = item["arguments"]
        events.append(("response.function_call_arguments.done", {**at, "arguments": text}))
    events.append(("response.output_item.done", {"output_index": 0, "item": item}))
    events.append(("response.completed", {"response": done}))
    for sequence, (name, data) in enumerate(events):
        line = json.dumps({"type": name, "sequence_number": sequence, **data})
        yield f"event: {name}\ndata: {line}\n\n"


def _empty(item):
    if item["type"] == "message":
        return {**item, "status": "in_progress", "content": []}
    return {**item, "status": "in_progress", "arguments": ""}
