"""The processes of a turn as one tree: finding all of it, and ending it.

A turn is a tree: the agent, what it started, what left its group or its parent. The tree is found
in three ways that make up for each other (T3): by its group and session, by descent (on Linux a
turn process is a child subreaper, so an orphan becomes its child), and by the two variables that
name state folder and turn in every environment (which also finds what a killed turn process left).
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from routines.agents.process_table import (
    Key,
    Mark,
    Process,
    find_process,
    mark_of_turn,
    named,
    process_table,
)
from routines.agents.processes import find_prctl
from routines.domain.clock import Clock

# Seconds between the signals of a stop sequence: what an agent needs to write its conversation.
STOP_INTERVAL_S = 10.0
# Seconds that a killed process gets to be gone. Longer means that it hangs in the kernel (a dead
# file server); waiting on would keep the session for ever, so it is named and left.
GIVE_UP_S = 10.0
# A tree mostly ends within milliseconds; a look costs one walk over /proc, so looks grow rarer.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25

_PR_SET_CHILD_SUBREAPER = 36


# Finding --------------------------------------------------------------------------------------


_adopts = False


def become_subreaper() -> bool:
    """Make this process the parent of every orphan below it; return whether that is possible.

    From then on whatever descends from it counts as the turn's: only a turn process does this.
    """
    global _adopts  # noqa: PLW0603 - a property of the process, as the kernel has it
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        # Inherited from a careless parent, it makes the kernel throw exit codes away.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl = find_prctl()
    _adopts = prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return _adopts


def own_children() -> frozenset[Key]:
    """Return the children that this process has now: none of them belongs to what starts next."""
    own = os.getpid()
    return frozenset(row.key for row in process_table().values() if row.parent == own)


def _below(table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return *roots* and every process that descends from one of them, but not through us."""
    own = os.getpid()
    children: dict[int, list[int]] = {}
    for row in table.values():
        # Who cleans up may itself be below what it ends; its own turns go on.
        if row.parent != own:
            children.setdefault(row.parent, []).append(row.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Every process of one turn, or of a program that a person opened, however it is found.

    Attributes:
        state: The state folder that their environment names, by whatever name; "" if none.
        turn_key: The turn that it names; "" if it names none.
        leader: The agent that we started, None if another process did.
        mark: Another variable by which their environment names it; "" if none does.
        spare: Children that we had before (`own_children`): not of this turn. None if nothing
            that descends from us is to be touched, as in a scheduler that cleans up.
    """

    state: str
    turn_key: str
    leader: int | None = None
    mark: str = ""
    spare: frozenset[Key] | None = None

    def members(self, known: Container[Key] = ()) -> list[Process]:
        """Return those that live, never ourselves.

        Args:
            known: Those that an earlier look has found. One without our environment is found by
                its parent alone, and no more once that has ended.
        """
        table = process_table()
        own = os.getpid()
        pids = {row.pid for row in table.values() if self._in_group(row) or row.key in known}
        pids.update(self._roots(table, own))
        pids.update(row.pid for mark in self._marks() for row in named(table, mark))
        pids = _below(table, pids)
        pids.discard(own)
        return [table[pid] for pid in sorted(pids) if pid in table and not table[pid].zombie]

    def first_of(self, alive: list[Process]) -> list[Process]:
        """Return those of *alive* that are told to end before the others.

        An agent that sees its tool end, and only then hears that it is to end itself, takes that
        for the tool's answer: Claude Code writes no word of an interruption then, and does the
        work again when it goes on.
        """
        return [row for row in alive if row.group == self.leader] or alive

    def reap(self) -> None:
        """Take the exit of orphans that became our children; the leader's is left to its owner."""
        if self.spare is None or not _adopts:
            return
        own = os.getpid()
        for row in process_table().values():
            adopted = row.parent == own and row.zombie and row.key not in self.spare
            if adopted and row.pid != self.leader:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(row.pid, os.WNOHANG)

    def _marks(self) -> list[Mark]:
        marks = []
        if self.state and self.turn_key:
            marks.append(mark_of_turn(self.state, self.turn_key))
        if self.state and self.mark:
            marks.append(Mark(variable=self.mark, state=self.state))
        return marks

    def _in_group(self, row: Process) -> bool:
        return self.leader is not None and self.leader in (row.group, row.session)

    def _roots(self, table: Mapping[int, Process], own: int) -> list[int]:
        roots = [] if self.leader is None else [self.leader]
        if self.spare is not None and _adopts:
            roots += [r.pid for r in table.values() if r.parent == own and r.key not in self.spare]
        return roots


# Ending -------------------------------------------------------------------------------------


def end_tree(
    tree: Tree,
    *,
    stop: Sequence[str],
    clock: Clock,
    interval: float = STOP_INTERVAL_S,
    wait: Callable[[float], None] | None = None,
    hurry: Callable[[], bool] | None = None,
) -> list[int]:
    """End every process of *tree* and return when they are gone.

    The leader's group is told first, as a terminal does at ^C, and who left it once the group has
    ended. KILL is for all at once.

    Args:
        tree: What is to be ended.
        stop: Signals without `SIG`, sent one after the other while anything lives; KILL is
            always the last, whether it is named or not.
        clock: Times the pauses.
        interval: Seconds between two signals.
        wait: Waits for so many seconds; by default asleep. A caller with pipes drains them here,
            or an agent that has much to say at its end would hang in writing it.
        hurry: Asked at each look; True goes to KILL at once.

    Returns:
        Pids of what could not be ended: a process of another user, or one that hangs in the
        kernel. Nearly always empty.
    """
    wait = clock.sleep if wait is None else wait
    numbers = _sequence(stop)
    told: set[Key] = set()
    known: set[Key] = set()
    step, pause = 0, _FIRST_PAUSE_S
    since = clock.awake()
    while True:
        # Two looks: a child with a low number (they wrap) of one that ends just now is missed
        # by a look that has passed that number, and found by the next.
        alive = tree.members(known) or tree.members(known)
        known.update(row.key for row in alive)
        # After the look: what ended before it is a zombie by now, and none is to be left.
        tree.reap()
        if not alive:
            return []
        waited = clock.awake() - since
        last = len(numbers) - 1
        if step == last and waited >= GIVE_UP_S:
            return [row.pid for row in alive]
        step_now = last if hurry is not None and hurry() else step + (waited >= interval)
        if step < step_now <= last:
            step, told, since, pause = step_now, set(), clock.awake(), _FIRST_PAUSE_S
        # Also to those that were started since the last look.
        for row in tree.first_of(alive) if step < last else alive:
            if row.key not in told:
                told.add(row.key)
                _send(row, numbers[step])
        wait(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def _sequence(stop: Sequence[str]) -> list[signal.Signals]:
    numbers = [signal.Signals[f"SIG{word}"] for word in stop]
    if not numbers or numbers[-1] != signal.SIGKILL:
        # T3 holds whatever the entry says: a turn that ignores its last signal would never end.
        numbers.append(signal.SIGKILL)
    return numbers


def _send(row: Process, number: signal.Signals) -> None:
    """Send *number* to exactly this process, if it still lives."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        _send_by_pid(row, number)
        return
    try:
        fd = os.pidfd_open(row.pid)
    except ProcessLookupError:
        return
    except OSError:
        # Older kernels and some sandboxes have no such call.
        _send_by_pid(row, number)
        return
    try:
        # The descriptor holds whoever has the number now; that must still be the one we mean.
        now = find_process(row.pid)
        if now is not None and now.key == row.key:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(fd, number)
                # A stopped process feels a signal only when it goes on.
                signal.pidfd_send_signal(fd, signal.SIGCONT)
    finally:
        os.close(fd)


def _send_by_pid(row: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(row.pid, number)
        os.kill(row.pid, signal.SIGCONT)
