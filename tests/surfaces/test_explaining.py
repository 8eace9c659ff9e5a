"""`explain`: one first line for every way in which a slot can have no turn."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from routines.domain.occurrence import Kind
from routines.store.cursors import CursorStore, Standing
from tests.surfaces.world import NOW, World, berlin, owner


def verdict(ws: World, *words: str) -> str:
    answer = ws.ask("explain", *words, width=400)
    assert answer.code == 0, answer.err
    return answer.out.splitlines()[1]


@pytest.fixture
def audit(ws: World) -> World:
    ws.cron("nightly-audit", "0 3 * * *", since=berlin("2026-11-20 18:00"))
    return ws


def test_owed_says_since_when_nobody_is_there_and_what_the_next_start_does(audit):
    ended = berlin("2026-11-28 23:10")
    audit.scheduler(alive=False, beat_at=ended, ended_at=ended, why="pid 4121 was killed")
    audit.done("nightly-audit", berlin("2026-11-28 03:00"))

    assert verdict(audit, "nightly-audit") == (
        "owed: no scheduler has been alive since Sat 28 Nov 23:10 (pid 4121 was killed)."
        " The next start runs it: catch_up is one."
    )


def test_a_scheduler_that_was_killed_is_known_by_its_free_lock(audit):
    audit.done("nightly-audit", berlin("2026-11-28 03:00"))
    audit.scheduler(beat_at=berlin("2026-11-28 23:10"))
    audit.close()

    assert "since Sat 28 Nov 23:10 (pid 4121 was killed)" in verdict(audit, "nightly-audit")


def test_an_older_slot_of_one_absence_is_recorded_as_missed_by_the_next_start(audit):
    audit.done("nightly-audit", berlin("2026-11-26 03:00"))

    assert verdict(audit, "nightly-audit", "2026-11-27 03:00").endswith(
        "The next start records it as missed: catch_up is one."
    )


def test_missed_says_what_the_record_says(audit):
    audit.gave_up(
        "nightly-audit",
        berlin("2026-11-27 03:00"),
        berlin("2026-11-29 03:00"),
        "asleep",
        detail="the machine was asleep Sat 23:10 to Sun 07:55, and start_within is 4 h",
    )

    assert verdict(audit, "nightly-audit", "2026-11-28 03:00") == (
        "missed x2: the machine was asleep Sat 23:10 to Sun 07:55, and start_within is 4 h."
    )


def test_what_the_schedule_does_not_name_was_never_due(audit):
    assert verdict(audit, "nightly-audit", "12:30") == (
        "never due: Sun 29 Nov 12:30 is not in '0 3 * * *'."
        " The nearest slots are Sun 29 Nov 03:00 and Mon 30 Nov 03:00."
    )


def test_what_lies_before_the_routine_was_first_seen_was_never_due(ws):
    ws.cron("nightly-audit", "0 3 * * *")

    assert verdict(ws, "nightly-audit", "2026-09-30 03:00") == (
        "never due: nightly-audit was first seen Thu 1 Oct 02:00 +02:00; it owes nothing from before."
    )


def test_what_lies_before_a_change_of_the_schedule_was_never_due(audit):
    assert verdict(audit, "nightly-audit", "2026-11-20 03:00") == (
        "never due: it counts from Fri 20 Nov 18:00:"
        " its schedule was changed then, or it was switched on again."
    )


def test_an_old_record_that_is_gone_is_unknown(ws):
    ws.cron("nightly-audit", "0 3 * * *")
    ws.done("nightly-audit", berlin("2026-11-29 03:00"))

    assert verdict(ws, "nightly-audit", "2026-10-20 03:00") == (
        "unknown: its record was pruned (older than 30 days and not among the newest 1000)."
    )


@pytest.mark.parametrize(
    ("standing", "says"),
    [
        ("disabled", "it was disabled when a scheduler last saw it"),
        ("not-armed", "its file could not be used when a scheduler last saw it"),
        ("absent", "it had no file when a scheduler last saw it"),
    ],
)
def test_a_slot_of_one_that_is_armed_again_and_was_not_seen_since_is_owed(audit, standing, says):
    seen_as(audit, standing)
    audit.done("nightly-audit", berlin("2026-11-27 03:00"))

    assert verdict(audit, "nightly-audit", "2026-11-28 03:00") == (
        f"owed: {says}: the next start or tick records it as missed."
    )


@pytest.mark.parametrize("enabled", ["true", "false"])
@pytest.mark.parametrize("standing", ["armed", "disabled", "absent"])
def test_a_slot_of_a_schedule_that_no_scheduler_has_seen_was_never_due(audit, standing, enabled):
    audit.done("nightly-audit", berlin("2026-11-27 03:00"))
    seen_as(audit, standing)
    changed = f'cron: "0 3 * * *"\ntz: America/New_York\nenabled: {enabled}\n'
    audit.routine("nightly-audit", changed)

    assert verdict(audit, "nightly-audit", "2026-11-28 03:00") == (
        "never due: its schedule was changed, and counts from when a scheduler has seen that."
    )


def test_a_slot_that_the_changed_schedule_names_too_is_recorded_by_the_next_start(audit):
    audit.done("nightly-audit", berlin("2026-11-27 03:00"))
    audit.routine("nightly-audit", 'cron: "0 * * * *"\n')

    assert verdict(audit, "nightly-audit", "2026-11-28 03:00") == (
        "owed: its schedule was changed before it could start:"
        " the next start or tick records it as missed."
    )
    assert verdict(audit, "nightly-audit", "2026-11-28 04:00").startswith("never due: its schedule")


def test_a_slot_whose_jitter_has_not_passed_is_not_yet_due(ws):
    ws.scheduler()
    ws.cron("spread", "0 16 * * *", "jitter: 4h\n")
    ws.done("spread", berlin("2026-11-28 16:00"))

    found = verdict(ws, "spread")

    assert found.startswith("not yet: Sun 29 Nov 16:00 falls due Sun 29 Nov 1")
    assert found.endswith(", by its jitter.")


def test_a_slot_without_a_record_before_one_that_has_one_is_unknown_and_no_more_is_said(audit):
    audit.done("nightly-audit", berlin("2026-11-29 03:00"))

    assert verdict(audit, "nightly-audit", "2026-11-28 03:00") == (
        "unknown: nothing is recorded of it, though of Sun 29 Nov 03:00 something is:"
        " if it had a record, it is gone."
    )


def seen_as(ws: World, standing: str) -> None:
    """The routine as a scheduler last saw it, before its file became what it is."""
    from routines.store.cursors import CursorStore, Standing

    store = CursorStore(ws.state)
    cursor = store.peek("nightly-audit")
    at = berlin("2026-11-26 12:00")
    store.write(cursor.with_(standing=Standing(standing), standing_at=at))


def test_a_slot_that_is_ahead_is_not_yet_due(audit):
    audit.scheduler()
    audit.done("nightly-audit", berlin("2026-11-29 03:00"))

    assert verdict(audit, "nightly-audit", "2026-11-30 03:00") == (
        "not yet: Mon 30 Nov 03:00 is ahead; as things stand it would run."
    )


def test_a_slot_that_nobody_has_seen_was_never_due(ws):
    ws.routine("new", 'cron: "0 3 * * *"\n')

    assert verdict(ws, "new") == "never due: no scheduler has seen new yet."


def test_a_routine_whose_file_was_never_right_is_explained_by_what_is_wrong_with_it(ws):
    ws.routine("each", "every: 5s\nprompt: hi\n")

    answer = ws.ask("explain", "each")

    assert answer.code == 1
    assert "routines/each.yaml:1:8: every: 5s" in answer.err
    assert "no schedule" not in answer.err


def test_a_full_house_says_how_long_the_line_is(ws):
    ws.settings("tz: Europe/Berlin\nagent: echo\nconcurrency: 1\n")
    ws.scheduler()
    ws.cron("long", "0 16 * * *")
    ws.started(ws.claim("long", berlin("16:00")))
    for minute, name in ((10, "first"), (11, "second")):
        ws.cron(name, f"{minute} 16 * * *", since=berlin("2026-11-29 08:00"))

    assert verdict(ws, "second") == "waiting: 2nd of 2 in line (concurrency 1)."


def test_a_slot_beside_schedulers_that_start_none_waits_for_the_clock_outside(ws):
    ws.cron("daily", "10 16 * * *", since=berlin("2026-11-29 08:00"))

    ws.scheduler(external_clock=True)

    says = "waiting: for the outside clock to deliver it: routines tick, or fire."
    assert verdict(ws, "daily") == says
    ws.scheduler(scheduler_id="another")
    assert verdict(ws, "daily") == "waiting: about to start."


def test_a_busy_session_names_who_has_it(ws):
    ws.scheduler()
    ws.cron("daily", "10 16 * * *", "session: named:shared\n", since=berlin("2026-11-29 08:00"))
    ws.session("named:shared", held_by="ana (pid 77)")
    from routines.store.sessions import SessionStore

    lease = SessionStore(ws.state).take("named:shared", clock=ws.clock)

    assert verdict(ws, "daily") == "waiting: its session is busy: ana (pid 77)."
    lease.let_go()


def test_a_day_alone_means_the_newest_of_that_day(ws):
    ws.cron("often", "0 * * * *")
    ws.done("often", berlin("2026-11-27 09:00"))
    ws.done("often", berlin("2026-11-27 17:00"), "failed", "exit", "exit 1: no")

    assert verdict(ws, "often", "2026-11-27") == "failed after 41 s: exit 1: no"
    assert "often@2026-11-27T16:00:00Z" in ws.ask("show", "often@2026-11-27").out


@pytest.fixture
def absence(ws: World) -> World:
    """Hourly slots, of which one record of eight days counts all but the last."""
    ws.cron("often", "0 * * * *")
    ws.done("often", berlin("2026-11-20 12:00"))
    ws.gave_up("often", berlin("2026-11-20 12:00"), berlin("2026-11-28 23:00"), "no-scheduler")
    ws.done("often", berlin("2026-11-29 00:00"))
    return ws


@pytest.mark.parametrize("day", [20, 21, 24, 27])
def test_a_day_within_an_absence_is_found_in_its_counted_record(absence, day):
    out = absence.ask("explain", "often", f"2026-11-{day}", width=400).out

    assert f" {day} Nov 23:00 Europe/Berlin" in out.splitlines()[0]
    assert out.splitlines()[1] == ("missed x203: no scheduler was alive until Sun 29 Nov 16:18.")
    assert absence.ask("show", f"often@2026-11-{day}").code == 0


def test_a_claim_of_a_day_outranks_the_record_of_the_absence_that_counts_it(absence):
    absence.done("often", berlin("2026-11-24 23:00"), "failed", "exit", "exit 1: no")
    absence.done("often", berlin("2026-11-25 12:00"), "failed", "exit", "exit 1: no")

    assert verdict(absence, "often", "2026-11-24") == "failed after 41 s: exit 1: no"
    assert verdict(absence, "often", "2026-11-25").startswith("missed")


def test_a_day_that_an_absence_only_passed_over_is_not_said_to_be_missed(ws):
    ws.cron("weekly", "0 12 * * 5")
    ws.gave_up("weekly", berlin("2026-11-12 12:00"), berlin("2026-11-27 12:00"), "no-scheduler")

    assert ws.ask("show", "weekly@2026-11-21").code == 1
    assert ws.ask("show", "weekly@2026-11-20").code == 0


def test_a_day_of_which_nothing_is_recorded_is_named_as_its_zone_has_it(ws):
    ws.cron("often", "0 * * * *")

    answer = ws.ask("show", "often@2026-11-24")

    assert "nothing is recorded of often on 2026-11-24" in answer.err
    assert "routines explain often 2026-11-24" in answer.err


def test_a_slot_that_was_claimed_and_not_started_by_who_is_gone_is_owed_and_not_lost(audit):
    from routines.agents.identity import process_identity
    from tests.builders import owner

    gone = owner(**(process_identity() or {})).to_json() | {"pid": 2**22 - 1}
    audit.done("nightly-audit", berlin("2026-11-28 03:00"))
    audit.claim("nightly-audit", berlin("03:00"), owner=gone).let_go()

    left = f"not started, and its owner (pid {2**22 - 1}) is gone: a scheduler takes it up"
    assert verdict(audit, "nightly-audit") == f"claimed since Sun 29 Nov 03:00: {left}"
    assert left in audit.ask("history", "nightly-audit", width=160).out
    told = audit.ask("doctor", "--only", "turns,outcomes", width=200)
    assert told.code == 0
    assert "; 1 claimed and not started: the next scheduler takes it up" in told.out
    listed = audit.ask("list", width=120).out
    assert "lost" not in listed
    assert re.search(r"nightly-audit +owed ", listed)


def test_a_turn_whose_owner_is_gone_is_lost(audit):
    # This very boot of this very host, and a process that is not there.
    from routines.agents.identity import process_identity
    from tests.builders import owner

    gone = owner(**(process_identity() or {})).to_json() | {"pid": 2**22 - 1}
    claim = audit.claim("nightly-audit", berlin("03:00"), owner=gone)
    audit.started(claim, owner=gone)
    claim.let_go()

    assert verdict(audit, "nightly-audit") == "lost since Sun 29 Nov 03:00"
    assert "! today 03:00    lost" in audit.ask("history", "nightly-audit").out
    assert audit.ask("doctor", "--only", "turns").code == 1


def test_a_turn_of_another_host_can_not_be_told_from_here(audit):
    claim = audit.claim("nightly-audit", berlin("03:00"))
    audit.started(claim)
    claim.let_go()

    assert verdict(audit, "nightly-audit").startswith("can't tell since")
    assert (
        "can't tell from here: owner ana@studio, pid 4121"
        in audit.ask("history", "nightly-audit", width=120).out
    )


def test_a_routine_whose_file_is_gone_is_still_explained(audit):
    audit.done("nightly-audit", berlin("2026-11-28 03:00"), "failed", "exit", "exit 2: no")
    (audit.root / "routines" / "nightly-audit.yaml").unlink()

    assert verdict(audit, "nightly-audit", "2026-11-28 03:00") == "failed after 41 s: exit 2: no"
    assert "It has no file that can be used now" in audit.ask("explain", "nightly-audit").out


def test_records_dated_in_the_future_do_not_stand_for_the_present(audit):
    audit.done("nightly-audit", berlin("2026-11-29 03:00"))
    ahead = NOW + timedelta(days=400)
    audit.settled("nightly-audit", ahead.replace(hour=2, minute=0), "skipped", "busy")

    assert verdict(audit, "nightly-audit") == "completed in 41 s"


@pytest.mark.parametrize(
    ("change", "standing", "says"),
    [
        (
            "disabled",
            Standing.DISABLED,
            "it is disabled since {}. It is recorded as missed when it is enabled again.",
        ),
        (
            "gone",
            Standing.ABSENT,
            "its file is gone since {}. It is recorded as missed when it is back.",
        ),
        (
            "broken",
            Standing.NOT_ARMED,
            "its file can't be used since {}. It is recorded as missed when it can be used again.",
        ),
        (
            "disabled",
            Standing.ARMED,
            "it is disabled, which no scheduler has seen yet: the next look records it as missed.",
        ),
    ],
)
def test_a_slot_that_passed_while_its_file_asked_for_none_says_so(audit, change, standing, says):
    audit.scheduler()
    audit.done("nightly-audit", berlin("2026-11-28 03:00"))
    text = (
        'cron: "0 3 * * *"\nprompt: x\nenabled: false\n' if change == "disabled" else "promt: x\n"
    )
    audit.routine("nightly-audit", text)
    if change == "gone":
        (audit.root / "routines" / "nightly-audit.yaml").unlink()
    store = CursorStore(audit.state)
    seen = store.read("nightly-audit")
    store.write(replace(seen, standing=standing, standing_at=berlin("2026-11-28 12:00")))

    assert verdict(audit, "nightly-audit") == f"owed: {says.format('Sat 28 Nov 12:00')}"


def test_a_slot_within_a_counted_range_has_its_own_id_and_what_lies_between_was_never_due(audit):
    first, last = berlin("2026-11-25 03:00"), berlin("2026-11-28 03:00")
    audit.gave_up("nightly-audit", first - timedelta(days=1), last, "no-scheduler")

    head = audit.ask("explain", "nightly-audit", "2026-11-26 03:00").out.splitlines()[0]
    assert head.startswith("nightly-audit@2026-11-26T02:00:00Z   Thu 26 Nov 03:00")
    assert verdict(audit, "nightly-audit", "2026-11-26 03:00").startswith("missed x4: ")
    between = audit.ask("explain", "nightly-audit", "2026-11-26 03:20", width=200).out
    assert between.startswith("nightly-audit@2026-11-26T02:20:00Z")
    assert "never due: Thu 26 Nov 03:20 is not in '0 3 * * *'." in between


def test_a_file_that_was_edited_since_is_said_to_be(audit):
    audit.done(
        "nightly-audit", berlin("2026-11-29 03:00"), claim={"definition": "0123456789abcdef"}
    )

    assert (
        "due       cron '0 3 * * *'; its file was edited since"
        in audit.ask("explain", "nightly-audit").out
    )


def test_times_of_a_routine_whose_file_is_gone_are_read_in_its_own_zone(ws):
    ws.seen("us", {"cron": ["0 9 * * *"], "tz": "America/New_York"})
    ws.done("us", berlin("2026-11-27 15:00"))

    assert "us@2026-11-27T14:00:00Z   Fri 27 Nov 09:00 America/New_York" in ws.ask("show", "us").out
    assert "America/New_York" in ws.ask("explain", "us", "2026-11-27 09:00").out


def test_a_name_alone_means_its_newest_slot_and_no_newer_run_by_hand(audit):
    from routines.domain.occurrence import Kind

    audit.scheduler()
    slot = audit.done("nightly-audit", berlin("03:00"))
    later = audit.claim(
        "nightly-audit", berlin("12:00"), kind=Kind.MANUAL, occurrence_id="aaaaaa", trigger="manual"
    )
    audit.started(later)
    audit.end(later)
    audit.output("nightly-audit/2026-11-29/2026-11-29T02-00-00Z", prompt="Audit.")

    out = audit.ask("explain", "nightly-audit").out

    assert out.startswith(slot)
    # The name alone would show the run by hand.
    assert f"routines show {slot}" in out


def test_of_a_routine_without_a_schedule_its_newest_run_is_meant(ws):
    from routines.domain.occurrence import Kind

    ws.routine("by-name", "")
    run = ws.claim(
        "by-name", berlin("12:00"), kind=Kind.MANUAL, occurrence_id="aaaaaa", trigger="manual"
    )
    ws.started(run)

    assert ws.ask("explain", "by-name").out.startswith(ws.end(run))


@pytest.mark.parametrize("ref", ["w-7k3m9q", "wake:w-7k3m9q@2026-11-29T15:00:00Z"])
def test_a_firing_is_explained_by_the_id_of_its_wakeup_and_by_its_own(audit, ref):
    session = "routine:nightly-audit"
    firing = audit.claim(
        session,
        berlin("16:00"),
        kind=Kind.WAKE,
        occurrence_id="w-7k3m9q",
        routine="nightly-audit",
        session=session,
        trigger="wakeup",
        wakeup={"id": "w-7k3m9q", "created_by": "ana@studio"},
    )
    audit.started(firing)
    audit.end(firing, "failed", "exit", "exit 1: no")

    out = audit.ask("explain", ref, width=120).out

    assert out.startswith("wake:w-7k3m9q@2026-11-29T15:00:00Z   Sun 29 Nov 16:00")
    assert out.splitlines()[1] == "failed after 41 s: exit 1: no"
    assert "due       wake-up w-7k3m9q, set by ana" in out


def test_a_run_by_hand_is_explained_by_its_id_whatever_is_newer(audit):
    run = audit.claim(
        "nightly-audit",
        berlin("16:00"),
        kind=Kind.MANUAL,
        occurrence_id="6c4d12",
        trigger="manual",
    )
    audit.started(run)
    audit.end(run, "failed", "exit", "exit 1: no")
    audit.done("nightly-audit", berlin("2026-11-29 03:00"))

    out = audit.ask("explain", run.record.ref, width=120).out

    assert out.startswith("manual:2026-11-29T15-00-00Z-6c4d12   Sun 29 Nov 16:00")
    assert out.splitlines()[1] == "failed after 41 s: exit 1: no"


def test_a_wakeup_that_has_not_fired_is_said_to_be_where_it_is_shown(audit):
    answer = audit.ask("explain", "w-zzzzzz")

    assert answer.code == 1
    assert "no routine" not in answer.err


# What has not ended -------------------------------------------------------------------------------


def steps(ws: World, *words: str) -> list[str]:
    """The steps as words and texts, without their times."""
    out = ws.ask("explain", *words, width=400).out.splitlines()
    return [row[12:] for row in out[3 : out.index("", 3)]]


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("not delivered within 10 s", ["delivery  of {ref} hung: sleep 777, {detail}"]),
        ("exit 1: refused", []),
    ],
)
def test_a_slot_that_was_skipped_says_that_a_delivery_of_the_turn_before_hung(ws, detail, said):
    ws.scheduler()
    ws.cron("poll", "*/15 * * * *")
    delivered = [{"to": "sleep 777", "ok": False, "detail": detail}]
    before = ws.started(ws.claim("poll", berlin("16:00")))
    ref = ws.end(before, took=905, delivered=delivered, warnings=["not-delivered"])
    skipped = ws.claim("poll", berlin("16:15"))
    ws.end(skipped, "skipped", "overlap", f"{ref} is still running", took=0)

    found = [one for one in steps(ws, "poll") if one.startswith("delivery ")]
    assert found == [one.format(ref=ref, detail=detail) for one in said]


def open_with(ws: World, word: str, **line: object) -> None:
    from routines.domain.record import Event

    claim = ws.claim("nightly-audit", berlin("03:00"))
    claim.append(Event(word), at=berlin("03:01"), **line)
    claim.let_go()


def test_a_buffered_slot_says_what_it_waits_for(audit):
    open_with(audit, "buffered")

    assert verdict(audit, "nightly-audit") == (
        "buffered since Sun 29 Nov 03:00: waits until the turn before it has ended"
    )
    assert steps(audit, "nightly-audit")[-1] == (
        "buffered  waits until the turn before it has ended"
    )


def test_a_slot_that_is_tried_again_says_when_and_why(audit):
    open_with(audit, "retry", until="2026-11-29T15:30:00Z", detail="connection refused")

    assert verdict(audit, "nightly-audit") == (
        "retrying: again at Sun 29 Nov 16:30: connection refused"
    )
    assert steps(audit, "nightly-audit")[-1] == (
        "retry     tried again at Sun 29 Nov 2026 16:30 +01:00: connection refused"
    )
    assert "again 16:30: connection refused" in audit.ask("history", "nightly-audit").out


def test_a_turn_that_is_run_again_says_which_time_it_is(audit):
    open_with(audit, "retry", until="2026-11-29T15:00:00Z", detail="ana died", rerun=1)

    assert verdict(audit, "nightly-audit") == "retrying: again now: ana died"
    assert steps(audit, "nightly-audit")[-1] == "retry     run again as #2: ana died"


def test_a_parked_slot_says_how_it_goes_on_and_who_let_it(audit):
    audit.scheduler()
    open_with(audit, "parked", detail="connection refused")

    assert verdict(audit, "nightly-audit") == (
        "parked: connection refused. routines recover nightly-audit lets it run after all"
    )
    audit.ask("recover", "nightly-audit")
    found = steps(audit, "nightly-audit")
    assert found[-2] == (
        "parked    waits for a person, `routines recover` or `routines cancel`: connection refused"
    )
    assert found[-1].startswith("retry     recovered by ")
    assert found[-1].endswith(": tried at once, however late")


def test_a_superseded_slot_names_the_newer_one(audit):
    from routines.domain.record import Event

    claim = audit.started(audit.claim("nightly-audit", berlin("03:00")))
    newer = "nightly-audit@2026-11-29T03:00:00Z"
    claim.append(Event.CANCELLING, at=berlin("04:00"), by="ana@studio", person=False, newer=newer)
    audit.end(claim, "superseded", None, f"by {newer}", took=3605)

    assert verdict(audit, "nightly-audit") == f"superseded after 1 h: by {newer}"
    assert f"cancelling  makes way for {newer}" in steps(audit, "nightly-audit")


def test_a_cancelled_turn_says_who_asked(audit):
    from routines.domain.record import Event

    claim = audit.started(audit.claim("nightly-audit", berlin("03:00")))
    claim.append(Event.CANCELLING, at=berlin("03:10"), by="ben@studio", person=True)
    audit.end(claim, "cancelled", "person", "wrong branch", took=605)

    assert "cancelling  asked by ben@studio" in steps(audit, "nightly-audit")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nightly-audit",), "paused by {by} since Sun 29 Nov 02:00 (moving)."),
        (("--all",), "everything is paused by {by} since Sun 29 Nov 02:00 (moving)."),
    ],
)
def test_a_slot_that_falls_due_in_a_pause_says_who_paused_it(audit, words, says):
    import json

    audit.scheduler()
    audit.done("nightly-audit", berlin("2026-11-28 03:00"))
    audit.clock = type(audit.clock)(berlin("02:00"))
    (found,) = json.loads(audit.ask("pause", *words, "--reason", "moving", "--json").out)
    audit.clock = type(audit.clock)(NOW)

    assert verdict(audit, "nightly-audit") == (
        says.format(by=found["paused"]["by"]) + " It is recorded as missed: paused when that ends."
    )
    answer = json.loads(audit.ask("explain", "nightly-audit", "--json").out)
    assert answer["verdict"] == "paused"


def test_a_one_shot_that_falls_due_in_a_pause_fires_when_that_ends(ws):
    ws.routine("once", 'at: "2026-11-29 09:00"\n')
    ws.seen("once", {"at": "2026-11-29T08:00:00Z", "tz": "Europe/Berlin"})
    ws.scheduler()
    ws.ask("pause", "once")

    assert verdict(ws, "once").endswith(". It fires when that ends.")


@pytest.mark.parametrize(
    ("within", "words", "then"),
    [
        ("2h", (), "It is recorded as missed: too-late when that ends."),
        ("8h", (), "It fires when that ends."),
        ("8h", ("--until", "2h"), "It is recorded as missed: too-late when that ends."),
        ("8h", ("--until", "30m"), "It fires when that ends."),
    ],
)
def test_a_one_shot_that_would_be_too_late_after_a_pause_is_not_promised(ws, within, words, then):
    ws.routine("once", f'at: "2026-11-29 09:00"\nstart_within: {within}\n')
    ws.seen("once", {"at": "2026-11-29T08:00:00Z", "tz": "Europe/Berlin"})
    ws.scheduler()
    ws.ask("pause", "once", *words)

    assert verdict(ws, "once").endswith(f". {then}")


def test_the_line_of_the_claim_names_the_process_that_claimed(audit):
    audit.scheduler()
    claimer = owner().to_json()
    claim = audit.claim("nightly-audit", berlin("03:00"))
    audit.started(claim, owner=claimer | {"pid": claimer["pid"] + 1})
    audit.end(claim)

    (line,) = [one for one in steps(audit, "nightly-audit") if one.startswith("claimed ")]
    assert f"(pid {claimer['pid']})" in line


def test_what_is_put_off_in_a_pause_says_that_too(audit):
    open_with(audit, "retry", until="2026-11-29T15:30:00Z", detail="connection refused")
    audit.ask("pause", "nightly-audit")

    assert "connection refused; paused by " in verdict(audit, "nightly-audit")


@pytest.mark.parametrize(
    ("words", "foot"),
    [
        (
            ("nightly-audit",),
            "Next: Mon 30 Nov 03:00, but it is paused: routines resume nightly-audit",
        ),
        (("--all",), "Next: Mon 30 Nov 03:00, but it is paused: routines resume --all"),
        (("nightly-audit", "--until", "1h"), "Next: Mon 30 Nov 03:00, in 10 h 42 m."),
    ],
)
def test_a_next_slot_that_will_not_start_is_not_promised(audit, words, foot):
    audit.scheduler()
    audit.done("nightly-audit", berlin("03:00"))
    audit.ask("pause", *words)

    assert foot in audit.ask("explain", "nightly-audit").out
    import json

    found = json.loads(audit.ask("explain", "nightly-audit", "--json").out)
    assert "@" in found["paused"]["by"]


# Every outcome and every reason -------------------------------------------------------------------

EVERY_REASON = [
    ("completed", None, "completed in 41 s"),
    ("skipped", "overlap", "skipped: its own earlier turn was still running"),
    ("skipped", "busy", "skipped: its session was busy for too long"),
    ("skipped", "gate", "skipped: only_if did not let it through"),
    ("skipped", "limit", "skipped: the limit of its day was reached"),
    ("skipped", "edited", "skipped: its file was edited and no longer asks for it"),
    ("skipped", "refused", "skipped: it was not authorized"),
    ("missed", "no-scheduler", "missed x2: no scheduler was alive until Sun 29 Nov 16:18."),
    ("missed", "asleep", "missed x2: the machine was asleep until Sun 29 Nov 16:18."),
    ("missed", "paused", "missed x2: it was paused until Sun 29 Nov 16:18."),
    ("missed", "disabled", "missed x2: it was disabled until Sun 29 Nov 16:18."),
    ("missed", "not-armed", "missed x2: its file could not be used until Sun 29 Nov 16:18."),
    ("missed", "too-late", "missed x2: it could not start within start_within of its time."),
    ("missed", "over-bound", "missed x2: more slots were owed than max_catch_up."),
    ("missed", "busy", "missed x2: its session was busy for too long."),
    ("missed", "stale", "missed x2: a newer slot had been dealt with before it came."),
    ("failed", "agent", "failed after 41 s: the agent said that it failed"),
    ("failed", "exit", "failed after 41 s: the agent ended with an exit code that is not 0"),
    ("failed", "signal", "failed after 41 s: the agent was ended by a signal"),
    ("failed", "not-found", "failed after 41 s: the agent's program was not found"),
    (
        "failed",
        "not-started",
        "failed after 41 s: the agent could not be reached, and nothing was started",
    ),
    ("failed", "lane", "failed after 41 s: its whole lane was failed by a program"),
    ("failed", "verify", "failed after 41 s: verify did not accept what the turn did"),
    ("failed", "gate", "failed after 41 s: only_if did not let it through"),
    (
        "failed",
        "session-changed",
        "failed after 41 s: the agent answered from another conversation than was asked",
    ),
    ("failed", "session-lost", "failed after 41 s: the agent no longer has the conversation"),
    (
        "failed",
        "bad-output",
        "failed after 41 s: the agent's output can't be read as its entry says",
    ),
    (
        "failed",
        "not-durable",
        "failed after 41 s: its claim could not be brought to the disk, so nothing was started",
    ),
    ("interrupted", "stopped", "interrupted after 41 s: the scheduler was stopped while it ran"),
    ("interrupted", "owner-died", "interrupted after 41 s: the process that ran it died"),
    (
        "interrupted",
        "presumed",
        "interrupted after 41 s: its host has given no sign of life for 10 min",
    ),
    ("interrupted", "owner-unknown", "interrupted after 41 s: its claim can't be read"),
    ("interrupted", "outcome-unknown", "interrupted after 41 s: nobody can tell how it ended"),
    ("interrupted", "copied", "interrupted after 41 s: the state folder was copied while it ran"),
    ("timed-out", "timeout", "timed-out after 41 s: it was ended at its timeout"),
    ("cancelled", "person", "cancelled after 41 s: a person cancelled it"),
    ("cancelled", "turn", "cancelled after 41 s: another turn cancelled it"),
    ("cancelled", "purge", "cancelled after 41 s: its queue was purged"),
    ("superseded", None, "superseded after 41 s: a newer slot took its place"),
]


def test_the_table_has_every_outcome_with_every_reason():
    from routines.domain.outcome import REASONS

    known = [(o.value, r and r.value) for o, rs in REASONS.items() for r in rs or [None]]
    table = [(outcome, reason) for outcome, reason, _ in EVERY_REASON]

    assert sorted(map(str, table)) == sorted(map(str, known))


@pytest.mark.parametrize("alive", [True, False], ids=["scheduler", "no scheduler"])
@pytest.mark.parametrize(("outcome", "reason", "says"), EVERY_REASON)
def test_every_reason_is_a_sentence_whether_a_scheduler_is_alive_or_not(
    audit, outcome, reason, says, alive
):
    if alive:
        audit.scheduler()
    if outcome == "missed":
        audit.gave_up(
            "nightly-audit", berlin("2026-11-27 03:00"), berlin("2026-11-29 03:00"), reason
        )
    elif outcome == "skipped":
        audit.settled("nightly-audit", berlin("03:00"), outcome, reason)
    else:
        audit.done("nightly-audit", berlin("03:00"), outcome, reason)

    assert verdict(audit, "nightly-audit") == says
    foot = audit.ask("explain", "nightly-audit", width=200).out.splitlines()[-1]
    when = "in 10 h 42 m" if alive else "once a scheduler is alive: routines start"
    assert foot == f"Next: Mon 30 Nov 03:00, {when}. Now, by hand: routines run nightly-audit"
    assert verdict(audit, "nightly-audit", "2026-11-29 03:00") == says
    if reason is not None:
        row = audit.ask("history", "nightly-audit", width=120).out
        assert outcome in row
        assert reason in row or outcome == "missed" or reason == "timeout", row
