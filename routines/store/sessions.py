"""Sessions: which native conversation they are, and the lease that keeps turns apart.

Programs don't protect a conversation: two turns at once lose history and both say success. So
every turn holds the session's lease: a kernel lock on a file of its own, handed to the turn
process and never unlocked, and a stamp in the ledger that names the claim. A lock that is free
while its stamp names a claim without outcome is not free: that claim is settled first (T2). Nor
is one beside the record of a program that was opened under the lease, until that has ended.
"""

import contextlib
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from routines.domain.clock import Clock
from routines.domain.decoding import (
    UNREADABLE,
    instant_or_none,
    is_amount,
    text,
    text_or_none,
    whole,
)
from routines.domain.names import format_instant, key_of
from routines.errors import StoreError
from routines.store import files, locks
from routines.store.opened import Opened
from routines.store.state import State

# A forked child holds a copy of every descriptor until it execs; that takes far less than this.
_PATIENCE_S = 0.2
_STEP_S = 0.02
# How far a ledger that was lost had come, as far as it can still be told.
_EPOCH = re.compile(rb'"epoch": ?([0-9]{1,9})\b')
_MOST_EPOCHS = 999_999_999
# A name that no file system takes is refused with an error that says nothing of the ledger.
_LONGEST_NAME = 255
_DEEPEST_CLAIM = 8
_TRANSCRIPT = re.compile(r"[0-9a-f]+\.([0-9]{1,9})\.jsonl", re.ASCII)
# What waits for another try, for its predecessor or for a person keeps no session meanwhile.
_PUT_OFF = (b'{"event":"retry"', b'{"event":"parked"', b'{"event":"buffered"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is known of one session.

    Attributes:
        session: Its name.
        agent: The agent whose conversation it is; another one begins a new epoch.
        epoch: How many native sessions it has had, counted from 1.
        epoch_reason: Why the newest epoch began.
        native_session: The id by which the program knows it, once that is known.
        minted_by: `us` or `program`: who chose that id.
        first_turn_begun: When the first turn of this epoch was about to be launched; None before.
        turns: Turns that have ended, over all epochs.
        epoch_turns: Those of this epoch after which its conversation is known to be there.
        usd_total: The running total that the program last reported for this epoch.
        tokens_total: As `usd_total`.
        claim: The stamp: the claim (below the state folder) whose turn has the session, or None.
        held_by: Who holds it without a claim (`session hold`, a host's own turn), or None.
        opened: The program that runs under the lease (`session open`, `session hold`), or None.
        last_at: When a turn last ended.
        salt: What tells its native sessions from those of a ledger that was lost; empty without.
    """

    session: str
    agent: str | None = None
    epoch: int = 1
    epoch_reason: str = ""
    native_session: str | None = None
    minted_by: str | None = None
    first_turn_begun: datetime | None = None
    turns: int = 0
    epoch_turns: int = 0
    usd_total: float | None = None
    tokens_total: int | None = None
    claim: str | None = None
    held_by: str | None = None
    opened: Opened | None = None
    last_at: datetime | None = None
    salt: str = ""

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the session but who has it."""
        return self.with_(claim=None, held_by=None, opened=None) == Ledger(session=self.session)

    def with_(self, **changes: Any) -> "Ledger":
        """Return a copy with *changes*."""
        return replace(self, **changes)

    def new_epoch(self, reason: str, *, agent: str | None) -> "Ledger":
        """Return the ledger of a conversation that begins anew, because of *reason*."""
        return replace(
            self,
            agent=agent,
            epoch=self.epoch + 1,
            epoch_reason=reason,
            native_session=None,
            minted_by=None,
            first_turn_begun=None,
            epoch_turns=0,
            usd_total=None,
            tokens_total=None,
        )

    def uuid(self, workspace: str) -> str:
        """Return the UUIDv5 (RFC 9562) of workspace, session and epoch."""
        # Here and not above: it costs each command two milliseconds, and only a turn needs it.
        import uuid

        name = f"{self.session}#{self.epoch}" + (f"#{self.salt}" if self.salt else "")
        return str(uuid.uuid5(uuid.UUID(workspace), name))

    def encode(self) -> bytes:
        """Return the content of its file."""
        data: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Opened):
                value = value.to_json()
            data[name] = format_instant(value) if isinstance(value, datetime) else value
        return json.dumps(data, ensure_ascii=False, indent=1).encode() + b"\n"


def decode_ledger(data: bytes) -> Ledger | None:
    """Return the ledger that `Ledger.encode` wrote, or None if *data* is something else."""
    try:
        found = json.loads(data)
        tokens = found["tokens_total"]
        return Ledger(
            session=text(found["session"]),
            agent=text_or_none(found["agent"]),
            epoch=whole(found["epoch"], 1, _MOST_EPOCHS),
            epoch_reason=text(found["epoch_reason"]),
            native_session=text_or_none(found["native_session"]),
            minted_by=text_or_none(found["minted_by"]),
            first_turn_begun=instant_or_none(found["first_turn_begun"]),
            turns=whole(found["turns"]),
            epoch_turns=whole(found["epoch_turns"]),
            usd_total=_amount(found["usd_total"]),
            tokens_total=None if tokens is None else whole(tokens),
            claim=_claim(found["claim"]),
            held_by=text_or_none(found["held_by"]),
            opened=Opened.from_json(found.get("opened")),
            last_at=instant_or_none(found["last_at"]),
            salt=text(found.get("salt", "")),
        )
    except UNREADABLE:
        return None


def _amount(value: Any) -> float | None:
    if value is None:
        return None
    if not is_amount(value):
        raise ValueError("no amount")
    return float(value)


def _claim(value: Any) -> str | None:
    """Return the path of a claim below the state folder, as `stamp` was given it; or None.

    Whatever else is named there is never opened: it may lie outside of the folder.
    """
    if value is None:
        return None
    parts = text(value).split("/")
    odd = not value.isprintable() or any(len(one.encode()) > _LONGEST_NAME for one in parts)
    if odd or len(parts) > _DEEPEST_CLAIM or not {"", ".", ".."}.isdisjoint(parts):
        raise ValueError("no path of a claim")
    if parts[0] != "claims" or not value.endswith(".jsonl"):
        raise ValueError("no path of a claim")
    return str(value)


@dataclass(frozen=True, slots=True)
class Busy:
    """Why a lease could not be taken.

    Attributes:
        session: The session.
        locked: Whether a live process has the lock; else only the stamp stands in the way.
        claim: The claim that the stamp names, below the state folder, or None.
        holder: Who holds it, in words.
        opened: The program that was opened under it, if nobody has the lock any more.
    """

    session: str
    locked: bool
    claim: str | None
    holder: str | None
    opened: Opened | None = None


class Lease:
    """A session that this process holds; nobody else's turn runs in it meanwhile.

    Attributes:
        ledger: What is known of the session; kept up to date with `write`.
        fd: The descriptor with the lock on it; handed to a turn process, it keeps the session.
    """

    def __init__(self, state: State, ledger: Ledger, fd: int) -> None:
        self._state = state
        self.ledger = ledger
        self.fd = fd

    @property
    def session(self) -> str:
        """The session's name."""
        return self.ledger.session

    def write(self, ledger: Ledger) -> None:
        """Keep *ledger*, stamp included.

        Raises:
            NotDurable: It could not be written; the old one stands.
        """
        path = ledger_path(self._state, ledger.session)
        try:
            files.replace(path, ledger.encode())
        except OSError as error:
            raise files.fault(error, "write", path) from error
        self.ledger = ledger

    def stamp(
        self,
        claim_path: str | None,
        *,
        held_by: str | None = None,
        opened: Opened | None = None,
    ) -> None:
        """Write down whose turn has the session, or which program; None clears it."""
        stamped = self.ledger.with_(claim=claim_path, held_by=held_by, opened=opened)
        if stamped != self.ledger:
            self.write(stamped)

    def let_go(self) -> None:
        """Close the descriptor; unless it was handed on, the session is free then."""
        if self.fd >= 0:
            locks.let_go(self.fd)
            self.fd = -1

    def forget(self) -> None:
        """Remove the session, lock file last, while it is held: for a fresh one that has ended."""
        with contextlib.suppress(OSError):
            files.remove(ledger_path(self._state, self.session))
            folder, name = os.path.split(ledger_path(self._state, self.session))
            beside = re.compile(rf"{name.removesuffix('.json')}\.[0-9]+\.(jsonl|native)", re.ASCII)
            # Those that are there, and not each up to the epoch: a ledger may name any number.
            for one in filter(beside.fullmatch, files.names(folder)):
                files.remove(os.path.join(folder, one))
            files.remove(lock_path(self._state, self.session))


def session_key(session: str) -> str:
    """Return the file name of a session: a hash, since case must count on every file system."""
    return key_of(unicodedata.normalize("NFC", session))


def ledger_path(state: State, session: str) -> str:
    """Return the absolute path of a session's ledger."""
    key = session_key(session)
    return state.at("sessions", key[:2], f"{key}.json")


def lock_path(state: State, session: str) -> str:
    """Return the absolute path of a session's lock."""
    return ledger_path(state, session).removesuffix(".json") + ".lock"


def transcript_path(state: State, session: str, epoch: int) -> str:
    """Return the absolute path of the transcript that the echo agent keeps of one epoch."""
    return ledger_path(state, session).removesuffix(".json") + f".{epoch}.jsonl"


def native_path(state: State, session: str, epoch: int) -> str:
    """Return the absolute path at which an agent program may keep one epoch of its own."""
    return ledger_path(state, session).removesuffix(".json") + f".{epoch}.native"


def _ledger_of(session: str, data: bytes) -> Ledger | None:
    """Return the ledger in *data* if it is that of *session*: it is written where its name says."""
    ledger = decode_ledger(data)
    same = ledger is not None and session_key(ledger.session) == session_key(session)
    return ledger if same else None


class SessionStore:
    """The sessions of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def take(
        self,
        session: str,
        *,
        clock: Clock,
        own_claim: str | None = None,
        past: Opened | None = None,
    ) -> Lease | Busy:
        """Take the lease of *session*, or say why it is busy.

        Args:
            session: Its name.
            clock: For the short patience with a forked child's copies.
            own_claim: The claim that asks; its own stamp, left by a crash, does not stand in its
                way.
            past: A program whose record does not stand in the way: for who ends it.

        Raises:
            NotDurable: The session's files could not be made.
        """
        path = lock_path(self._state, session)
        try:
            fd = self._lock(path, clock)
        except OSError as error:
            raise files.fault(error, "lock", path) from error
        if fd is None:
            # Only its holder may set aside what can't be read.
            ledger = self.peek(session) or Ledger(session=session)
            return Busy(session, locked=True, claim=ledger.claim, holder=self._holder(ledger))
        try:
            return self._unless_stamped(session, fd, own_claim, past)
        except StoreError:
            locks.let_go(fd)
            raise

    def _unless_stamped(
        self, session: str, fd: int, own_claim: str | None, past: Opened | None
    ) -> Lease | Busy:
        ledger = self.read(session) or self._new(session)
        if ledger.claim is not None and ledger.claim != own_claim and self._is_open(ledger.claim):
            locks.let_go(fd)
            return Busy(session, locked=False, claim=ledger.claim, holder=self._holder(ledger))
        if ledger.opened is not None and ledger.opened != past:
            locks.let_go(fd)
            return self._opened(ledger)
        return Lease(self._state, ledger, fd)

    def _opened(self, ledger: Ledger) -> Busy:
        return Busy(
            ledger.session,
            locked=False,
            claim=None,
            holder=self._holder(ledger),
            opened=ledger.opened,
        )

    def _lock(self, path: str, clock: Clock) -> int | None:
        tries = int(_PATIENCE_S / _STEP_S)
        files.make_folder(os.path.dirname(path))
        for left in range(tries, -1, -1):
            fd = files.open_append(path, create=True)
            if locks.try_lock(fd):
                if files.leads_to(path, fd):
                    return fd
                # Its last holder has removed the file: the lock is on a name that nobody sees.
                locks.let_go(fd)
                continue
            files.close(fd)
            if left:
                clock.sleep(_STEP_S)
        return None

    def _is_open(self, claim_path: str) -> bool:
        """Return whether a claim still has its session: no outcome, and not put off either."""
        data = files.read(self._state.at(claim_path))
        if data is None:
            return False
        last = b""
        for line in files.whole_lines(data):
            # A line is known by its word; reading the whole record would import the world.
            if line.startswith(b'{"event":"outcome"'):
                return False
            last = line
        return not last.startswith(_PUT_OFF)

    def adopt(self, session: str, fd: int) -> Lease:
        """Return the lease that came with a descriptor from another process."""
        locks.adopt(fd)
        return Lease(self._state, self.read(session) or self._new(session), fd)

    def _new(self, session: str) -> Ledger:
        """Return the ledger of a session that has none; past what is known of one that was lost.

        Its conversations are still there: a program would refuse their ids, or go on with them.
        """
        path = ledger_path(self._state, session)
        folder, key = os.path.split(path.removesuffix(".json"))
        beside = [name for name in files.names(folder) if name.startswith(f"{key}.")]
        lost = [name for name in beside if name.endswith(".corrupt")]
        if not lost:
            return Ledger(session=session)
        epochs = [1]
        for name in lost:
            content = files.read(os.path.join(folder, name)) or b""
            epochs += [int(number) for number in _EPOCH.findall(content)]
        epochs += [int(found[1]) for name in beside if (found := _TRANSCRIPT.fullmatch(name))]
        return Ledger(
            session=session,
            epoch=min(max(epochs) + 1, _MOST_EPOCHS),
            epoch_reason=f"its ledger could not be read and is kept as {lost[-1]}",
            salt=os.urandom(4).hex(),
        )

    def is_busy(self, session: str) -> Busy | None:
        """Return who has *session* now, or None; nothing is taken.

        Where locks can't be asked about (no OFD locks), the stamp alone answers. What answers with
        `opened` may have ended: processes are not looked at here.
        """
        ledger = self.peek(session)
        locked = locks.path_is_locked(lock_path(self._state, session))
        claim = None if ledger is None else ledger.claim
        stamped = claim is not None and self._is_open(claim)
        if locked or stamped:
            holder = None if ledger is None else self._holder(ledger)
            return Busy(session, locked=bool(locked), claim=claim, holder=holder)
        return None if ledger is None or ledger.opened is None else self._opened(ledger)

    def _holder(self, ledger: Ledger) -> str | None:
        """Return who has a session, in words: a person, or the id of an occurrence."""
        if ledger.held_by is not None or ledger.claim is None:
            return ledger.held_by
        # Here and not above: a turn process, which is to be small, never asks.
        from routines.store.claims import ClaimStore

        record = ClaimStore(self._state).read_path(ledger.claim)
        if record is None:
            return ledger.claim.removeprefix("claims/").removesuffix(".jsonl")
        return record.ref

    def read(self, session: str) -> Ledger | None:
        """Return what is known of *session*; a ledger that can't be read is set aside."""
        path = ledger_path(self._state, session)
        data = files.read(path)
        if data is None:
            return None
        ledger = _ledger_of(session, data)
        if ledger is None:
            files.set_aside(path)
        return ledger

    def peek(self, session: str) -> Ledger | None:
        """Return what is known of *session*, changing nothing."""
        data = files.read(ledger_path(self._state, session))
        return None if data is None else _ledger_of(session, data)

    def all(self) -> Iterator[Ledger]:
        """Yield every session's ledger; those that can't be read are passed over."""
        for shard in files.names(self._state.at("sessions")):
            for name in files.names(self._state.at("sessions", shard)):
                if name.endswith(".json"):
                    data = files.read(self._state.at("sessions", shard, name))
                    ledger = None if data is None else decode_ledger(data)
                    if ledger is not None and f"{session_key(ledger.session)}.json" == name:
                        yield ledger
