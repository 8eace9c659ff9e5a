"""A stand-in for a server of Anthropic's Messages API: `python -m tests.standin.messages`.

Answers every request with a short text that says how many user messages it carried, after
`--delay` seconds, and appends each request's user texts to `--log` as one JSON line. Costs
nothing, needs no key, listens on 127.0.0.1 alone.
"""

import argparse
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def user_texts(messages):
    texts = []
    for message in messages:
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        else:
            texts += [part.get("text", "") for part in content if part.get("type") == "text"]
    return texts


def events(model, text):
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {
        "id": "msg_standin",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield "message_start", {"message": message}
    yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
    yield "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}}
    yield "content_block_stop", {"index": 0}
    yield (
        "message_delta",
        {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
    )
    yield "message_stop", {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.path.split("?")[0].endswith("count_tokens"):
            return self.answer({"input_tokens": 10})
        texts = user_texts(body.get("messages", []))
        with open(self.server.log, "a", encoding="utf-8") as log:
            log.write(json.dumps({"path": self.path, "texts": texts}) + "\n")
        time.sleep(self.server.delay)
        text = f"I was given {len(texts)} texts."
        model = body.get("model", "standin")
        if not body.get("stream"):
            message = {
                "id": "msg_standin",
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 10, "output_tokens": 5},
            }
            return self.answer(message)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events(model, text):
            self.wfile.write(
                f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()
            )
        self.close_connection = True
        return None

    def do_GET(self):
        self.answer({"data": []})

    def answer(self, data):
        raw = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--log", required=True)
    args = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    server.log, server.delay = args.log, args.delay
    print(server.server_address[1], flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
