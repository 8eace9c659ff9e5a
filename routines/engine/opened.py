"""Programs that a person opened under the lease of a session, and that outlived who held it.

`session open` and `session hold` keep the lease while their program runs. Killed with -9 they
leave what the program had started, at work in the conversation: it ends before anybody else has
the session, as the agent of a killed turn does (T2, T3).
"""

import logging
from collections.abc import Mapping
from datetime import timedelta

from routines.agents.trees import Tree, end_tree
from routines.domain.clock import Clock
from routines.domain.record import Owner
from routines.domain.recovery import PRESUMED_AFTER, is_elsewhere, owner_is_this_boot
from routines.engine import host
from routines.errors import StoreError
from routines.store import files
from routines.store.opened import Opened, is_mark, new_mark
from routines.store.sessions import Lease, SessionStore, ledger_path
from routines.store.state import State

log = logging.getLogger("routines")

# As for what a turn left behind.
_STOP = ("TERM", "KILL")
_STOP_INTERVAL_S = 5.0


def to_be_opened(clock: Clock) -> Opened:
    """Return the record of a program that this process is about to open."""
    return Opened(mark=new_mark(), owner=host.owner(), at=clock.now())


def marks_around(base: Mapping[str, str]) -> dict[str, str]:
    """Return the marks in *base*: a program that is opened within another one has both."""
    return {name: value for name, value in base.items() if is_mark(name)}


def may_live(state: State, opened: Opened) -> bool:
    """Return whether anything of a program lives, or may where nobody here can tell."""
    return _is_out_of_sight(opened.owner) or bool(_tree(state, opened).members())


def end_opened(state: State, session: str, *, clock: Clock) -> None:
    """End what was opened in *session*, if nobody holds it any more; then it is free.

    Raises:
        StoreError: Something of it can't be ended; the session stays busy.
    """
    sessions = SessionStore(state)
    ledger = sessions.peek(session)
    if ledger is None or ledger.opened is None:
        return
    lease = sessions.take(session, clock=clock, past=ledger.opened)
    if not isinstance(lease, Lease):
        return
    try:
        # Somebody may have been quicker.
        if lease.ledger.opened is not None:
            _end(state, lease, lease.ledger.opened, clock)
    finally:
        lease.let_go()


def _end(state: State, lease: Lease, opened: Opened, clock: Clock) -> None:
    ledger = lease.ledger
    if _is_out_of_sight(opened.owner):
        if _silent_for(state, lease.session, opened, clock) < PRESUMED_AFTER:
            return
        # A free lock proves nothing about a process that can't be seen from here.
        where = "host" if is_elsewhere(opened.owner, host.here()) else "container"
        why = f"{ledger.held_by} was presumed dead on another {where}"
        ledger = ledger.new_epoch(why, agent=ledger.agent)
    remain = end_tree(_tree(state, opened), stop=_STOP, clock=clock, interval=_STOP_INTERVAL_S)
    if remain:
        raise StoreError(
            f"{lease.session}: processes {remain} of {ledger.held_by} can't be ended",
            hint="end them by hand; the session is free then",
        )
    log.warning("opened-ended", extra={"session": lease.session, "held_by": ledger.held_by})
    lease.write(ledger.with_(held_by=None, opened=None))


def _is_out_of_sight(owner: Owner) -> bool:
    """Return whether nothing can be told here of what *owner* started.

    Processes of another pid namespace (a container on this kernel) are passed over in every look:
    that none is found there says nothing.
    """
    here = host.here()
    if is_elsewhere(owner, here):
        return True
    return owner_is_this_boot(owner, here) and owner.pidns != host.owner().pidns


def _silent_for(state: State, session: str, opened: Opened, clock: Clock) -> timedelta:
    """Return for how long nothing was heard of who opened a program on another host.

    Where its clock is ahead of ours, or its record was edited, its own word would keep the session
    for as long as it says. Then it goes by when the ledger was written, as for a claim.
    """
    now = clock.now()
    if opened.at <= now:
        return now - opened.at
    path = ledger_path(state, session)
    written, server = files.modified_at(path), files.server_now(path)
    return timedelta(0) if written is None or server is None else server - written


def _tree(state: State, opened: Opened) -> Tree:
    """Return what lives of a program, nothing where its marks don't mean ours."""
    here = owner_is_this_boot(opened.owner, host.here())
    return Tree(state=state.path, turn_key="", mark=opened.mark if here else "")
