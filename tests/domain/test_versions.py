"""Versions of other programs."""

import pytest

from routines.domain.versions import find_version, is_at_least, is_version


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("2.1.332 (Claude Code)\n", "2.1.332"),
        ("codex-cli 0.171.0\n", "0.171.0"),
        ("llm, version 0.36\n", "0.36"),
        ("v24.1.0-beta.2\n", "24.1.0-beta.2"),
        ("no version at all, since 1999\n", None),
        ("", None),
    ],
)
def test_the_version_is_found_in_what_a_program_prints(printed, version):
    assert find_version(printed) == version
    assert version is None or is_version(version)


@pytest.mark.parametrize(
    ("version", "least", "so"),
    [
        ("2.1.277", "2.1.277", True),
        ("2.1.276", "2.1.277", False),
        # By their numbers, not by their letters.
        ("2.1.1000", "2.1.277", True),
        ("2.2", "2.1.277", True),
        ("2.1", "2.1.277", False),
        ("2.1.277-beta.1", "2.1.277", True),
        # What is not known is taken for new.
        (None, "2.1.277", True),
        ("0.1", None, True),
    ],
)
def test_versions_are_compared_number_by_number(version, least, so):
    assert is_at_least(version, least) is so
