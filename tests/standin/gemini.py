"""Gemini's generateContent, as far as programs ask for it."""

import json
import re

from tests.standin.script import INPUT_TOKENS, OUTPUT_TOKENS, Asked

_USAGE = {
    "promptTokenCount": INPUT_TOKENS,
    "candidatesTokenCount": OUTPUT_TOKENS,
    "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
}


def read(body, path):
    texts, newest, results = [], [], []
    for content in body.get("contents", []):
        if content.get("role") == "model":
            newest, results = [], []
            continue
        for part in content.get("parts", []):
            if "functionResponse" in part:
                results.append(_result(part["functionResponse"].get("response", {})))
            elif "text" in part:
                texts.append(part["text"])
                newest.append(part["text"])
    tools = {}
    for group in body.get("tools", []):
        for tool in group.get("functionDeclarations", []):
            schema = tool.get("parametersJsonSchema") or tool.get("parameters") or {}
            tools[tool["name"]] = schema
    found = re.search(r"/models/([^:/]+):(\w+)", path)
    return Asked(
        model=found[1],
        stream=found[2] == "streamGenerateContent",
        texts=tuple(texts),
        newest=tuple(newest),
        results=tuple(results),
        tools=tools,
    )


def _result(response):
    return str(response["output"]) if "output" in response else json.dumps(response)


def whole(asked, answer, _number):
    part = {"text": answer.text}
    if answer.tool is not None:
        part = {"functionCall": {"name": answer.tool, "args": answer.arguments}}
    candidate = {
        "index": 0,
        "content": {"role": "model", "parts": [part]},
        "finishReason": "STOP",
    }
    return {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": asked.model}


def stream(asked, answer, number):
    yield f"data: {json.dumps(whole(asked, answer, number))}\r\n\r\n"
