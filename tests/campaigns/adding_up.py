"""What has to add up after any campaign: from the files, and from what agents have written."""

import collections
import os

from routines.domain.occurrence import Kind
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.state import open_for_reading
from tests.acceptance.helpers import outcome_lines, processes_of, records_of
from tests.campaigns.scheduler import Each

# Appends its turn key to a file when it begins and when it ends, and takes 0.1 to 0.9 s.
AGENT = (
    'echo "begun $ROUTINES_TURN" >> {log}; sleep 0.$(($$ % 9 + 1)); '
    'echo "ended $ROUTINES_TURN" >> {log}; echo done'
)


def words_of(log):
    """Return how often each turn key was begun and ended."""
    begun, ended = collections.Counter(), collections.Counter()
    if os.path.exists(log):
        with open(log, encoding="utf-8") as lines:
            for line in lines:
                word, key = line.split()
                (begun if word == "begun" else ended)[key] += 1
    return begun, ended


def wrongs(folder, state, log, names, each=1):
    """Yield in words whatever does not add up.

    Args:
        folder: The folder of the campaign, by which its processes are known.
        state: The state folder.
        log: What agents have written.
        names: The routines.
        each: The seconds between two slots of each of them.
    """
    begun, _ = words_of(log)
    for key, count in begun.items():
        if count > 1:
            yield f"{key} was begun {count} times"
    keys = set()
    for name in names:
        records = records_of(state, name)
        for record in records:
            keys.add(record.claim.get("key"))
            if not _waits(record, begun):
                yield from _of_record(state, record, begun)
        waiting = [record.ref for record in records if _waits(record, begun)]
        if len(waiting) > 1:
            yield f"more than one waits: {waiting}"
        yield from _of_slots(state, name, Each(each))
    for key in begun.keys() - keys:
        yield f"{key} was begun and has no claim"
    yield from _of_open(state)
    for pid, words in processes_of(folder).items():
        yield f"process {pid} is left: {words[:100]}"


def _waits(record, begun):
    """Return whether a slot is claimed and waits unstarted, for the next boot or its turn (L13)."""
    return record.end is None and record.started is None and not begun.get(record.claim.get("key"))


def open_refs(state, names):
    """Return the occurrences of *names* that have no outcome."""
    return {one.ref for name in names for one in records_of(state, name) if one.end is None}


def _of_open(state):
    """No claim is open; a draft that was never linked may stay for a minute (D1)."""
    claims = ClaimStore(open_for_reading(state))
    for entry in claims.open_entries():
        claim = os.path.join(state, entry.claim_path)
        record = claims.read_path(entry.claim_path)
        if record is not None and _waits(record, {}):
            continue
        if os.path.exists(claim) and os.path.samefile(
            claim, os.path.join(state, "open", entry.name)
        ):
            yield f"open/{entry.name} is left"


def _of_record(state, record, begun):
    if record.end is None:
        yield f"{record.ref} has no outcome"
        return
    if outcome_lines(state, record) != 1:
        yield f"{record.ref} has {outcome_lines(state, record)} outcomes"
    was_begun = begun[record.claim.get("key")] > 0
    if was_begun and record.started is None:
        yield f"{record.ref} was begun without `started`"
    if record.end["outcome"] == "completed" and not was_begun:
        yield f"{record.ref} is completed and was not begun"


def _of_slots(state, name, schedule):
    """Every slot from the cursor to the newest claim is claimed, or covered by a counted record."""
    cursors = CursorStore(open_for_reading(state))
    cursor = cursors.peek(name)
    if cursor is None:
        yield f"{name} has no cursor"
        return
    records = [one for one in records_of(state, name) if one.occurrence.kind is Kind.SLOT]
    slots = {record.occurrence.instant for record in records}
    ranges = list(cursors.missed(name))
    newest = max([*slots, *(one.last for one in ranges)], default=cursor.since)
    at = schedule.next_after(cursor.since)
    while at <= newest:
        if at not in slots and not any(one.after < at <= one.last for one in ranges):
            yield f"{name}@{at} is neither claimed nor recorded"
        at = schedule.next_after(at)


def outcomes_of(records):
    """Return how many records ended in which way."""
    found = collections.Counter()
    for record in records:
        end = record.end or {}
        found[
            ":".join(str(end[key]) for key in ("outcome", "reason") if end.get(key)) or "open"
        ] += 1
    return found
