r"""Text from a model, a name or a file, made harmless before it meets a terminal.

A raw ESC can repaint the screen, a raw newline forges a row, a bidi override reorders what is
read: each is shown as what it is (`\x1b`, `\n`, `\u202e`) and moves nothing.
"""

import unicodedata

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Joiners and variation selectors only shape the letters and emoji around them.
_HARMLESS = frozenset("\u200c\u200d\ufe0e\ufe0f")
# Cc: controls. Cf: format characters, bidi among them. Cs: half a surrogate pair, which no
# terminal can be sent. Zl and Zp: line ends that only some programs know. Cn, Co: nothing at all.
_ESCAPED = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp", "Cn", "Co"])
_WIDE = frozenset("WF")
_CUT = "..."


def escape(text: str) -> str:
    """Return *text* on one line with everything that could move the cursor shown, not sent."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_safe(c) else _shown(c) for c in text)


def line(text: str) -> str:
    """Return prose on one line: runs of white space are one space, the rest is escaped."""
    return escape(" ".join(text.split(None)))


def block(text: str) -> str:
    """Return *text* with its lines kept; within them everything is escaped but tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(escape, row.split("\t"))) for row in lines)


def _is_safe(c: str) -> bool:
    return c in _HARMLESS or unicodedata.category(c) not in _ESCAPED


def _shown(c: str) -> str:
    if c in _NAMED:
        return _NAMED[c]
    code = ord(c)
    if code <= 0xFF:  # noqa: PLR2004 - what \x can name
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - \u


def width(text: str) -> int:
    """Return how many columns *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def _columns(c: str) -> int:
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in _WIDE else 1


def fit(text: str, columns: int) -> str:
    """Return *text*, or its beginning and `...` if it takes more than *columns*."""
    if width(text) <= columns:
        return text
    room = max(columns - len(_CUT), 0)
    kept = []
    for c in text:
        room -= _columns(c)
        if room < 0:
            break
        kept.append(c)
    return "".join(kept).rstrip() + _CUT[: max(columns, 0)]


def pad(text: str, columns: int) -> str:
    """Return *text* with spaces up to *columns*."""
    return text + " " * (columns - width(text))


def wrap(text: str, columns: int, *, indent: str = "") -> list[str]:
    """Return *text* in lines of at most *columns*, broken at spaces; later ones are indented."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        longer = f"{current} {word}" if current else word
        if current.strip() and width(longer) > columns:
            lines.append(current)
            longer = indent + word
        current = longer
    return [*lines, current]
