"""What a function prints in its turn process is kept, masked, however it is printed."""

import os
import subprocess
import sys

import pytest

from routines.agents.output import HEAD_BYTES, TAIL_BYTES
from routines.agents.own_output import kept_output
from routines.domain.masking import Masker


@pytest.fixture
def kept(tmp_path):
    """Run a function with its output kept; return what is then in the two files."""
    masker = Masker(["sk-hidden-12345678"])

    def run(function):
        with kept_output(str(tmp_path / "out"), masker):
            function()
        return tuple(
            (tmp_path / "out" / name).read_bytes() for name in ("stdout.log", "stderr.log")
        )

    return run


def test_what_is_printed_by_print_by_a_descriptor_and_by_a_child_is_kept_in_its_order(kept):
    def prints():
        print("first")
        os.write(1, b"second\n")
        subprocess.run([sys.executable, "-c", "print('third')"], check=True)
        print("apart", file=sys.stderr)

    # pytest has put objects of its own in the place of these.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", os.fdopen(1, "w", closefd=False))
        patch.setattr(sys, "stderr", os.fdopen(2, "w", closefd=False))
        out, err = kept(prints)

    assert out == b"first\nsecond\nthird\n"
    assert err == b"apart\n"


def test_a_secret_is_masked_in_both(kept):
    def prints():
        os.write(1, b"it is sk-hidden-")
        os.write(1, b"12345678.\n")
        os.write(2, b"sk-hidden-12345678")

    assert kept(prints) == (b"it is ***.\n", b"***")


def test_both_descriptors_are_afterwards_what_they_were(kept):
    before = [os.fstat(fd).st_ino for fd in (1, 2)]
    kept(lambda: None)
    assert [os.fstat(fd).st_ino for fd in (1, 2)] == before


def test_both_are_given_back_after_an_exception_too(kept):
    before = os.fstat(1).st_ino

    def raises():
        raise ValueError

    with pytest.raises(ValueError):
        kept(raises)
    assert os.fstat(1).st_ino == before


def test_a_child_that_goes_on_holds_nothing_up(kept):
    children = []

    def leaves_a_child():
        os.write(1, b"said\n")
        children.append(subprocess.Popen(["sleep", "600"]))

    try:
        assert kept(leaves_a_child) == (b"said\n", b"")
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_a_function_that_closes_its_output_loses_only_what_it_prints_then(kept):
    def closes():
        os.write(1, b"said\n")
        os.close(1)

    assert kept(closes) == (b"said\n", b"")


def test_of_a_flood_head_and_tail_are_kept(kept):
    line = b"x" * 99 + b"\n"

    def floods():
        for _ in range(3 * (HEAD_BYTES + TAIL_BYTES) // len(line)):
            os.write(1, line)
        os.write(1, b"the last line\n")

    out, _ = kept(floods)
    assert out.startswith(line)
    assert out.endswith(b"the last line\n")
    assert len(out) < HEAD_BYTES + TAIL_BYTES + 1000
