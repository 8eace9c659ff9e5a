"""A program that speaks the Agent Client Protocol, well or badly: `python acp_stub.py FOLDER [WORD..]`.

Its conversations are files in FOLDER, and so is a log of all that it was told. What it does besides
answering is said by the words, and by lines `stub: ...` of a prompt.
"""

import json
import os
import signal
import subprocess
import sys
import time

FOLDER, WORDS = sys.argv[1], sys.argv[2:]
out = sys.stdout.buffer


def send(message):
    out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    out.flush()


def raw(data):
    out.write(data)
    out.flush()


def result(number, value):
    send({"id": number, "result": value})


def error(number, code, message, data=None):
    send({"id": number, "error": {"code": code, "message": message, "data": data}})


def update(session, what, **more):
    send(
        {
            "method": "session/update",
            "params": {"sessionId": session, "update": {"sessionUpdate": what, **more}},
        }
    )


def chunk(session, text, kind="agent_message_chunk"):
    update(session, kind, content={"type": "text", "text": text})


def incoming():
    for line in sys.stdin.buffer:
        message = json.loads(line)
        with open(f"{FOLDER}/told.jsonl", "a") as log:
            log.write(json.dumps(message) + "\n")
        yield message


def path(session):
    return f"{FOLDER}/{session}.txt"


def talk(session):
    with open(path(session)) as file:
        return json.load(file)


def keep(session, texts):
    with open(path(session), "w") as file:
        json.dump(texts, file)


def wait_for(name):
    while not os.path.exists(f"{FOLDER}/{name}"):
        time.sleep(0.01)


messages = incoming()


def ask(session, title, kind="execute"):
    """Ask for leave; return the outcome."""
    options = [
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
        {"optionId": "never", "name": "Never", "kind": "reject_always"},
    ]
    if "only-always" in WORDS:
        options = [options[0], options[3]]
    call = {"toolCallId": "t1", "title": title, "kind": kind, "status": "pending"}
    send(
        {
            "id": "ask-1",
            "method": "session/request_permission",
            "params": {"sessionId": session, "toolCall": call, "options": options},
        }
    )
    for message in messages:
        if message.get("id") == "ask-1":
            return message["result"]["outcome"]
    return None


servers = []


def call_server(tool, about):
    """Call a tool of the first MCP server that we were handed; return what it answers."""
    given = servers[0]
    env = os.environ | {one["name"]: one["value"] for one in given["env"]}
    words = [given["command"], *given["args"]]
    server = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(number, method, params):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())["result"]

    info = {"name": "stub", "version": "1"}
    call(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
    server.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    asked = {"name": tool, "arguments": {"prompt": about, "in": "10m"}}
    return call(2, "tools/call", asked)["content"][0]["text"]


def prompted(number, params):
    session, text = params["sessionId"], params["prompt"][0]["text"]
    texts = [*talk(session), text]
    keep(session, texts)
    stop = "end_turn"
    for line in text.splitlines():
        word, _, rest = line.removeprefix("stub: ").partition(" ")
        if not line.startswith("stub: "):
            continue
        if word == "ask":
            kind, _, title = rest.partition(" ")
            chunk(session, f"{ask(session, title, kind)}")
            update(session, "tool_call", toolCallId="t1", title=title)
        elif word == "stop":
            stop = json.loads(rest)
        elif word == "error":
            return error(number, -32603, "Internal error", {"details": rest})
        elif word == "late-error":
            chunk(session, "I had begun. ")
            return error(number, -32603, rest)
        elif word == "die":
            chunk(session, "last words")
            print("gone", file=sys.stderr, flush=True)
            os._exit(int(rest))
        elif word == "kill":
            os.kill(os.getpid(), 9)
        elif word == "thought":
            chunk(session, rest, "agent_thought_chunk")
        elif word == "tool":
            update(session, "tool_call", toolCallId="t2", title=rest, kind="read")
        elif word == "say":
            chunk(session, rest)
        elif word == "size":
            chunk(session, "x" * int(rest))
        elif word == "other":
            chunk("another session", "not for you")
        elif word == "garbage":
            raw(b'Loading...\n\xff\xfe\x00\n[1, 2]\n7\nnull\n{"id": 1}\n{"jsonrpc": "2.0"}\n{\n')
            raw(b'{"id": true, "result": {"stopReason": "end_turn"}}\n')
            raw(b'{"id": 999, "result": {"stopReason": "end_turn"}}\n')
            raw(b'{"method": 7, "params": []}\n{"method": "session/update", "params": [1]}\n')
            raw(b'{"method": "session/update", "params": {"sessionId": {}, "update": 3}}\n')
            raw(b"[" * 200_000 + b"\n")
        elif word == "huge":
            raw(b'{"method": "')
            for _ in range(int(rest)):
                raw(b"x" * (1 << 20))
            raw(b'"}\n')
        elif word == "requests":
            for n in range(int(rest)):
                send({"id": n, "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}})
        elif word == "fs":
            send({"id": "fs-1", "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}})
            answer = next(m for m in messages if m.get("id") == "fs-1")
            chunk(session, json.dumps(answer.get("error")))
        elif word == "child":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        elif word == "mcp":
            tool, _, about = rest.partition(" ")
            title = f"{tool} (routines MCP Server)"
            assert ask(session, title, "other") == {"outcome": "selected", "optionId": "yes"}
            chunk(session, call_server(tool, about))
        elif word == "ready":
            open(f"{FOLDER}/ready", "w").close()
        elif word == "wait":
            chunk(session, "so far")
            open(f"{FOLDER}/ready", "w").close()
            for message in messages:
                if message.get("method") == "session/cancel":
                    return result(number, {"stopReason": "cancelled"})
            return None
        elif word == "hang":
            chunk(session, "so far")
            open(f"{FOLDER}/ready", "w").close()
            time.sleep(600)
        elif word == "file":
            wait_for(rest)
    if "stub:" not in text:
        chunk(session, f"turn {len(texts)}: ")
        chunk(session, text[:100])
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    return result(number, {"stopReason": stop, "usage": usage})


def main():
    if "deaf" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "dies-at-once" in WORDS:
        print("no such option", file=sys.stderr)
        sys.exit(2)
    count = 0
    for message in messages:
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if f"silent-at:{method}" in WORDS:
            open(f"{FOLDER}/ready", "w").close()
            continue
        if f"dies-at:{method}" in WORDS:
            sys.exit(3)
        for word in WORDS:
            if word.startswith(f"fails-at:{method}:"):
                code, _, text = word.removeprefix(f"fails-at:{method}:").partition(":")
                error(number, int(code), text)
                break
        else:
            if method == "initialize":
                able = {"loadSession": "load" in WORDS}
                if "resume" in WORDS:
                    able["sessionCapabilities"] = {"resume": {}}
                version = 2 if "version-2" in WORDS else 1
                result(number, {"protocolVersion": version, "agentCapabilities": able})
            elif method == "authenticate":
                result(number, {})
            elif method == "session/new":
                count += 1
                servers[:] = params["mcpServers"]
                session = "same" if "same-id" in WORDS else f"s-{os.getpid()}-{count}"
                keep(session, [])
                result(number, {"sessionId": -1.5 if "bad-id" in WORDS else session})
            elif method in ("session/load", "session/resume"):
                session = params["sessionId"]
                if not os.path.exists(path(session)):
                    error(number, -32002, "Resource not found", {"uri": session})
                    continue
                if method == "session/load" and "answers-first" not in WORDS:
                    for text in talk(session):
                        chunk(session, text, "user_message_chunk")
                        chunk(session, "REPLAYED")
                result(number, None)
                if "answers-first" in WORDS:
                    # As Gemini CLI 0.61.0 does: the answer, and then the past.
                    for text in talk(session):
                        time.sleep(0.05)
                        chunk(session, text, "user_message_chunk")
                        chunk(session, "REPLAYED")
            elif method == "session/prompt":
                prompted(number, params)
    if "stays" in WORDS or "deaf" in WORDS:
        time.sleep(600)


main()
