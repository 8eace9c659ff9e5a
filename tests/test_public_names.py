"""The public interface: every name is there, says what it is, and costs nothing until it is used."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import routines
import routines.errors
import routines.testing

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/python-api.md"
TESTING = ["FakeClock", "RecordingAgent"]
NAMES = [name for name in routines.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_can_be_imported_and_has_a_docstring(name):
    found = getattr(routines, name)

    # An enum or a dataclass without one of its own would show the text of its kind.
    assert found.__doc__
    assert not found.__doc__.startswith(f"{name}(")


@pytest.mark.parametrize("name", [*NAMES, *TESTING])
def test_every_public_name_is_on_its_page(name):
    assert re.search(rf"\b{name}\b", PAGE.read_text())


@pytest.mark.parametrize(
    "found",
    [
        *(getattr(routines, name) for name in NAMES if inspect.isclass(getattr(routines, name))),
        *(getattr(routines.testing, name) for name in TESTING),
    ],
    ids=lambda found: found.__name__,
)
def test_every_public_method_has_a_docstring(found):
    for name, method in vars(found).items():
        if not name.startswith("_") and inspect.isroutine(method):
            assert inspect.getdoc(method), f"{found.__name__}.{name}"


def raised_by_public_calls():
    """Each error that the docstring of a public call names, with the call."""
    for name in NAMES:
        found = getattr(routines, name)
        kinds = found.__mro__ if inspect.isclass(found) else ()
        members = [one for kind in kinds for one in vars(kind).items() if one[0][0] != "_"]
        if inspect.ismodule(found):
            members = [one for one in vars(found).items() if inspect.isfunction(one[1])]
        for where, one in [(name, found), *((f"{name}.{word}", one) for word, one in members)]:
            _, _, raises = (inspect.getdoc(one) or "").partition("Raises:\n")
            for line in raises.partition("\n\n")[0].splitlines():
                for word in re.findall(r"\b[A-Z]\w+", line.partition(":")[0]):
                    if hasattr(routines.errors, word):
                        yield word, where


def test_every_error_that_a_public_call_raises_can_be_imported_like_the_call():
    raised = dict(raised_by_public_calls())

    assert {"UnknownJob", "InvalidJob", "WakeupRefused", "InvalidSchedule"} <= set(raised)
    assert {word: where for word, where in raised.items() if word not in NAMES} == {}


def test_names_that_are_not_there_are_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Engin'"):
        routines.Engin  # noqa: B018


def test_the_list_of_names_is_sorted_and_complete():
    assert sorted(routines.__all__) == sorted(set(routines.__all__))
    assert dir(routines) == sorted(routines.__all__)


def test_importing_the_package_imports_nothing_else():
    script = "import sys, routines; print([m for m in sys.modules if m.startswith('routines.')])"

    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert ended.stdout.strip() == "[]"


def test_the_version_is_that_of_the_distribution():
    from routines.version import VERSION

    assert routines.__version__ == VERSION


def methods_of_the_engine():
    table = PAGE.read_text().split("\n## Engine\n", 1)[1].split("\n## ", 1)[0]
    return {
        word
        for cell in re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
        for word in re.findall(r"`(\w+)", cell)
    }


def test_the_page_names_the_methods_that_an_engine_has():
    named = methods_of_the_engine()

    assert len(named) > 10
    for name in named:
        assert hasattr(routines.Engine, name), name
    arguments = re.search(r"`Engine\(state, \*, ([^)]+)\)`", PAGE.read_text())
    assert arguments is not None
    assert arguments[1].split(", ") == [
        name
        for name, one in inspect.signature(routines.Engine).parameters.items()
        if one.kind is inspect.Parameter.KEYWORD_ONLY
    ]


def test_the_page_names_the_fields_of_a_turn():
    text = PAGE.read_text()

    for kind in (routines.Turn, routines.Reply):
        for name in kind.__dataclass_fields__:
            assert f"`{name}`" in text, name
