"""Server-sent events and JSON lines: however a stream is cut, it says the same."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from routines.agents.event_stream import Event, JsonLines, ServerSentEvents

PIECES = st.lists(
    st.sampled_from(
        [b"data: a", b"data:", b"data", b"event: x", b"event:", b": ping", b"id: 1", b"junk",
         b"\n", b"\r", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"\xff", b'data: {"a": 1}']
    ),
    max_size=30,
)  # fmt: skip


def events_of(parser, parts):
    found = [event for part in parts for event in parser.feed(part)]
    return [*found, *parser.end()]


@settings(deadline=None)
@given(PIECES, st.integers(1, 3))
@example([b"data: a", b"\r\n", b"data: a", b"\r\n", b"\r\n"], 1)
@example([b"data: a", b"\r", b"\n\n"], 1)
def test_a_stream_says_the_same_however_it_is_cut(pieces, size):
    whole = b"".join(pieces)
    parts = [whole[start : start + size] for start in range(0, len(whole), size)]

    for kind in (ServerSentEvents, JsonLines):
        assert events_of(kind(), parts) == events_of(kind(), [whole])


def test_lines_end_as_the_format_says():
    stream = b"event: a\rdata: 1\r\rdata: 2\n\ndata: 3\r\n\r\ndata: never"

    assert events_of(ServerSentEvents(), [stream]) == [
        Event("a", b"1"),
        Event("message", b"2"),
        Event("message", b"3"),
    ]


def test_what_is_too_long_is_dropped_and_counted_and_the_next_is_whole():
    parser = ServerSentEvents(most=10)
    stream = (
        b"data: " + b"x" * 50 + b"\n\ndata: a\ndata: b\n\ndata: 12345\ndata: 678901\n\ndata: c\n\n"
    )

    assert events_of(parser, [stream]) == [Event("message", b"a\nb"), Event("message", b"c")]
    assert parser.too_long == 2
    lines = JsonLines(most=10)
    assert events_of(lines, [b"x" * 50 + b"\n[1]\n", b"y" * 50]) == [Event("message", b"[1]")]
    assert lines.too_long == 2
