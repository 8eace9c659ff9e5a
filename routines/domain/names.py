"""Names of things, and the file names made from them.

A file name made here is safe on every file system, the same on every machine, and made from
nothing but the name itself, so that two processes can never mean two files by one thing.
"""

import hashlib
import re
import unicodedata
from datetime import UTC, datetime
from functools import lru_cache

from routines.errors import InvalidName

# Windows refuses these whatever their ending; WSL folders are read from there too.
_RESERVED_BY_WINDOWS = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))]
)
# 200 bytes of name leave room for an instant, an id and an ending below the usual limit of 255.
_LONGEST = 200
_HASHED = 16
# Of a name that is nothing but a hash: no two things meet by chance.
_KEY = 32
# claims/wake and claims/job lie beside claims/<routine>.
RESERVED_ROUTINES = frozenset(["wake", "job"])
LONGEST_ROUTINE_NAME = 100
# Likewise: it stands in a row of each list.
LONGEST_SESSION_NAME = 100
# A program that embeds an engine names its sessions as it likes; of a job's it is the same.
_LONGEST_SESSION = 512
# What stands before the occurrence in the key of a turn.
_WORKSPACE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/(?=.)", re.ASCII)


class OutOfReach(ValueError):
    """An instant that is in no year in UTC: nothing can be reckoned with it."""


def check_routine_name(name: str) -> str:
    """Return *name* in its one form (NFC), or raise `InvalidName` saying what it may be."""
    name = unicodedata.normalize("NFC", name)
    allowed = "letters, digits, space, '-', '_' and '.' inside"
    if not name:
        raise InvalidName("a routine needs a name", hint=f"a name has {allowed}")
    if len(name) > LONGEST_ROUTINE_NAME:
        raise InvalidName(
            f"the name {name[:30]!r}... has {len(name)} characters",
            hint=f"at most {LONGEST_ROUTINE_NAME}",
        )
    odd = [c for c in name if not (c.isalnum() or unicodedata.combining(c) or c in " -_.")]
    if odd:
        raise InvalidName(f"the name {name!r} holds {odd[0]!r}", hint=f"a name has {allowed}")
    if name[0] in ". " or name[-1] in ". ":
        raise InvalidName(
            f"the name {name!r} begins or ends with a dot or a space", hint=f"a name has {allowed}"
        )
    if name.casefold() in RESERVED_ROUTINES:
        raise InvalidName(
            f"the name {name!r} is reserved", hint="wake-ups and jobs are kept under it: rename it"
        )
    return name


def same_name(name: str) -> str:
    """Return a form in which names that a file system may confuse are equal."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


# A claim asks four times for one name, and a workspace has few: the walk over its letters costs
# as much as a small write.
@lru_cache(maxsize=1024)
def safe_name(text: str) -> str:
    """Return a file name for *text*: itself where that is safe, percent-encoded where not.

    Names over 200 bytes are cut and end in a hash of the whole.
    """
    text = unicodedata.normalize("NFC", text)
    plain = text and text.split(".")[0].casefold() not in _RESERVED_BY_WINDOWS
    safe = "".join(
        c
        if plain and (c.isalnum() or c in "-_" or (c in ". " and 0 < i < len(text) - 1))
        else "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass"))
        for i, c in enumerate(text)
    )
    if len(safe.encode()) <= _LONGEST:
        return safe or "%"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASHED]
    head = safe.encode()[: _LONGEST - _HASHED - 2].decode("utf-8", "ignore")
    return f"{head}%-{digest}"


def cased_name(text: str) -> str:
    """Return a file name for *text*, another one for each way to write it in upper and lower case.

    What programs call their things may differ in case alone, and a file system may not see that.
    """
    safe = safe_name(text)
    if same_name(text) == text:
        return safe
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASHED]
    head = safe.encode()[: _LONGEST - _HASHED - 2].decode("utf-8", "ignore")
    return f"{head}%-{digest}"


def key_of(text: str) -> str:
    """Return what names *text* on every file system: a hash, since case must count."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY]


def instant_name(instant: datetime) -> str:
    """Return `2026-07-01T09-00-00Z`: an instant as a file name, to the second."""
    text = instant.astimezone(UTC).isoformat(timespec="seconds")
    return text[:19].replace(":", "-") + "Z"


# What `instant_name` writes: `list` and `history` read many, and strptime takes ten times
# as long.
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2})-([0-9]{2})-([0-9]{2})Z", re.ASCII
)


def parse_instant_name(text: str) -> datetime | None:
    """Return the instant that `instant_name` wrote, or None if it did not write *text*."""
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def day_name(instant: datetime) -> str:
    """Return the UTC day of *instant*, `2026-07-01`: the folder that it is kept in."""
    return instant.astimezone(UTC).date().isoformat()


def format_instant(instant: datetime) -> str:
    """Return RFC 3339 in UTC with `Z`: `2026-07-01T09:00:00Z`, microseconds only if there are."""
    return instant.astimezone(UTC).isoformat()[: -len("+00:00")] + "Z"


def parse_instant(text: str) -> datetime:
    """Return the aware UTC instant that `format_instant` wrote.

    Raises:
        ValueError: It did not write *text*; an `OutOfReach` if that is in no year in UTC.
    """
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise OutOfReach(f"{text!r} is in no year in UTC") from error


def check_session_name(text: str) -> str:
    """Return *text*, `named:NAME`, or raise `InvalidName`."""
    name = text.removeprefix("named:")
    if name.strip() == name and name.isprintable() and 0 < len(name) <= LONGEST_SESSION_NAME:
        return text
    hint = f"1 to {LONGEST_SESSION_NAME} printable characters, no space around them"
    raise InvalidName("a named session needs a name", hint=hint)


def check_session(session: object) -> str:
    """Return *session*, the whole name of a conversation, or raise `InvalidName`.

    It becomes a variable of the turn's environment, a word of commands and a part of messages.
    """
    if not isinstance(session, str):
        raise InvalidName(f"a session is named by a text, and not by {type(session).__name__}")
    if session.strip() and session.isprintable() and len(session) <= _LONGEST_SESSION:
        return session
    raise InvalidName(
        "no session can have that name" if session.strip() else "no session is named",
        hint=f"1 to {_LONGEST_SESSION} printable characters",
    )


def shown_who(who: str) -> str:
    """Return who did something as screens say it: `ana@studio`, or the occurrence of a turn.

    A turn signs with its key; the workspace's id before the occurrence says nothing there.
    """
    return _WORKSPACE.sub("", who, count=1) if _WORKSPACE.match(who) else who


def routine_of(session: str) -> str | None:
    """Return the routine that a session belongs to: `routine:<name>` or `routine:<name>@<slot>`."""
    if not session.startswith("routine:"):
        return None
    return session.removeprefix("routine:").partition("@")[0]
