"""Stand-ins for agent programs, which keep conversations and break them as the real ones do.

    python -m tests.standin.programs claude -p --output-format json --session-id UUID < prompt

What they print, how they exit and what they leave behind when they are killed was measured on the
released programs. Conversations are files below $STANDIN_HOME. What happens in a turn is said by
the file `do` in it, taken by the first turn that finds it:

    hang             say and keep what is said and kept by then, write the file `hanging`, and wait
    hang-early       the same, before anything is kept
    fail TEXT        fail with these words, in the program's own way
    answer-as ID     answer from another conversation
"""

import fcntl
import json
import os
import sys
import time
import uuid
from pathlib import Path

HOME = Path(os.environ.get("STANDIN_HOME", "."))
COST = 0.14
VERSIONS = {
    "claude": "2.1.332 (Claude Code)",
    "codex": "codex-cli 0.171.0",
    "gemini": "0.61.0",
    "qwen": "0.24.4",
    "opencode": "1.18.33",
    "pi": "1.6.0",
    "llm": "llm, version 0.36",
}


def say(data):
    print(json.dumps(data), flush=True)


def end(code, text=""):
    if text:
        print(text, file=sys.stderr)
    sys.exit(code)


def after(args, *names):
    """The word after one of *names*, or None."""
    return next((args[args.index(name) + 1] for name in names if name in args), None)


class Program:
    """One turn of one program."""

    def __init__(self, name, args):
        self.name, self.args = name, args
        (HOME / name).mkdir(parents=True, exist_ok=True)
        self.prompt = sys.stdin.read()
        self.do, _, self.more = self.order().partition(" ")

    def order(self):
        path = HOME / "do"
        try:
            order = path.read_text()
        except FileNotFoundError:
            return ""
        path.unlink()
        return order

    def file(self, native):
        return HOME / self.name / native

    def known(self, native):
        return self.file(native).exists()

    def keep(self, native, prompt):
        with self.file(native).open("a") as file:
            file.write(json.dumps(prompt) + "\n")

    def turns(self, native):
        return self.file(native).read_text().splitlines()

    def hang(self, early=False):
        if self.do == ("hang-early" if early else "hang"):
            (HOME / "hanging").touch()
            time.sleep(3600)

    def asked(self, first, later, *, taken, unknown, code):
        """The id of the conversation, new or resumed, as its words say."""
        new, old = after(self.args, first), after(self.args, later)
        if new is not None and self.known(new):
            end(code, taken.format(new))
        if new is None and not self.known(old):
            end(code, unknown.format(old))
        return new or old

    def answer(self, native):
        """What is answered: the prompts of this conversation so far; and from which one."""
        if self.do == "answer-as":
            native = self.more
        return native, " | ".join(json.loads(line).strip() for line in self.turns(native))


def claude(p):
    words = {"taken": "Error: Session ID {} is already in use.", "code": 1}
    native = p.asked(
        "--session-id", "--resume", unknown="No conversation found with session ID: {}", **words
    )
    p.hang(early=True)
    p.keep(native, p.prompt)
    p.hang()
    if p.do == "answer-as":
        p.keep(p.more, p.prompt)
    said, reply = p.answer(native)
    failed = p.do == "fail"
    total = COST * len(p.turns(said))
    say(
        {
            "type": "result",
            "subtype": "success",
            "is_error": failed,
            "result": p.more if failed else reply,
            "session_id": said,
            "total_cost_usd": total,
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "permission_denials": [],
        }
    )
    end(1 if failed else 0)


def codex(p):
    native = after(p.args, "resume")
    if native is not None and not p.known(native):
        text = f"thread/resume failed: no rollout found for thread id {native} (code -32600)"
        end(1, f"Error: thread/resume: {text}\n\nStack backtrace:\n   0: <unknown>")
    native = native or str(uuid.uuid4())
    p.hang(early=True)
    p.file(native).touch()
    with p.file(native).open() as writer:
        try:
            fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            end(1, f"Error: thread {native} already has an active writer (code -32600)")
        say({"type": "thread.started", "thread_id": native})
        p.keep(native, p.prompt)
        p.hang()
        if p.do == "fail":
            say({"type": "turn.failed", "error": {"message": p.more}})
            end(1)
        say({"type": "item.completed", "item": {"type": "error", "message": "only a warning"}})
        _, reply = p.answer(native)
        say({"type": "item.completed", "item": {"type": "agent_message", "text": reply}})
        count = len(p.turns(native))
        say({"type": "turn.completed", "usage": {"input_tokens": 10 * count, "output_tokens": 5}})


def gemini(p):
    taken = p.file(f"{after(p.args, '--session-id')}.taken")
    if taken.exists():
        end(42, f'Error starting session: Session ID "{taken.stem}" already exists.')
    native = p.asked(
        "--session-id",
        "--resume",
        taken='Error starting session: Session ID "{}" already exists.',
        unknown='Error resuming session: Invalid session identifier "{}".',
        code=42,
    )
    # The id is taken before the conversation is there: killed in between, neither word helps.
    p.file(f"{native}.taken").touch()
    p.hang(early=True)
    p.keep(native, p.prompt)
    p.hang()
    if p.do == "fail":
        say({"session_id": native, "error": {"type": "Error", "message": p.more, "code": 41}})
        end(41)
    said, reply = p.answer(native)
    tokens = {"a": {"tokens": {"total": 9}}, "b": {"tokens": {"total": 6}}}
    say({"session_id": said, "response": reply, "stats": {"models": tokens}})


def qwen(p):
    native = p.asked(
        "--session-id",
        "--resume",
        taken="Error: Session Id {} already exists (active or archived).",
        unknown="No saved session found with ID {}.",
        code=1,
    )
    p.hang(early=True)
    say({"type": "system", "subtype": "init", "session_id": native})
    p.keep(native, p.prompt)
    p.hang()
    result = {"type": "result", "session_id": native, "is_error": p.do == "fail"}
    if p.do == "fail":
        say({**result, "error": {"message": p.more}})
        end(1)
    _, reply = p.answer(native)
    usage = {"total_tokens": 15 * len(p.turns(native))}
    say({**result, "result": reply, "usage": usage, "permission_denials": [{"tool_name": "shell"}]})


def opencode(p):
    native = after(p.args, "--session")
    if native is not None and not p.known(native):
        end(1, "\x1b[91m\x1b[1mError: \x1b[0mSession not found")
    native = native or f"ses_{uuid.uuid4().hex}"
    p.hang(early=True)
    p.keep(native, p.prompt)
    if p.do == "fail":
        say({"type": "error", "sessionID": native, "error": {"data": {"message": p.more}}})
        end(1)
    _, reply = p.answer(native)
    say({"type": "step_start", "sessionID": native, "part": {}})
    p.hang()
    for text in ("let me see", reply):
        say({"type": "text", "sessionID": native, "part": {"text": text}})
        part = {"tokens": {"total": 15}, "cost": COST / 2}
        say({"type": "step_finish", "sessionID": native, "part": part})


def pi(p):
    path = Path(after(p.args, "--session"))
    fresh = not path.exists()
    if fresh:
        path.write_text(json.dumps({"type": "session", "id": str(uuid.uuid4())}) + "\n")
    head, *prompts = path.read_text().splitlines()
    try:
        native = json.loads(head)["id"]
    except (ValueError, KeyError):
        end(1, f"Error: Session file is not a valid pi session: {path}")
    p.hang(early=True)
    say({"type": "session", "id": p.more if p.do == "answer-as" else native})
    with path.open("a") as file:
        file.write(json.dumps(p.prompt) + "\n")
    p.hang()
    cost = {"totalTokens": 15, "cost": {"total": COST}}
    broken = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": p.more}
    # A first try that failed and was repeated is no failure.
    say({"type": "agent_end", "messages": [broken], "willRetry": True})
    if p.do == "fail":
        say({"type": "agent_end", "messages": [broken], "willRetry": False})
        return
    texts = [json.loads(line).strip() for line in [*prompts, json.dumps(p.prompt)]]
    content = [{"type": "text", "text": " | ".join(texts)}, {"type": "toolCall", "name": "x"}]
    message = {"role": "assistant", "content": content, "usage": cost, "stopReason": "stop"}
    say({"type": "message_end", "message": {"role": "user", "content": [{"text": p.prompt}]}})
    say({"type": "message_end", "message": message})
    say({"type": "agent_end", "messages": [message], "willRetry": False})


def llm(p):
    path = Path(after(p.args, "--database"))
    prompts = path.read_text().splitlines() if path.exists() else []
    path.touch()
    p.hang(early=True)
    p.hang()
    if p.do == "fail":
        end(1, f"Error: {p.more}")
    prompts.append(json.dumps(p.prompt))
    print(" | ".join(json.loads(line).strip() for line in prompts))
    # What was answered is logged when it is whole.
    path.write_text("\n".join(prompts) + "\n")
    print("Token usage: 1,010 input, 5 output", file=sys.stderr)


def main():
    name, *args = sys.argv[1:]
    with (HOME / "asked").open("a") as file:
        file.write(json.dumps([name, *args]) + "\n")
    if "--version" in args:
        print(VERSIONS[name])
        return
    globals()[name](Program(name, args))


if __name__ == "__main__":
    main()
