"""What did a person probably mean where YAML gives up, and what is to be written instead?

What the parser says is for those who know YAML; what is said here names the line and the cure.
"""

import re
from typing import Any

from routines.config.tree import Node
from routines.errors import Problem

# The deepest value that a key can take has five levels; the rest is an accident or an attack.
DEEPEST = 20
TOO_DEEP = f"nested more than {DEEPEST} levels deep"
DIRECTIVE = ("a line can't begin with '%' here", "remove the line")

Place = tuple[int | None, int | None, str, str | None, str | None]

# `  - key: value`, as far as a line goes. Patterns are compiled where they are first used: most
# commands never meet a mistake.
_LINE = (
    r"""(?P<head>\s*(?:-\s+)*(?:(?P<key>[^\s:#'"\[\]{},&*!|>%@`][^:]*?)\s*:\s+)?)(?P<value>\S.*)"""
)
_INDICATORS = "*@&!%`"
# What is shown is shorter; a longer line would only make the patterns slow.
_LONGEST_LINE = 1000
_COMMENT = r"\s#.*$"
_TIGHT = r"(\s*[A-Za-z_]+):([^\s:/].*)"


def line_of(source: str, index: int) -> str:
    """Return the line with that index, as much of it as the patterns look at."""
    lines = source.split("\n", index + 1)
    return lines[index][:_LONGEST_LINE] if index < len(lines) else ""


def bare(mark: Any, sign: str) -> Place:
    """Return the problem of a sign of YAML's own at *mark*, where no more can be said."""
    message = f"a value can't begin with {sign} here: put it in quotes"
    return mark.line + 1, mark.column + 1, message, None, None


def begins_with(line: str, index: int, column: int) -> Place | None:
    """Return the problem of a value that begins with a sign of YAML's own, if it is that."""
    found = re.match(_LINE, line)
    if not found or found["value"][0] not in _INDICATORS or found.start("value") > column:
        return None
    message = (
        f"{_prefix(found)}a value can't begin with {found['value'][0]!r} here: put it in quotes"
    )
    return index + 1, found.start("value") + 1, message, _quoted_line(found), found["key"]


def _prefix(found: re.Match[str]) -> str:
    value = re.sub(_COMMENT, "", found["value"]).strip()
    return f"{found['key']}: {_cut(value)}   " if found["key"] else ""


def _quoted_line(found: re.Match[str]) -> str:
    """Return the line with its value in quotes: what to write instead."""
    return (found["head"] + quoted(re.sub(_COMMENT, "", found["value"]).strip())).strip()


def quoted(text: str) -> str:
    """Return a one-line *text* in the quotes that need no escapes, if there are such."""
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def in_quotes(source: str, node: Node) -> str | None:
    """Return the line of a value in brackets, with quotes around it: it may be meant as text."""
    found = re.match(_LINE, line_of(source, node.line - 1))
    return _quoted_line(found) if found and found["value"][0] in "{[" else None


def _cut(text: str, most: int = 40) -> str:
    text = text.replace("\t", "\\t")
    return text if len(text) <= most else text[: most - 3] + "..."


def named(name: str) -> str:
    """Return a key that a person wrote, in quotes and cut."""
    return repr(_cut(name))


def explain(path: str, source: str, error: Any) -> Problem:
    """Return what a person did wrong where the parser gave up."""
    line, column, message, cure, key = _diagnosis(source, error)
    return Problem(path, line, column, key, message, cure)


def _diagnosis(source: str, error: Any) -> Place:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return None, None, f"this is no YAML: {error.problem}", None, None
    context = error.context_mark or mark
    said = f"{error.context or ''} {error.problem or ''}".lower()
    line = line_of(source, mark.line)
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent and mark.column <= len(indent):
        cure = "indent with spaces"
        return mark.line + 1, indent.index("\t") + 1, "a tab: YAML indents with spaces", cure, None
    if line.startswith("%"):
        return mark.line + 1, 1, *DIRECTIVE, None
    if "document start" in said:
        return mark.line + 1, 1, "a second document begins here", "keep one a file", None
    if "quoted scalar" in said and "end of stream" in said:
        return _unclosed_quote(source, context)
    if "nesting" in said:
        return mark.line + 1, mark.column + 1, TOO_DEEP, None, None
    if "flow" in said:
        return _flow(source, context)
    if "escape" in said:
        message = "an unknown escape: in double quotes a \\ begins one"
        return mark.line + 1, mark.column + 1, message, "use single quotes, or write \\\\", None
    return (
        _of_value(line, mark, said)
        or _of_value(line_of(source, context.line), context, said)
        or _of_layout(source, mark, said)
        or (mark.line + 1, mark.column + 1, f"this is no YAML: {error.problem}", None, None)
    )


def _unclosed_quote(source: str, mark: Any) -> Place:
    found = re.match(_LINE, line_of(source, mark.line))
    key = found["key"] if found else None
    message = "the quote that opens here is never closed"
    return mark.line + 1, mark.column + 1, message, None, key


def _flow(source: str, mark: Any) -> Place:
    """Return what is wrong within brackets: where they open is what a person looks for."""
    line, column = _opening(source, mark)
    text = line_of(source, line)
    place = _begins_inside(text, line)
    if place is not None:
        return place
    found = re.match(_LINE, text)
    sign = text[column : column + 1]
    if found and found["key"] in _PROSE:
        message = f"{_prefix(found)}a text can't begin with {sign!r} here: put it in quotes"
        return line + 1, column + 1, message, _quoted_line(found), found["key"]
    what = "list" if sign == "[" else "mapping"
    key = found["key"] if found else None
    return line + 1, column + 1, f"the {what} that opens here is never closed", None, key


def _opening(source: str, mark: Any) -> tuple[int, int]:
    """Return line and column, from 0, of the last bracket at or before *mark*."""
    before = source[: mark.index + 1]
    at = max(before.rfind("["), before.rfind("{"), 0)
    return before.count("\n", 0, at), at - (before.rfind("\n", 0, at) + 1)


# Keys whose value is a sentence: a bracket at its beginning is text, not a list.
_PROSE = frozenset(["prompt", "description"])
_INSIDE = r"[\[,]\s*([*@&!%`][^,\]]*)"


def _begins_inside(line: str, index: int) -> Place | None:
    """Return the problem of an unquoted `*` or `@` within brackets."""
    found = re.search(_INSIDE, line)
    if not found:
        return None
    value = found[1].strip()
    message = f"{_cut(value)}   a value can't begin with {value[0]!r} here: put it in quotes"
    return index + 1, found.start(1) + 1, message, quoted(value), None


def _of_value(line: str, mark: Any, said: str) -> Place | None:
    """Return what is wrong with the value in *line*, if that is what it is."""
    found = re.match(_LINE, line)
    if not found:
        return None
    value, at = found["value"], (mark.line + 1, found.start("value") + 1)
    if value[0] in _INDICATORS:
        return begins_with(line, mark.line, len(line))
    inside = _begins_inside(line, mark.line) if "alias" in said or "token" in said else None
    if inside is not None:
        return inside
    message: str | None = None
    if value[0] in "[{\"'" and "expected" in said:
        message = "text after the closing sign: put the whole value in quotes"
    elif value[:2] in {"- ", "? "}:
        message = f"a value can't begin with {value[:2]!r} here: put it in quotes"
    elif value[0] in "|>" and "block scalar" in said:
        message = f"the text begins in the line below `{value[0]}`"
        return *at, _prefix(found) + message, "move it there, with two spaces before it", None
    elif "mapping values" in said and found["key"] and re.search(r":(\s|$)", value):
        message = "': ' inside an unquoted value: put it in quotes"
    if message is None:
        return None
    return *at, _prefix(found) + message, _quoted_line(found), found["key"]


def _of_layout(source: str, mark: Any, said: str) -> Place | None:
    """Return what is wrong with the lines around *mark*: indentation, a missing colon."""
    above = source.split("\n")[: mark.line]
    while above and not above[-1].strip():
        above.pop()
    before = above[-1] if above else ""
    line = line_of(source, mark.line)
    deeper = len(line) - len(line.lstrip()) > len(before) - len(before.lstrip())
    tight = re.match(_TIGHT, before)
    if tight and ("':'" in said or "mapping values" in said):
        cure = f"{tight[1].strip()}: {tight[2]}"
        return len(above), tight.end(1) + 1, "a space is missing after the colon", cure, None
    if "':'" in said or ("mapping values" in said and ":" not in before):
        return len(above), 1, f"{_cut(before.strip())!r} is no `key: value`", None, None
    if "mapping values" in said and deeper:
        message = "this line is indented more than the key above it"
        return mark.line + 1, mark.column + 1, message, "begin both in the same column", None
    if "key" in said or "block end" in said or "indicator" in said:
        message = "this line fits neither the keys nor the text above it"
        cure = "begin keys in one column; indent a text under `|` evenly"
        return mark.line + 1, mark.column + 1, message, cure, None
    return None
