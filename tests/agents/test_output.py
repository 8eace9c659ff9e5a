"""Whatever a program prints is bounded, and its last words are kept."""

import os

import pytest

from routines.agents.output import HEAD_BYTES, TAIL_BYTES, Capture, bounded, open_captures
from routines.store import files


def feed(capture, data, step=64 * 1024):
    for at in range(0, len(data), step):
        capture.feed(data[at : at + step])
    return capture


def test_short_output_is_kept_as_it_is():
    capture = feed(Capture(), b"one\ntwo\n", step=3)

    assert capture.data() == b"one\ntwo\n"
    assert (capture.total, capture.dropped) == (8, 0)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 19, 20])
@pytest.mark.parametrize("step", [1, 3, 64])
def test_output_that_fits_head_and_tail_loses_nothing(size, step):
    data = bytes(65 + n for n in range(size))

    assert feed(Capture(head=10, tail=10), data, step).data() == data


@pytest.mark.parametrize("step", [1, 3, 7, 64])
def test_longer_output_keeps_head_and_tail_and_says_how_much_is_gone(step):
    data = b"".join(b"%03d\n" % n for n in range(100))

    capture = feed(Capture(head=8, tail=8), data, step)

    assert capture.data() == b"000\n001\n\n[... 384 bytes were dropped here ...]\n098\n099\n"
    assert (capture.total, capture.dropped) == (400, 384)


def test_a_gigabyte_costs_no_more_memory_than_head_and_tail():
    capture = Capture()
    block = b"x" * (1 << 20)

    for _ in range(1024):
        capture.feed(block)

    assert capture.total == 1 << 30
    assert len(capture.data()) < HEAD_BYTES + TAIL_BYTES + 100
    assert len(capture._head) + len(capture._tail) <= HEAD_BYTES + 2 * TAIL_BYTES


def test_bytes_that_are_no_text_are_shown_as_replacement_characters():
    capture = feed(Capture(), b"a\x00b\xff\xfec\n")

    assert capture.text() == "a\x00b\ufffd\ufffdc\n"


def test_a_character_cut_by_the_tail_is_left_out_and_not_mangled():
    capture = feed(Capture(head=0, tail=4), "äöüß€".encode())

    assert capture.text().endswith("...]\n€")


def test_a_character_that_arrives_in_two_pieces_is_one_character():
    assert feed(Capture(), "€€€".encode(), step=1).text() == "€€€"


@pytest.mark.parametrize(
    ("printed", "last"),
    [
        (b"", ""),
        (b"\n \n\t\n", ""),
        (b"one", "one"),
        (b"one\ntwo\n\n  \n", "two"),
        (b"progress 1%\rprogress 100%\n", "progress 100%"),
        # What would repaint a terminal or forge a line of a log (BR-52).
        (b"\x1b[2Jboom \x1b]0;title\x07\n", "\\x1b[2Jboom \\x1b]0;title\\x07"),
        ("fine\u2028ok\u202e".encode(), "fine ok\\x202e"),
        (b"a\x00b\xff", "a\\x00b\ufffd"),
    ],
)
def test_last_line_is_one_printable_line(printed, last):
    assert feed(Capture(), printed).last_line() == last


def test_last_lines_come_oldest_first():
    capture = feed(Capture(), b"".join(b"line %d\n\n" % n for n in range(10)))

    assert capture.last_lines(3) == ["line 7", "line 8", "line 9"]


def test_last_line_is_never_made_of_two_halves_with_a_gap_between():
    capture = feed(Capture(head=10, tail=10), b"A" * 10 + b"." * 100 + b"\nB")

    assert capture.last_line() == "B"
    assert feed(Capture(head=10, tail=10), b"A" * 10 + b"." * 100).last_line() == "." * 10


def test_one_line_of_50_mb_is_bounded_everywhere():
    capture = Capture()
    for _ in range(50):
        capture.feed(b"y" * 1_000_000)

    assert len(capture.data()) < HEAD_BYTES + TAIL_BYTES + 100
    assert len(capture.last_line()) <= 500


def test_head_is_on_disk_at_once_and_the_tail_when_the_stream_is_closed(tmp_path):
    path = tmp_path / "stdout.log"
    capture = Capture(str(path), head=4, tail=4)

    feed(capture, b"abcdefghijkl")
    assert path.read_bytes() == b"abcd"
    capture.close()
    capture.close()

    assert (
        path.read_bytes() == capture.data() == (b"abcd\n[... 4 bytes were dropped here ...]\nijkl")
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_left_by_an_attempt_that_never_started_is_replaced(tmp_path):
    (tmp_path / "stdout.log").write_bytes(b"old")

    out, err = open_captures(str(tmp_path))
    out.feed(b"new")
    out.close()
    err.close()

    assert (tmp_path / "stdout.log").read_bytes() == b"new"
    assert (tmp_path / "stderr.log").read_bytes() == b""


def test_a_full_disk_costs_the_file_and_not_the_turn(tmp_path, monkeypatch):
    capture = Capture(str(tmp_path / "stdout.log"))

    def full(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.calls, "write", full)
    capture.feed(b"hello")
    capture.feed(b" again")
    capture.close()

    assert capture.text() == "hello again"
    assert "No space left" in capture.fault


def test_a_folder_that_cannot_be_made_is_said_and_survived(tmp_path):
    (tmp_path / "file").write_text("")

    out, err = open_captures(str(tmp_path / "file" / "below"))
    out.feed(b"hello")
    out.close()
    err.close()

    assert out.text() == "hello"
    assert out.fault


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    out, err = open_captures(None)
    out.feed(b"hello")
    out.close()
    err.close()

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("text", ["", "short", "ä" * 100])
def test_bounded_leaves_short_text_alone(text):
    assert bounded(text, 400) == (text, False)


def test_bounded_cuts_long_text_in_the_middle():
    text, cut = bounded("a" * 50 + "b" * 50 + "c" * 50, 100)

    assert cut
    assert text == "a" * 50 + "\n[... 50 bytes were dropped here ...]\n" + "c" * 50
