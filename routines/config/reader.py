"""YAML as a tree of text with places: the one module that knows which YAML library is in use.

PyYAML splits the bytes into events; what they mean is decided here. A scalar stays the text it
was written as (`12:30`, `010`, `no`, `2026-11-01`): the key that holds it says what it is, so
nothing is guessed. What YAML allows and a person never means in these files is refused with its
place: duplicate keys, aliases, anchors, tags, merge keys, a second document.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from routines.errors import Problem

# A prompt may have 16 MiB and is indented in its file.
LARGEST_FILE = 40 * 2**20
# Without libyaml a MiB takes seconds, and every command waits for them.
LARGEST_FILE_SLOWLY = 2 * 2**20
# The deepest value that a key can take has five levels; the rest is an accident or an attack.
DEEPEST = 20
_TOO_DEEP = f"nested more than {DEEPEST} levels deep"

_NOTHING = frozenset(["", "~", "null", "Null", "NULL"])


class Scalar:
    """A single value: the text, and whether it stood without quotes.

    Attributes:
        text: As written, quotes and escapes resolved.
        plain: It had no quotes and was no block of text.
        line, column: Where it begins, counted from 1.
        end: Where it ends, as an offset into the text of the file.
    """

    __slots__ = ("column", "end", "line", "plain", "text")

    def __init__(self, text: str, line: int, column: int, *, plain: bool, end: int) -> None:
        self.text = text
        self.line = line
        self.column = column
        self.plain = plain
        self.end = end

    @property
    def nothing(self) -> bool:
        """Whether no value was written: an empty place, `null` or `~` without quotes."""
        return self.plain and self.text in _NOTHING


class Sequence:
    """A list of values."""

    __slots__ = ("column", "items", "line")

    def __init__(self, line: int, column: int) -> None:
        self.items: list[Node] = []
        self.line = line
        self.column = column


class Mapping:
    """Values by key; each key keeps its own place."""

    __slots__ = ("column", "entries", "line")

    def __init__(self, line: int, column: int) -> None:
        self.entries: dict[str, tuple[Scalar, Node]] = {}
        self.line = line
        self.column = column


class Unusable:
    """Stands where something was refused, so that the rest of the file is still checked."""

    __slots__ = ("column", "line")

    def __init__(self, line: int, column: int) -> None:
        self.line = line
        self.column = column


Node = Scalar | Sequence | Mapping | Unusable


@dataclass(frozen=True, slots=True)
class Document:
    """What one file holds.

    Attributes:
        path: The file, as problems name it.
        source: Its text.
        root: Its keys; None if nothing could be made of it.
        problems: What was refused on the way.
    """

    path: str
    source: str
    root: Mapping | None
    problems: tuple[Problem, ...]

    def comment_after(self, node: Scalar) -> str | None:
        """Return the comment that ends the line of an unquoted *node*, or None."""
        line = self.source[node.end :].split("\n", 1)[0] if node.plain else ""
        rest = line.strip()
        return rest if rest.startswith("#") else None


def read(data: bytes, path: str) -> Document:
    """Return the tree that *data* holds; what is wrong with it is in its problems."""
    fast = bool(yaml.__with_libyaml__)
    largest = LARGEST_FILE if fast else LARGEST_FILE_SLOWLY
    if len(data) > largest:
        return Document(path, "", None, (_whole(path, f"larger than {largest // 2**20} MiB"),))
    try:
        source = _without_separators(unix_lines(decode(data, path)), path)
    except _Refused as refused:
        return Document(path, "", None, (refused.problem,))
    builder = _Builder(path, source)
    root = builder.build(fast=fast)
    return Document(path, source, root, tuple(builder.problems))


class _Refused(Exception):
    """Reading stops here: carries the problem out of a loop."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _whole(path: str, message: str, cure: str | None = None) -> Problem:
    return Problem(path, None, None, None, message, cure)


# --- bytes to text --------------------------------------------------------------------------

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SAVE_AS_UTF8 = "save the file as UTF-8"


def decode(data: bytes, path: str) -> str:
    """Return *data* as text without a byte order mark, or raise `_Refused` saying why not."""
    if data[:2] in _UTF16 or b"\0\0" in (data[0:4:2], data[1:4:2]):
        raise _Refused(_whole(path, "the file is UTF-16, not UTF-8", _SAVE_AS_UTF8))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        start = before.rfind(b"\n") + 1
        column = len(before[start:].decode("utf-8-sig", "replace")) + 1
        raise _Refused(
            Problem(
                path,
                line,
                column,
                None,
                f"the byte 0x{data[error.start]:02X} is not UTF-8; an older encoding such as"
                " Latin-1 writes letters with accents that way",
                _SAVE_AS_UTF8,
            )
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise _Refused(Problem(path, line, None, None, "the file holds a NUL character"))
    return text


# Line breaks to YAML 1.1 and to nobody else: text would be folded or cut there in silence.
_SEPARATORS = ("\x85", "\u2028", "\u2029")


def _without_separators(source: str, path: str) -> str:
    for sign in _SEPARATORS:
        if sign in source:
            raise _Refused(_stray(path, source, sign, "the line separator"))
    return source


def _stray(path: str, source: str, sign: str, what: str) -> Problem:
    """Return the problem of a sign that YAML does not take as it is, with its place."""
    at = source.find(sign)
    code = ord(sign)
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    message = f"{what} U+{code:04X} can't stand in YAML"
    cure = f'remove it, or write "\\u{code:04x}" in double quotes'
    return Problem(path, line, column, None, message, cure)


def text_of(data: bytes, path: str) -> str | Problem:
    """Return the text of a file that is no YAML, or what is wrong with it."""
    try:
        return decode(data, path)
    except _Refused as refused:
        return refused.problem


def unix_lines(text: str) -> str:
    """Return *text* with every line end as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


# --- events to a tree -----------------------------------------------------------------------


class _Builder:
    """Builds the tree of one file without recursion, so that nesting can't exhaust the stack."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.source = source
        self.problems: list[Problem] = []

    def build(self, *, fast: bool) -> Mapping | None:
        """Return the mapping at the top, or None where reading had to stop."""
        try:
            root = self._document(_events(self.source, fast=fast))
        except _Refused as refused:
            self.problems.append(refused.problem)
            return None
        except yaml.reader.ReaderError as error:
            self.problems.append(_unprintable(self.path, self.source, error))
            return None
        except yaml.MarkedYAMLError as error:
            problem = _explain(self.path, self.source, error)
            # What was refused in a line is also why the parser stumbles over the rest of it.
            if all(problem.line != other.line for other in self.problems):
                self.problems.append(problem)
            return None
        return root

    def _document(self, events: Iterator[Any]) -> Mapping:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise self._refuse(event, "a second document begins here", "keep one a file")
                if event.version is not None or event.tags:
                    raise self._refuse(event, *_DIRECTIVE)
                root = self._tree(events)
        if isinstance(root, Mapping):
            return root
        if root is None or (isinstance(root, Scalar) and root.nothing):
            raise _Refused(_whole(self.path, "the file is empty"))
        kind = "a list" if isinstance(root, Sequence) else "a single value"
        raise self._refuse_at(
            root.line, root.column, f"the file is {kind}; expected keys like `prompt: ...`"
        )

    def _tree(self, events: Iterator[Any]) -> Node:
        """Return the node that the next events describe."""
        open_nodes: list[Sequence | Mapping] = []
        # The key that waits for its value, for each open mapping; None where a key comes next.
        keys: list[Scalar | Unusable | None] = []
        for event in events:
            kind = type(event)
            node: Node
            if kind is yaml.ScalarEvent:
                mark = event.start_mark
                if event.anchor is not None or event.tag is not None:
                    self._refuse_decoration(event)
                node = Scalar(
                    event.value,
                    mark.line + 1,
                    mark.column + 1,
                    plain=event.style is None or event.style == "",
                    end=event.end_mark.index,
                )
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                mark = event.start_mark
                if event.anchor is not None or event.tag is not None:
                    self._refuse_decoration(event)
                if len(open_nodes) >= DEEPEST:
                    raise self._refuse(event, _TOO_DEEP)
                make = Mapping if kind is yaml.MappingStartEvent else Sequence
                open_nodes.append(make(mark.line + 1, mark.column + 1))
                keys.append(None)
                continue
            elif kind is yaml.AliasEvent:
                node = self._alias(event)
            else:  # the end of a mapping or of a list
                node = open_nodes.pop()
                keys.pop()
            if not open_nodes:
                return node
            parent = open_nodes[-1]
            if isinstance(parent, Sequence):
                parent.items.append(node)
                continue
            key = keys[-1]
            if key is None:
                keys[-1] = self._key(node)
            else:
                self._put(parent, key, node)
                keys[-1] = None
        raise self._refuse_at(None, None, "the file ends in the middle of a value")

    def _key(self, node: Node) -> Scalar | Unusable:
        if isinstance(node, Scalar | Unusable):
            return node
        cure = in_quotes(self.source, node) or "put the text in quotes"
        self._add(node.line, node.column, "a key must be a word", cure)
        return Unusable(node.line, node.column)

    def _put(self, mapping: Mapping, key: Scalar | Unusable, value: Node) -> None:
        if isinstance(key, Unusable):
            return  # refused already; its value has no name to be checked under
        name = key.text
        if name == "<<" and key.plain:
            self._add(key.line, key.column, "merge keys (`<<`) are not read here", "write it out")
        elif name in mapping.entries:
            first = mapping.entries[name][0]
            self._add(
                key.line,
                key.column,
                f"the key {_shown(name)} is here a second time; the first is in line {first.line}",
                "remove one of them",
                key=name,
            )
        else:
            mapping.entries[name] = (key, value)

    def _alias(self, event: Any) -> Unusable:
        mark = event.start_mark
        line = _line(self.source, mark.line)
        self._add(*_begins_with(line, mark.line, mark.column) or _bare(mark, "'*'"))
        return Unusable(mark.line + 1, mark.column + 1)

    def _refuse_decoration(self, event: Any) -> None:
        """Refuse an anchor (`&x`) or a tag (`!x`), which a value began with by accident."""
        mark = event.start_mark
        line = _line(self.source, mark.line)
        sign = "'&'" if event.anchor is not None else "'!'"
        self._add(*_begins_with(line, mark.line, mark.column) or _bare(mark, sign))

    def _add(
        self,
        line: int | None,
        column: int | None,
        message: str,
        cure: str | None = None,
        key: str | None = None,
    ) -> None:
        self.problems.append(Problem(self.path, line, column, key, message, cure))

    def _refuse(self, event: Any, message: str, cure: str | None = None) -> _Refused:
        mark = event.start_mark
        return self._refuse_at(mark.line + 1, mark.column + 1, message, cure)

    def _refuse_at(
        self, line: int | None, column: int | None, message: str, cure: str | None = None
    ) -> _Refused:
        return _Refused(Problem(self.path, line, column, None, message, cure))


def _events(source: str, *, fast: bool) -> Iterator[Any]:
    """Yield PyYAML's events: from libyaml where it is there, else from the slow parser."""
    parser: Any = yaml.CSafeLoader(source) if fast else yaml.SafeLoader(source)
    # Both parsers return None for ever after the end.
    while (event := parser.get_event()) is not None:
        yield event


# --- what is wrong, in words -----------------------------------------------------------------

_DIRECTIVE = ("a line can't begin with '%' here", "remove the line")

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


def _line(source: str, index: int) -> str:
    lines = source.split("\n", index + 1)
    return lines[index][:_LONGEST_LINE] if index < len(lines) else ""


def _bare(mark: Any, sign: str) -> Place:
    message = f"a value can't begin with {sign} here: put it in quotes"
    return mark.line + 1, mark.column + 1, message, None, None


def _begins_with(line: str, index: int, column: int) -> Place | None:
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
    found = re.match(_LINE, _line(source, node.line - 1))
    return _quoted_line(found) if found and found["value"][0] in "{[" else None


def _cut(text: str, most: int = 40) -> str:
    text = text.replace("\t", "\\t")
    return text if len(text) <= most else text[: most - 3] + "..."


def _shown(name: str) -> str:
    return repr(_cut(name))


def _unprintable(path: str, source: str, error: yaml.reader.ReaderError) -> Problem:
    """Return the problem of a character that YAML does not allow, with its place."""
    code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1])
    return _stray(path, source, chr(code), "the control character")


def _explain(path: str, source: str, error: yaml.MarkedYAMLError) -> Problem:
    """Return what a person did wrong where the parser gave up."""
    line, column, message, cure, key = _diagnosis(source, error)
    return Problem(path, line, column, key, message, cure)


def _diagnosis(source: str, error: yaml.MarkedYAMLError) -> Place:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return None, None, f"this is no YAML: {error.problem}", None, None
    context = error.context_mark or mark
    said = f"{error.context or ''} {error.problem or ''}".lower()
    line = _line(source, mark.line)
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent and mark.column <= len(indent):
        cure = "indent with spaces"
        return mark.line + 1, indent.index("\t") + 1, "a tab: YAML indents with spaces", cure, None
    if line.startswith("%"):
        return mark.line + 1, 1, *_DIRECTIVE, None
    if "document start" in said:
        return mark.line + 1, 1, "a second document begins here", "keep one a file", None
    if "quoted scalar" in said and "end of stream" in said:
        return _unclosed_quote(source, context)
    if "nesting" in said:
        return mark.line + 1, mark.column + 1, _TOO_DEEP, None, None
    if "flow" in said:
        return _flow(source, context)
    if "escape" in said:
        message = "an unknown escape: in double quotes a \\ begins one"
        return mark.line + 1, mark.column + 1, message, "use single quotes, or write \\\\", None
    return (
        _of_value(line, mark, said)
        or _of_value(_line(source, context.line), context, said)
        or _of_layout(source, mark, said)
        or (mark.line + 1, mark.column + 1, f"this is no YAML: {error.problem}", None, None)
    )


def _unclosed_quote(source: str, mark: Any) -> Place:
    found = re.match(_LINE, _line(source, mark.line))
    key = found["key"] if found else None
    message = "the quote that opens here is never closed"
    return mark.line + 1, mark.column + 1, message, None, key


def _flow(source: str, mark: Any) -> Place:
    """Return what is wrong within brackets: where they open is what a person looks for."""
    line, column = _opening(source, mark)
    text = _line(source, line)
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
        return _begins_with(line, mark.line, len(line))
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
    line = _line(source, mark.line)
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
