"""An agent behind HTTP: what is sent, what comes back, and how it can go wrong on the way."""

import gzip
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import replace
from datetime import timedelta

import pytest

from routines.agents.base import Usage
from routines.agents.http_agent import run_http
from routines.agents.http_connection import proxy_for
from routines.agents.http_messages import idempotency_key
from routines.agents.output import HEAD_BYTES, TAIL_BYTES
from routines.domain.agent import AgentKind, AgentSpec, OutputFormat
from routines.domain.http_agent import Events, HttpSigns, HttpSpec
from routines.domain.masking import Masker
from routines.domain.outcome import Outcome, Reason
from tests.agents.servers import Server, events, head, saying
from tests.agents.stubs import HALF_AN_HOUR, LimitWhen, RealClock, make_turn

SECRET = "correct-horse-battery"
FASTAGENT = {
    "body": {"session": "{session}", "text": "{prompt}"},
    "events": Events(
        name="type", text={"text": "delta"}, end=("completed",), failed={"failed": "details"}
    ),
    "busy": HttpSigns(when=(("type", "failed"), ("code", "session_busy"))),
}


@pytest.fixture
def serve():
    made = []

    def start(answer):
        server = Server(answer)
        made.append(server)
        return server

    yield start
    for server in made:
        server.close()


@pytest.fixture
def ask(serve, tmp_path):
    """Put a turn to a server that answers so."""

    def call(answer=None, *, url=None, output="json", read=None, turn=None, env=None, **keys):
        server = None if answer is None else answer if isinstance(answer, Server) else serve(answer)
        known = {
            "masker",
            "clock",
            "timeout",
            "stop_requested",
            "model",
            "on_native_session",
            "folder",
        }
        arguments = {key: keys.pop(key) for key in known & keys.keys()}
        spec = AgentSpec(
            name="web",
            kind=AgentKind.HTTP,
            http=HttpSpec(url=url or server.url, **keys),
            output=OutputFormat(output),
            read={"reply": "reply"} if read is None else read,
        )
        arguments = {
            "clock": RealClock(),
            "timeout": timedelta(seconds=60),
            "folder": str(tmp_path / "output"),
            "env": env or {},
        } | arguments
        # What is handed to a turn process is read back there.
        return run_http(AgentSpec.from_json(spec.to_json()), turn or make_turn(), **arguments)

    return call


def verdict(result):
    return result.outcome, result.reason, result.detail


def end(result):
    return result.outcome, result.reason


BUSY = (None, Reason.BUSY)
NEVER = (None, Reason.NOT_STARTED)
FAILED = (Outcome.FAILED, Reason.AGENT)
BAD = (Outcome.FAILED, Reason.BAD_OUTPUT)
UNKNOWN = (Outcome.INTERRUPTED, Reason.OUTCOME_UNKNOWN)
NOT_FOUND = (Outcome.FAILED, Reason.NOT_FOUND)


# What is sent -----------------------------------------------------------------------------------


def test_a_turn_is_one_post_of_json_with_its_key(serve, ask):
    server = serve(saying({"reply": "hello"}))

    result = ask(server, model="small")

    assert verdict(result) == (Outcome.COMPLETED, None, "")
    assert result.reply.text == "hello"
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/turn")
    assert request.json == {
        "session": "routine:digest",
        "prompt": "say hello",
        "turn": "0f3c/digest@2026-07-01T09:00:00Z",
        "model": "small",
    }
    assert request.headers["idempotency-key"] == "0f3c/digest@2026-07-01T09:00:00Z"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"


def test_body_is_what_the_entry_says_and_what_is_not_known_is_left_out(serve, ask):
    server = serve(saying({"reply": "x"}))
    body = {
        "thread": "{native_session}",
        "input": {"messages": [{"role": "user", "content": "{prompt}"}], "model": "{model}"},
        "stream": False,
        "note": "{session} stays what it is within a text",
        "more": ["{model}", 1],
    }

    ask(server, body=body, read={"reply": "reply", "native_session": "id"})
    ask(server, body=body, turn=make_turn(native_session="n-1"), model="m")

    first, second = (request.json for request in server.requests)
    assert first == {
        "input": {"messages": [{"role": "user", "content": "say hello"}]},
        "stream": False,
        "note": "{session} stays what it is within a text",
        "more": [1],
    }
    assert (second["thread"], second["input"]["model"], second["more"]) == ("n-1", "m", ["m", 1])


@pytest.mark.parametrize(
    "prompt",
    ["{session} {prompt}", "{turn}", '"}\n\0\x1b[31m', "naïve \U0001f98a", "x" * 3_000_000],
)
def test_prompt_arrives_exactly_whatever_it_holds(serve, ask, prompt):
    server = serve(saying({"reply": "x"}))

    assert ask(server, turn=make_turn(prompt=prompt)).outcome is Outcome.COMPLETED
    assert server.requests[0].json["prompt"] == prompt


def test_half_a_character_is_said_and_nothing_is_sent(serve, ask):
    server = serve(saying({"reply": "x"}))

    result = ask(server, turn=make_turn(prompt="a\ud800"))

    assert end(result) == FAILED
    assert "half a character" in result.detail
    assert server.requests == []


def test_key_of_a_routine_in_any_script_fits_a_header_and_stays_another_for_each():
    assert idempotency_key("0f/tägliche runde@x") == "0f/t%C3%A4gliche%20runde@x"
    assert idempotency_key("a%20b") != idempotency_key("a b")
    assert idempotency_key("a\r\nHost: evil").isascii()
    assert "\n" not in idempotency_key("a\r\nHost: evil")


def test_header_values_come_from_the_environment_of_the_turn(serve, ask):
    server = serve(saying({"reply": "x"}))

    ask(server, headers=(("Authorization", "Bearer {env:TOKEN}"),), env={"TOKEN": f" {SECRET}\n"})

    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("env", "says"),
    [({}, "TOKEN is not set"), ({"TOKEN": ""}, "is not set"), ({"TOKEN": "a\nb: c"}, "no header")],
)
def test_header_that_cannot_be_made_is_not_found_and_nothing_is_sent(serve, ask, env, says):
    server = serve(saying({"reply": "x"}))

    result = ask(server, headers=(("Authorization", "Bearer {env:TOKEN}"),), env=env)

    assert end(result) == NOT_FOUND
    assert says in result.detail
    assert server.requests == []


def test_what_a_server_repeats_of_a_secret_is_masked_in_what_is_kept(ask, tmp_path):
    masker = Masker([SECRET])
    ask(saying({"reply": f"your key is {SECRET}"}), folder=str(tmp_path / "o"), masker=masker)

    assert (tmp_path / "o" / "stdout.log").read_text() == '{"reply": "your key is ***"}'


def test_secret_in_what_a_tool_that_was_denied_is_called_is_masked_before_the_cut(ask):
    denied = [{"name": f"{'x' * 30} {SECRET}"}]
    read = {"reply": "reply", "denied": "denied"}
    result = ask(saying({"reply": "ok", "denied": denied}), read=read, masker=Masker([SECRET]))

    assert result.reply.warnings == (f"denied: {'x' * 30} ***",)


# What comes back --------------------------------------------------------------------------------


def test_json_is_read_by_the_paths_of_the_entry(ask):
    answer = {
        "choices": [{"message": "hi"}],
        "id": "conv-7",
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "cost": 0.25,
    }
    read = {"reply": "choices.0.message", "native_session": "id", "tokens": "usage", "cost": "cost"}

    result = ask(saying(answer), read=read)

    assert (result.reply.text, result.reply.native_session) == ("hi", "conv-7")
    assert result.reply.usage == Usage(usd=0.25, tokens=7)


def test_text_is_the_whole_body_and_bytes_that_are_no_text_do_no_harm(ask):
    result = ask(saying(b"caf\xc3\xa9 \xff\x00"), output="text", read={})

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "café \ufffd\0")


def test_reply_that_is_missing_is_completed_and_not_clean(ask):
    result = ask(saying({"other": 1}))

    assert (result.outcome, result.reply.warnings) == (Outcome.COMPLETED, ("empty-reply",))


def test_failure_that_the_answer_declares_is_a_failure(ask):
    read = {"reply": "reply", "failed": "error", "cost": "cost"}
    result = ask(saying({"error": "no credit", "cost": 0.1}), read=read)

    assert verdict(result) == (*FAILED, "no credit")
    assert result.reply.usage == Usage(usd=0.1)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "is not JSON"),
        (b"", "is empty"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b'"' + b"x" * (9 << 20) + b'"', "more than 8 MiB"),
    ],
)
def test_answer_that_is_no_json_is_bad_output(ask, body, says):
    result = ask(saying(body))

    assert end(result) == BAD
    assert says in result.detail


def test_another_conversation_than_the_one_asked_for_is_a_failure(ask):
    keys = {
        "body": {"thread": "{native_session}", "text": "{prompt}"},
        "read": {"reply": "reply", "native_session": "id"},
        "turn": make_turn(native_session="n-1", first=False),
    }

    assert end(ask(saying({"reply": "x", "id": "n-1"}), **keys)) == (Outcome.COMPLETED, None)
    changed = ask(saying({"reply": "x", "id": "n-2"}), **keys)
    assert end(changed) == (Outcome.FAILED, Reason.SESSION_CHANGED)
    assert "n-1" in changed.detail
    assert "n-2" in changed.detail
    for value, shown in (("--evil\x1b", r"--evil\x1b"), (["a"], '["a"]')):
        unusable = ask(saying({"reply": "x", "id": value}), **keys)
        assert end(unusable) == (Outcome.FAILED, Reason.SESSION_CHANGED)
        assert f"answered in {shown}, an id that can't be used" in unusable.detail


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_answer_that_was_compressed_on_the_way_is_read(ask, coding):
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[coding](b'{"reply": "packed"}')

    assert ask(saying(packed, Content_Encoding=coding)).reply.text == "packed"


def test_answer_that_was_compressed_in_parts_is_read_whole(ask):
    packed = gzip.compress(b'{"reply": ') + gzip.compress(b'"whole"}') + bytes(9)

    assert ask(saying(packed, Content_Encoding="gzip")).reply.text == "whole"


@pytest.mark.parametrize("output", ["text", "json", "jsonl", "events"])
@pytest.mark.parametrize("kept", [12, -9, -4])
def test_compressed_answer_that_breaks_off_is_bad_output(ask, output, kept):
    whole = gzip.compress(b'data: {"reply": "half of it", "n": [' + b"1, " * 100)
    result = ask(saying(whole[:kept], Content_Encoding="gzip"), output=output)

    assert end(result) == BAD
    assert result.detail == "the compressed answer breaks off"


def test_compressed_answer_of_nothing_is_empty(ask):
    assert "empty" in ask(saying(b"", Content_Encoding="gzip")).detail


def test_gzip_bomb_is_bad_output_and_fills_no_memory(ask):
    bomb = gzip.compress(bytes(1 << 28))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = ask(saying(bomb, Content_Encoding="gzip"))

    assert end(result) == BAD
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
def test_compression_that_nobody_asked_for_is_bad_output(ask, coding):
    assert end(ask(saying(b"x", Content_Encoding=coding))) == BAD


def test_what_is_broken_in_its_compression_is_bad_output(ask):
    assert end(ask(saying(b"not gzip", Content_Encoding="gzip"))) == BAD


# Events -----------------------------------------------------------------------------------------


def test_pieces_of_events_are_joined_to_the_reply(ask):
    answer = events(
        b": ping\n\n",
        {"type": "thinking", "delta": "hm"},
        {"type": "text", "delta": "Hel"},
        {"type": "tool_started", "id": "1", "name": "bash", "args": {}},
        {"type": "text", "delta": "lo"},
        {"type": "completed"},
    )

    result = ask(answer, output="events", read={}, **FASTAGENT)

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "Hello")


def test_events_are_read_by_the_rules_of_their_format(ask):
    answer = events(
        b'\xef\xbb\xbfid: 7\r\nretry: 10\r\nevent: delta\r\ndata: {"t":\r\ndata:  "a"}\r\n\r\n',
        b'event:delta\rdata:{"t": "b"}\r\r',
        b'event: delta\nnonsense\ndata: {"t": "c"}\n\n',
        b"data: not of that name\n\n",
        b'event: done\ndata: {"session": "s-1"}\n\n',
        b'event: delta\ndata: {"t": "never"}\n\n',
    )
    mapping = Events(text={"delta": "t"}, end=("done",))

    result = ask(answer, output="events", read={"native_session": "session"}, events=mapping)

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "abc")
    assert result.reply.native_session == "s-1"


def test_the_word_done_may_end_a_stream_as_some_servers_have_it(ask):
    mapping = Events(text={"message": "d"}, end=("[DONE]",))

    result = ask(events({"d": "x"}, b"data: [DONE]\n\n"), output="events", read={}, events=mapping)

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "x")


def test_lines_of_json_are_a_stream_too(ask):
    body = b'{"t":"a"}\n\n{"t":"b"}\r\n{"t":"c","end":true}'

    result = ask(saying(body), output="jsonl", read={}, events=Events(text={"message": "t"}))

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "abc")


def test_whole_reply_at_the_end_stands_for_its_pieces(ask):
    mapping = Events(name="type", text={"text": "delta"}, end=("done",))
    answer = events({"type": "text", "delta": "par"}, {"type": "done", "reply": "whole"})

    assert ask(answer, output="events", events=mapping).reply.text == "whole"


def test_event_that_says_failed_is_a_failure_with_its_words(ask):
    answer = events(
        {"type": "text", "delta": "I will"},
        {"type": "failed", "details": "model is down", "retryable": True},
    )

    result = ask(answer, output="events", read={}, **FASTAGENT)

    assert verdict(result) == (*FAILED, "model is down")
    assert result.reply.text == "I will"


@pytest.mark.parametrize(
    "answer",
    [
        events({"type": "text", "delta": "par"}),
        events({"type": "text", "delta": "par"}, b'data: {"type": "completed"}'),
        events(),
        # The connection breaks in the middle.
        lambda request, connection: connection.sendall(
            head(Content_Type="text/event-stream", Transfer_Encoding="chunked") + b"5\r\ndata:"
        ),
    ],
)
def test_stream_without_its_last_event_is_an_unknown_outcome(ask, answer):
    assert end(ask(answer, output="events", read={}, **FASTAGENT)) == UNKNOWN


@pytest.mark.parametrize("body", [b"", b"data: {broken\n\n", b"nothing\n\n"])
def test_stream_of_nothing_is_bad_output_where_no_event_is_the_last(ask, body):
    result = ask(events(body), output="events", read={}, events=Events(text={"message": "t"}))

    assert end(result) == BAD


def test_event_of_fifty_megabytes_is_dropped_and_said(ask):
    def answer(request, connection):
        connection.sendall(head(Content_Type="text/event-stream") + b"data: ")
        for _ in range(50):
            connection.sendall(b"x" * (1 << 20))
        connection.sendall(b'\n\ndata: {"type": "text", "delta": "small"}\n\n')
        connection.sendall(b'data: {"type": "completed"}\n\n')

    result = ask(answer, output="events", read={}, **FASTAGENT)

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "small")
    assert result.reply.warnings == ("truncated",)


def pieces_around(lost):
    return events(
        {"type": "text", "delta": "START"},
        lost,
        {"type": "text", "delta": "END"},
        {"type": "completed"},
    )


def test_piece_that_cannot_be_read_is_never_missing_in_silence(ask):
    lost = b'data: {"type": "text", "delta": "LOST \n\n'
    result = ask(pieces_around(lost), output="events", read={}, **FASTAGENT)

    assert (result.outcome, result.reply.text) == (Outcome.COMPLETED, "STARTEND")
    assert result.reply.warnings == ("truncated",)

    body = b'{"t":"a"}\n{"t":"LOST\n{"t":"b"}'
    result = ask(saying(body), output="jsonl", read={}, events=Events(text={"message": "t"}))

    assert (result.reply.text, result.reply.warnings) == ("ab", ("truncated",))


def test_event_in_which_a_stream_without_a_last_one_breaks_off_is_said(ask):
    mapping = Events(text={"message": "t"})
    answers = {
        b'data: {"t": "lost"}\n': ("truncated",),
        b'data: {"t": "lo': ("truncated",),
        b": pi": (),
        b"event: x\n": (),
    }

    for rest, warnings in answers.items():
        result = ask(events({"t": "a"}, rest), output="events", read={}, events=mapping)
        assert (result.reply.text, result.reply.warnings) == ("a", warnings)


@pytest.mark.parametrize("notice", [b"data: ping\n\n", b"data: [DONE]\n\n", b"data: \xff\n\n"])
def test_notice_among_the_events_is_no_loss(ask, notice):
    result = ask(pieces_around(notice), output="events", read={}, **FASTAGENT)

    assert (result.reply.text, result.reply.warnings) == ("STARTEND", ())


def test_loss_and_length_are_one_warning(ask):
    pieces = [{"type": "text", "delta": "x" * 100_000}] * 40
    answer = events(*pieces, b'data: {"type\n\n', {"type": "completed"})

    result = ask(answer, output="events", read={}, **FASTAGENT)

    assert result.reply.warnings == ("truncated",)


def test_reply_of_a_stream_is_bounded(ask):
    pieces = [{"type": "text", "delta": "x" * 100_000}] * 40
    result = ask(events(*pieces, {"type": "completed"}), output="events", read={}, **FASTAGENT)

    assert len(result.reply.text) < HEAD_BYTES + TAIL_BYTES + 100
    assert result.reply.warnings == ("truncated",)


def test_stream_is_left_at_its_last_event_and_not_waited_out(serve, ask):
    def answer(request, connection):
        connection.sendall(head(Content_Type="text/event-stream"))
        connection.sendall(b'data: {"type": "completed"}\n\n')
        server.until_closed(connection)

    server = serve(answer)
    assert ask(server, output="events", read={}, **FASTAGENT).outcome is Outcome.COMPLETED
    assert server.closed.wait(20)


def test_id_of_the_conversation_is_told_while_the_turn_goes_on(serve, ask):
    told = threading.Event()
    ids = []

    def answer(request, connection):
        connection.sendall(head(Content_Type="text/event-stream"))
        connection.sendall(b'data: {"type": "start", "session": "n-9"}\n\n')
        told.wait(20)
        connection.sendall(b'data: {"type": "completed"}\n\n')

    def tell(native_session):
        ids.append(native_session)
        told.set()

    result = ask(
        serve(answer),
        output="events",
        read={"native_session": "session"},
        on_native_session=tell,
        **FASTAGENT,
    )

    assert result.outcome is Outcome.COMPLETED
    assert ids == ["n-9"]


# Busy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"code": "session_busy"},
        {"error": {"code": "session-busy", "message": "wait"}},
        {"error": {"type": "Conversation Busy"}},
        {"error": "session_busy"},
        {"reason": "busy"},
        {"detail": {"code": "session.busy"}},
    ],
)
@pytest.mark.parametrize("status", ["409 Conflict", "423 Locked", "429 Too Many Requests"])
def test_these_statuses_with_a_busy_code_are_busy(ask, status, body):
    assert end(ask(saying(body, status))) == BUSY


@pytest.mark.parametrize(
    ("status", "body"),
    [
        # Not the status alone: a spent quota, a key used twice, a locked file.
        ("409 Conflict", {"code": "duplicate_key"}),
        ("429 Too Many Requests", {"error": {"code": "rate_limit", "message": "busy"}}),
        ("423 Locked", b"locked"),
        ("409 Conflict", b""),
        # Not the code alone.
        ("503 Service Unavailable", {"code": "session_busy"}),
        ("400 Bad Request", {"code": "session_busy"}),
    ],
)
def test_anything_else_has_started_and_is_not_tried_again(ask, status, body):
    result = ask(saying(body, status))

    assert end(result) == FAILED
    assert result.detail.startswith(f"HTTP {status}")


def test_status_that_the_entry_names_is_busy_by_itself(ask):
    assert (
        end(ask(saying(b"wait", "503 Service Unavailable"), busy=HttpSigns(status=(503,)))) == BUSY
    )
    assert (
        end(ask(saying({"code": "busy"}, "409 Conflict"), busy=HttpSigns(status=(503,)))) == FAILED
    )


def test_value_at_a_path_is_busy_whatever_the_status(ask):
    when = HttpSigns(when=(("ran", "false"), ("reason", "busy")))

    busy = ask(saying({"ran": False, "reason": "busy"}), busy=when)
    assert end(busy) == BUSY
    assert busy.detail == "busy"
    assert end(ask(saying({"ran": False, "reason": "busy"}, "409 X"), busy=when)) == BUSY
    assert end(ask(saying({"ran": True, "reply": "x"}), busy=when)) == (
        Outcome.COMPLETED,
        None,
    )
    # All that is listed has to be so.
    assert end(ask(saying({"ran": False, "reason": "off"}), busy=when))[0] is Outcome.COMPLETED
    assert (
        end(
            ask(
                saying({"ran": False, "reason": "busy"}, "503 X"),
                busy=replace(when, status=(409,)),
            )
        )
        == FAILED
    )


def test_answer_that_the_entry_names_never_started_or_lost_its_conversation(ask):
    signs = {
        "not_started": HttpSigns(status=(503,)),
        "lost": HttpSigns(status=(404,), when=(("error", "no such thread"),)),
    }
    gone = saying({"error": "no such thread"}, "404 Not Found")

    assert end(ask(saying(b"starting", "503 Service Unavailable"), **signs)) == NEVER
    assert end(ask(saying(b"x", "502 Bad Gateway"), **signs)) == FAILED
    later = make_turn(first=False, native_session="n-1")
    assert end(ask(gone, turn=later, **signs)) == (None, Reason.SESSION_LOST)
    assert end(ask(saying(b"x", "404 Not Found"), turn=later, **signs)) == FAILED
    # A conversation that was never begun can't be gone.
    assert end(ask(gone, **signs)) == FAILED


def test_event_that_says_busy_is_busy_before_anything_else_was_said_and_failed_after(ask):
    busy = {"type": "failed", "details": "in use", "retryable": True, "code": "session_busy"}

    first = ask(events(b": ping\n\n", busy), output="events", read={}, **FASTAGENT)
    assert verdict(first) == (*BUSY, "in use")
    later = ask(
        events({"type": "thinking", "delta": "hm"}, busy), output="events", read={}, **FASTAGENT
    )
    assert verdict(later) == (*FAILED, "after it had begun: in use")


# What never started -----------------------------------------------------------------------------


@pytest.fixture
def nobody():
    """An address of this machine where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


def test_refused_connection_never_started(ask, nobody):
    result = ask(url=nobody)

    assert end(result) == NEVER
    assert nobody.rstrip("/") in result.detail


def test_name_that_is_not_there_never_started(ask):
    assert end(ask(url="http://no-such-host.invalid/")) == NEVER


def test_server_without_a_handshake_never_started(serve, ask):
    server = serve(saying({"reply": "x"}))

    assert end(ask(url=server.url.replace("http:", "https:"))) == NEVER


def test_connection_that_is_not_answered_in_time_never_started(ask):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        # It takes no more: the kernel lets the next one wait.
        spares = []
        for _ in range(3):
            spare = socket.socket()
            spare.setblocking(False)
            spare.connect_ex(full.getsockname())
            spares.append(spare)
        result = ask(
            url=f"http://127.0.0.1:{full.getsockname()[1]}/", connect=timedelta(seconds=0.3)
        )
        for spare in spares:
            spare.close()

    assert end(result) == NEVER
    assert "no connection within" in result.detail


def test_certificate_of_a_stranger_is_refused_before_anything_is_sent(serve, ask, tmp_path):
    server = tls_server(tmp_path)

    refused = ask(url=server.url)
    assert end(refused) == NEVER
    assert "certificate" in refused.detail.lower()
    assert server.requests == []

    trusted = ask(url=server.url, env={"SSL_CERT_FILE": str(tmp_path / "cert.pem")})
    assert end(trusted) == (Outcome.COMPLETED, None)
    server.close()


def tls_server(folder):
    made = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*made)

    class Tls(Server):
        url = property(lambda self: f"https://127.0.0.1:{self.port}/turn")

        def _serve(self, connection):
            try:
                wrapped = context.wrap_socket(connection, server_side=True)
            except OSError:
                return
            super()._serve(wrapped)

    return Tls(saying({"reply": "x"}))


def make_certificate(folder):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


# What was sent and lost -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        lambda request, connection: None,
        lambda request, connection: connection.sendall(b"HTTP/1.1 200"),
        lambda request, connection: connection.sendall(head(Content_Length=100) + b'{"reply"'),
        lambda request, connection: connection.sendall(b"garbage\r\n\r\n"),
        lambda request, connection: connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        ),
    ],
    ids=["closed", "half a head", "half a body", "no http", "reset"],
)
def test_lost_answer_is_an_unknown_outcome_and_is_sent_once(serve, ask, answer):
    server = serve(answer)

    assert end(ask(server)) == UNKNOWN
    assert len(server.requests) == 1


def test_silence_beyond_its_limit_is_an_unknown_outcome(serve, ask):
    server = serve(lambda request, connection: server.until_closed(connection))

    result = ask(server, silence=timedelta(seconds=0.3))

    assert end(result) == UNKNOWN
    assert "nothing came for" in result.detail
    assert server.closed.wait(20)


def test_comments_are_life_and_end_no_turn(ask):
    def answer(request, connection):
        connection.sendall(head(Content_Type="text/event-stream"))
        for _ in range(25):
            connection.sendall(b": ping\n\n")
            time.sleep(0.1)
        connection.sendall(b'data: {"type": "completed"}\n\n')

    result = ask(answer, output="events", read={}, silence=timedelta(seconds=2), **FASTAGENT)

    assert result.outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("output", "drip"),
    [("json", b"x"), ("events", b": ping\n\n"), ("text", b"x"), ("events", b"d")],
)
def test_endless_answer_ends_at_the_limit_of_the_turn(serve, ask, tmp_path, output, drip):
    def answer(request, connection):
        connection.sendall(head())
        (tmp_path / "ready").write_text("")
        while True:
            connection.sendall(drip)
            time.sleep(0.01)

    keys = FASTAGENT if output == "events" else {}
    clock = LimitWhen(tmp_path / "ready")
    result = ask(answer, output=output, clock=clock, timeout=HALF_AN_HOUR, **keys)

    assert end(result) == (Outcome.TIMED_OUT, Reason.TIMEOUT)


def test_flood_of_two_hundred_megabytes_is_read_without_keeping_it(ask, tmp_path):
    def answer(request, connection):
        connection.sendall(head())
        block = b"x" * (1 << 20)
        for _ in range(200):
            connection.sendall(block)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = ask(answer, output="text", read={})

    assert result.outcome is Outcome.COMPLETED
    assert result.reply.warnings == ("truncated",)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    assert os.path.getsize(tmp_path / "output" / "stdout.log") < HEAD_BYTES + TAIL_BYTES + 100


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("cancel", (Outcome.CANCELLED, Reason.PERSON)),
        ("stop", (Outcome.INTERRUPTED, Reason.STOPPED)),
        ("supersede", (Outcome.SUPERSEDED, None)),
    ],
)
def test_turn_that_is_ended_closes_its_connection_and_keeps_what_it_said(
    serve, ask, word, expected
):
    said = threading.Event()

    def answer(request, connection):
        connection.sendall(head(Content_Type="text/event-stream"))
        connection.sendall(b'data: {"type": "text", "delta": "so far"}\n\n')
        said.set()
        server.until_closed(connection)

    server = serve(answer)
    asked = []

    def stop():
        asked.append(said.is_set())
        # A few times more, so that what was said has been read.
        return word if asked.count(True) > 4 else None

    result = ask(server, output="events", read={}, stop_requested=stop, **FASTAGENT)

    assert end(result) == expected
    assert result.reply.text == "so far"
    assert server.closed.wait(20)


# Where it leads ---------------------------------------------------------------------------------


def to(location, status="307 Temporary Redirect"):
    return saying(b"", status, Location=location)


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
def test_redirect_on_the_same_host_takes_the_whole_request_along(serve, ask, status):
    def answer(request, connection):
        again = saying({"reply": "there"}) if request.path == "/other" else to("/other", status)
        return again(request, connection)

    server = serve(answer)

    assert ask(server).reply.text == "there"
    first, second = server.requests
    assert first.raw == second.raw
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_redirect_to_another_host_is_not_followed(serve, ask):
    other = serve(saying({"reply": "stolen"}))

    places = {
        other.url: "port",
        f"//127.0.0.1:{other.port}/": "port",
        "http://example.com/": "host",
        "ftp://x/": "host",
        "ftp://127.0.0.1/": "scheme",
    }
    for location, differs in places.items():
        result = ask(
            to(location), headers=(("Authorization", "Bearer {env:T}"),), env={"T": SECRET}
        )
        assert end(result) == FAILED
        assert result.detail.endswith(f": another {differs} is not followed")
    assert other.requests == []


def test_redirect_that_says_no_place_is_said_as_that(ask):
    result = ask(saying(b"", "307 Temporary Redirect"))

    assert verdict(result) == (
        *FAILED,
        "HTTP 307: redirected without a Location that says where to",
    )


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "300 Choices"])
def test_redirect_that_would_make_a_get_of_it_is_not_followed(serve, ask, status):
    server = serve(to("/other", status))

    assert end(ask(server)) == FAILED
    assert len(server.requests) == 1


def test_redirect_from_https_to_http_is_not_followed(tmp_path, ask, serve):
    plain = serve(saying({"reply": "seen by all"}))
    server = tls_server(tmp_path)
    server.answer = to(plain.url.replace("127.0.0.1", "127.0.0.1"))

    result = ask(url=server.url, env={"SSL_CERT_FILE": str(tmp_path / "cert.pem")})

    assert end(result) == FAILED
    assert plain.requests == []
    server.close()


def test_redirects_in_a_circle_end(serve, ask):
    server = serve(to("/turn"))

    assert end(ask(server)) == FAILED
    assert len(server.requests) == 4


# Proxies ----------------------------------------------------------------------------------------


def test_proxy_of_the_turns_environment_is_asked_and_never_for_this_machine(serve, ask):
    proxy = serve(saying({"reply": "by proxy"}))
    env = {"HTTP_PROXY": f"http://127.0.0.1:{proxy.port}"}

    assert ask(url="http://agent.example/turn", env=env).reply.text == "by proxy"
    assert proxy.requests[0].path == "http://agent.example/turn"
    assert ask(saying({"reply": "direct"}), env=env).reply.text == "direct"
    assert len(proxy.requests) == 1


@pytest.mark.parametrize(
    ("url", "env", "expected"),
    [
        ("http://a.example/", {}, None),
        ("http://a.example/", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("http://a.example/", {"http_proxy": "p:1"}, "http://p:1"),
        ("https://a.example/", {"http_proxy": "http://p:1"}, None),
        ("https://a.example/", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        (
            "http://a.example/",
            {"HTTP_PROXY": "http://p:1", "http_proxy": "http://q:1"},
            "http://q:1",
        ),
        ("http://a.example/", {"HTTP_PROXY": "http://p:1", "NO_PROXY": "b.org, .example"}, None),
        ("http://a.example/", {"HTTP_PROXY": "http://p:1", "no_proxy": "*"}, None),
        (
            "http://a.example:8080/",
            {"HTTP_PROXY": "http://p:1", "no_proxy": "a.example:8080"},
            None,
        ),
        ("http://an.example/", {"HTTP_PROXY": "http://p:1", "no_proxy": "n.example"}, "http://p:1"),
        ("http://10.1.2.3/", {"HTTP_PROXY": "http://p:1", "no_proxy": "10.0.0.0/8"}, None),
        ("http://localhost:80/", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://127.1.2.3/", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://[::1]/", {"HTTP_PROXY": "http://p:1"}, None),
    ],
)
def test_proxy_is_the_one_that_the_environment_names(url, env, expected):
    assert proxy_for(url, env) == expected


def test_library_that_is_missing_is_named_with_how_to_get_it(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "routines.agents.http_connection", None)
    result = ask(url="http://127.0.0.1:1/")

    assert end(result) == NOT_FOUND
    assert "agent-routines[http]" in result.detail
