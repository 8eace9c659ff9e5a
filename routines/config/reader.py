"""YAML as a tree of text with places: the one module that knows which YAML library is in use.

PyYAML splits the bytes into events; what they mean is decided here. A scalar stays the text it
was written as (`12:30`, `010`, `no`, `2026-11-01`): the key that holds it says what it is, so
nothing is guessed. What YAML allows and a person never means in these files is refused with its
place: duplicate keys, aliases, anchors, tags, merge keys, a second document.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from routines.config.mistakes import (
    DEEPEST,
    DIRECTIVE,
    TOO_DEEP,
    bare,
    begins_with,
    explain,
    in_quotes,
    line_of,
    named,
)
from routines.config.tree import Document, Mapping, Node, Scalar, Sequence, Unusable
from routines.errors import Problem

# A prompt may have 16 MiB and is indented in its file.
LARGEST_FILE = 40 * 2**20
# Without libyaml a MiB takes seconds, and every command waits for them.
LARGEST_FILE_SLOWLY = 2 * 2**20


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
            problem = explain(self.path, self.source, error)
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
                    raise self._refuse(event, *DIRECTIVE)
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
                    raise self._refuse(event, TOO_DEEP)
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
                f"the key {named(name)} is here a second time; the first is in line {first.line}",
                "remove one of them",
                key=name,
            )
        else:
            mapping.entries[name] = (key, value)

    def _alias(self, event: Any) -> Unusable:
        mark = event.start_mark
        line = line_of(self.source, mark.line)
        self._add(*begins_with(line, mark.line, mark.column) or bare(mark, "'*'"))
        return Unusable(mark.line + 1, mark.column + 1)

    def _refuse_decoration(self, event: Any) -> None:
        """Refuse an anchor (`&x`) or a tag (`!x`), which a value began with by accident."""
        mark = event.start_mark
        line = line_of(self.source, mark.line)
        sign = "'&'" if event.anchor is not None else "'!'"
        self._add(*begins_with(line, mark.line, mark.column) or bare(mark, sign))

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


def _unprintable(path: str, source: str, error: yaml.reader.ReaderError) -> Problem:
    """Return the problem of a character that YAML does not allow, with its place."""
    code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1])
    return _stray(path, source, chr(code), "the control character")


def _events(source: str, *, fast: bool) -> Iterator[Any]:
    """Yield PyYAML's events: from libyaml where it is there, else from the slow parser."""
    parser: Any = yaml.CSafeLoader(source) if fast else yaml.SafeLoader(source)
    # Both parsers return None for ever after the end.
    while (event := parser.get_event()) is not None:
        yield event
