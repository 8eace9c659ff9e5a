"""What becomes of a claim whose lock is free, by its last line and its owner (PROMISES L10, L11)."""

from datetime import timedelta

import pytest

from routines.domain.occurrence import Kind
from routines.domain.record import Event, Record
from routines.domain.recovery import Here, Recovery, decide, is_elsewhere, owner_is_this_boot
from tests.builders import BOOT, NOW, by_hand, firing, job, owner, slot

HERE = Here(host="6d616368696e65", boot=BOOT)
FRESH, SILENT = timedelta(minutes=9, seconds=59), timedelta(minutes=10)
OWN = owner()
EARLIER_BOOT = owner(boot="an-earlier-boot")
ELSEWHERE = owner(host="another", boot="of-another")
IN_CONTAINER = owner(host=None, boot="of-another")
NEIGHBOUR = owner(host=None)


def durable(*events, of=OWN, occurrence=None, run_id="r-1"):
    """A turn by a durable agent; a run line has the id that was known then."""
    lines = [{"event": "started", "durable": True}]
    lines += [{"event": str(one)} | ({"run_id": run_id} if one == "run" else {}) for one in events]
    claim = {"event": "claim", "owner": None if of is None else of.to_json()}
    return Record(occurrence or slot(), claim, tuple(lines))


def record(*events, of=OWN, occurrence=None, **claim):
    line = {"event": "claim", "owner": None if of is None else of.to_json(), **claim}
    return Record(occurrence or slot(), line, tuple({"event": str(event)} for event in events))


@pytest.mark.parametrize("of", [OWN, EARLIER_BOOT, NEIGHBOUR], ids=["own", "boot", "container"])
@pytest.mark.parametrize(
    ("events", "recovery"),
    [
        # Never started.
        ([], Recovery.OWED_AGAIN),
        ([Event.ATTEMPT], Recovery.OWED_AGAIN),
        ([Event.STARTED, Event.NOT_STARTED], Recovery.OWED_AGAIN),
        ([Event.ATTEMPT, Event.ATTEMPT], Recovery.NEVER_STARTED),
        # Started.
        ([Event.STARTED], Recovery.END_AND_INTERRUPT),
        ([Event.ATTEMPT, Event.STARTED], Recovery.END_AND_INTERRUPT),
        ([Event.STARTED, Event.CANCELLING], Recovery.END_AND_CANCEL),
        # Nobody's, until it is due or a person decides.
        ([Event.PARKED], Recovery.LEAVE),
    ],
)
def test_owner_that_is_known_to_be_gone_leaves_what_the_last_line_says(of, events, recovery):
    assert decide(record(*events, of=of), here=HERE, now=NOW, silent_for=timedelta(0)) is recovery


@pytest.mark.parametrize("of", [ELSEWHERE, IN_CONTAINER], ids=["host", "container"])
@pytest.mark.parametrize("events", [[], [Event.STARTED], [Event.STARTED, Event.CANCELLING]])
@pytest.mark.parametrize(
    ("silent", "recovery"), [(FRESH, Recovery.LEAVE), (SILENT, Recovery.PRESUME)]
)
def test_owner_on_another_host_is_believed_for_10_minutes_and_never_taken_over(
    of, events, silent, recovery
):
    assert decide(record(*events, of=of), here=HERE, now=NOW, silent_for=silent) is recovery


@pytest.mark.parametrize(
    ("silent", "recovery"), [(FRESH, Recovery.LEAVE), (SILENT, Recovery.SET_ASIDE)]
)
def test_claim_that_cannot_be_read_is_left_alone_for_10_minutes(silent, recovery):
    torn = Record(slot(), {})

    assert decide(torn, here=HERE, now=NOW, silent_for=silent) is recovery


@pytest.mark.parametrize(
    ("occurrence", "claim", "recovery"),
    [
        (by_hand(), {}, Recovery.DROP_MANUAL),
        (by_hand(), {"detached": False}, Recovery.DROP_MANUAL),
        (by_hand(), {"detached": True}, Recovery.OWED_AGAIN),
        (firing(), {}, Recovery.OWED_AGAIN),
        (job(), {}, Recovery.OWED_AGAIN),
    ],
)
def test_unstarted_run_by_hand_goes_with_the_one_who_typed_it(occurrence, claim, recovery):
    found = record(occurrence=occurrence, **claim)

    assert decide(found, here=HERE, now=NOW, silent_for=timedelta(0)) is recovery


@pytest.mark.parametrize("kind", list(Kind))
def test_started_turn_of_any_kind_is_interrupted_and_never_owed_again(kind):
    made = {Kind.SLOT: slot, Kind.MANUAL: by_hand, Kind.WAKE: firing, Kind.JOB: job}[kind]()
    found = record(Event.STARTED, occurrence=made, detached=True)

    assert decide(found, here=HERE, now=NOW, silent_for=timedelta(0)) is Recovery.END_AND_INTERRUPT


@pytest.mark.parametrize(
    ("of", "elsewhere", "this_boot"),
    [
        (OWN, False, True),
        (EARLIER_BOOT, False, False),
        # One boot id is one kernel, whatever the container says of its host.
        (NEIGHBOUR, False, True),
        (ELSEWHERE, True, False),
        (IN_CONTAINER, True, False),
        (owner(boot=None), False, False),
        (owner(host=None, boot=None), True, False),
        (None, False, False),
    ],
)
def test_numbers_of_an_owner_mean_something_on_its_own_boot_alone(of, elsewhere, this_boot):
    assert is_elsewhere(of, HERE) is elsewhere
    assert owner_is_this_boot(of, HERE) is this_boot


def test_without_a_boot_id_of_ours_nothing_is_this_boot():
    assert not owner_is_this_boot(OWN, Here(host=HERE.host, boot=None))
    assert is_elsewhere(owner(host=None, boot=None), Here(host=None, boot=None))


@pytest.mark.parametrize("of", [OWN, ELSEWHERE, None], ids=["own", "elsewhere", "nobody"])
@pytest.mark.parametrize(
    ("line", "recovery"),
    [
        ({"event": "parked"}, Recovery.LEAVE),
        ({"event": "buffered"}, Recovery.OWED_AGAIN),
        ({"event": "retry"}, Recovery.OWED_AGAIN),
        ({"event": "retry", "until": "2026-07-01T08:59:59Z"}, Recovery.OWED_AGAIN),
        ({"event": "retry", "until": "2026-07-01T09:00:00Z"}, Recovery.OWED_AGAIN),
        ({"event": "retry", "until": "2026-07-01T09:00:01Z"}, Recovery.LEAVE),
    ],
)
def test_what_has_no_owner_is_nobodys_whatever_host_or_boot_made_it(of, line, recovery):
    claim = {"event": "claim", "owner": None if of is None else of.to_json()}
    found = Record(slot(), claim, (line,))

    assert decide(found, here=HERE, now=NOW, silent_for=SILENT) is recovery


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize(
    "events",
    [
        [],
        [Event.RUN],
        [Event.CANCELLING],
        [Event.RUN, Event.CANCELLING],
        [Event.CANCELLING, Event.RUN],
    ],
)
def test_run_of_a_durable_agent_is_followed_and_never_interrupted(events, kind):
    made = {Kind.SLOT: slot, Kind.MANUAL: by_hand, Kind.WAKE: firing, Kind.JOB: job}[kind]()
    for silent in (timedelta(0), FRESH, SILENT):
        found = durable(*events, occurrence=made)
        assert decide(found, here=HERE, now=NOW, silent_for=silent) is Recovery.FOLLOW


@pytest.mark.parametrize(
    ("events", "run_id", "silent", "recovery"),
    [
        # Its owner may live, and is asking.
        ([Event.RUN], "r-1", FRESH, Recovery.LEAVE),
        ([], None, FRESH, Recovery.LEAVE),
        # By its id it is only asked about: nothing is begun by that.
        ([Event.RUN], "r-1", SILENT, Recovery.FOLLOW),
        # To repeat the start might begin it twice: the agent may be that host's own.
        ([], None, SILENT, Recovery.PRESUME),
        ([Event.RUN], None, SILENT, Recovery.PRESUME),
    ],
)
def test_run_of_another_host_is_asked_about_and_its_start_never_repeated(
    events, run_id, silent, recovery
):
    found = durable(*events, of=ELSEWHERE, run_id=run_id)

    assert decide(found, here=HERE, now=NOW, silent_for=silent) is recovery


def test_durable_turn_that_never_started_is_owed_like_any_other():
    found = durable(Event.NOT_STARTED)

    assert decide(found, here=HERE, now=NOW, silent_for=timedelta(0)) is Recovery.OWED_AGAIN


def test_what_comes_only_once_is_parked_where_a_recurring_slot_has_failed():
    tried = [Event.ATTEMPT, Event.ATTEMPT]
    found = record(*tried, recurs=False)

    assert decide(found, here=HERE, now=NOW, silent_for=timedelta(0)) is Recovery.PARK
