"""What a person sees of delivery and alerts: list, show, explain, doctor and check."""

import json
from datetime import timedelta

import pytest

from routines.domain.alerting import Told
from routines.domain.occurrence import Kind
from routines.store.alerts import AlertStore
from tests.surfaces.world import NOW, berlin

DELIVERED = [
    {"to": "digests/", "ok": True, "detail": ""},
    {"to": "desktop", "ok": False, "detail": "exit 1: no\x1b[2J display"},
]
TOLD = Told(open=True, kind="failing", at=berlin("2026-11-27 03:00") + timedelta(seconds=2))


def failing(ws):
    ws.cron("audit", "0 3 * * *")
    for day in (27, 28):
        ws.done("audit", berlin(f"2026-11-{day} 03:00"), "failed", "exit", "exit 1: no", took=2)


def test_show_says_where_a_reply_went_and_where_not(ws):
    ws.cron("digest", "0 9 * * *")
    ws.done("digest", berlin("09:00"), delivered=DELIVERED, warnings=["not-delivered"])

    out = ws.ask("show", "digest").out
    assert "delivered to digests/" in out
    assert "! not delivered to desktop: exit 1: no\\x1b[2J display" in out
    (record,) = json.loads(ws.ask("history", "digest", "--json").out)
    assert record["delivered"] == DELIVERED


def test_reply_of_a_real_turn_is_delivered_by_its_own_process(ws):
    ws.routine("digest", "prompt: Say hello.\ndeliver: [{file: digests/}]\n")

    record = json.loads(ws.ask("run", "digest", "--json").out)
    assert record["delivered"] == [{"to": "digests/", "ok": True, "detail": ""}]
    (path,) = (ws.root / "digests").iterdir()
    assert path.read_text().endswith("Say hello.\n")


def test_quiet_reply_of_a_real_turn_is_kept_and_not_delivered(ws):
    quiet = "'turn 1 of routine:digest: NOTHING'"
    ws.routine("digest", f"prompt: NOTHING\ndeliver: [{{file: digests/}}]\nquiet: {quiet}\n")

    record = json.loads(ws.ask("run", "digest", "--json").out)
    assert record["delivered"] == [{"to": "nobody", "ok": True, "detail": "quiet"}]
    assert (record["outcome"], record["warnings"]) == ("completed", [])
    assert not (ws.root / "digests").exists()


def test_explain_says_that_a_slot_was_told_of_or_why_not(ws):
    failing(ws)
    AlertStore(ws.state).write("audit", {"turns": TOLD})

    first = ws.ask("explain", "audit", "2026-11-27 03:00").out
    assert "alert     told the log; the next word is the recovery" in first
    second = ws.ask("explain", "audit", "2026-11-28 03:00", width=120).out
    assert "no alert  told Fri 27 Nov 2026 03:00 +01:00; the next word is the recovery" in second


def test_list_says_silent_of_a_routine_that_has_not_completed_for_long(ws):
    ws.scheduler()
    ws.cron("digest", "0 9 * * 1-5", "silent_for: 2d\n")
    ws.done("digest", berlin("2026-11-26 09:00"))
    ws.settled("digest", berlin("2026-11-27 09:00"), "skipped", "gate", "no mail")
    ws.cron("weekday", "0 9 * * 1-5")
    ws.done("weekday", berlin("2026-11-27 09:00"))

    rows = {row["name"]: row for row in json.loads(ws.ask("list", "--json").out)["routines"]}
    assert (rows["digest"]["state"], rows["weekday"]["state"]) == ("silent", "armed")
    assert rows["digest"]["problem"]["kind"] == "silent"
    assert "nothing has completed for 3 d" in ws.ask("list").out
    assert ws.ask("doctor", "--only", "outcomes").code == 1


def test_doctor_says_who_is_told_and_when_that_was(ws):
    failing(ws)
    assert "the log alone; none sent yet" in ws.ask("doctor", "--only", "alerts", width=120).out
    ws.settings("tz: Europe/Berlin\nagent: echo\nalert: [{file: alerts.md}]\n")
    AlertStore(ws.state).write("audit", {"turns": TOLD})

    answer = ws.ask("doctor", "--only", "alerts", width=120)
    assert answer.code == 0
    assert "alerts.md; last sent Fri 27 Nov 03:00" in answer.out


def test_doctor_and_check_name_targets_that_nothing_can_reach(ws):
    ws.routine("digest", "prompt: x\ndeliver: [{command: [no-such-mailer]}]\nalert: []\n")

    for command in (("doctor", "--only", "alerts"), ("check",)):
        answer = ws.ask(*command, width=120)
        assert answer.code == 1
        assert "no-such-mailer: no-such-mailer is not on PATH" in answer.out
        assert "used by digest" in answer.out


def test_doctor_fails_while_an_alert_could_not_be_sent(ws):
    unsent = Told(open=True, at=TOLD.at, title="audit: needs you", unsent=("x",), results=(
        {"to": "slack://", "ok": False, "detail": "HTTP 500"},
    ))  # fmt: skip
    AlertStore(ws.state).write("audit", {"turns": unsent})

    answer = ws.ask("doctor", "--only", "alerts", width=120)
    assert answer.code == 1
    assert "not sent: audit: needs you (slack://: HTTP 500)" in answer.out


def superseding(ws):
    """Each turn is ended by the next slot, a minute later; one is under way now."""
    ws.scheduler()
    since = NOW - timedelta(minutes=5)
    policies = "overlap: supersede\ntimeout: 60s\nsilent_for: 90s\n"
    ws.cron("poll", "* * * * *", policies, since=since)
    for minutes in (4, 3, 2):
        at = NOW.replace(second=0) - timedelta(minutes=minutes)
        ws.done("poll", at, "superseded", None, took=60)
    ws.started(ws.claim("poll", NOW.replace(second=0)))


def test_routine_that_always_runs_and_never_completes_is_silent_in_list_and_doctor(ws):
    superseding(ws)

    (row,) = json.loads(ws.ask("list", "--json").out)["routines"]
    assert (row["state"], row["problem"]["kind"]) == ("running", "silent")
    assert "! poll" in ws.ask("list").out
    answer = ws.ask("doctor", "--only", "outcomes")
    assert answer.code == 1
    assert "poll: nothing has completed for 5 m" in answer.out


# One rule ---------------------------------------------------------------------------------------


def undelivered(ws, name, slot):
    ws.done(name, slot, delivered=DELIVERED, warnings=["not-delivered"])


def limited(ws, name, slot):
    ws.settled(name, slot, "skipped", "limit", "2 of 2 turns have started today")


@pytest.mark.parametrize("end", [undelivered, limited])
def test_what_is_alerted_needs_a_person_in_list_history_and_doctor(ws, end):
    """Dense slots are told at the third problem in a row, and not before."""
    ws.scheduler()
    ws.cron("poll", "*/10 * * * *", since=berlin("15:45"))
    for slot in ("15:50", "16:00"):
        end(ws, "poll", berlin(slot))
    assert ws.ask("doctor", "--only", "outcomes").code == 0
    end(ws, "poll", berlin("16:10"))

    (row,) = json.loads(ws.ask("list", "--json").out)["routines"]
    assert (row["state"], row["count"], row["problem"]["kind"]) == ("failing", 3, "failing")
    assert "! poll" in ws.ask("list").out
    assert ws.ask("history", "poll").out.count("! today") == 3
    answer = ws.ask("doctor", "--only", "outcomes")
    assert answer.code == 1
    assert "poll: 3 failed in a row since Sun 29 Nov 15:50" in answer.out


def test_warning_of_a_sparse_routine_is_told_by_doctor_at_once(ws):
    ws.cron("daily", "0 3 * * *")
    undelivered(ws, "daily", berlin("03:00"))

    answer = ws.ask("doctor", "--only", "outcomes")
    assert (answer.code, "daily: not-delivered since" in answer.out) == (1, True)


def test_what_a_person_asked_for_is_marked_nowhere(ws):
    ws.cron("daily", "0 3 * * *")
    ws.gave_up("daily", berlin("2026-11-25 03:00"), berlin("2026-11-28 03:00"), "paused")

    assert "!" not in ws.ask("history", "daily").out
    assert ws.ask("doctor", "--only", "outcomes").code == 0


def test_wake_up_of_its_session_that_failed_counts_too(ws):
    ws.cron("daily", "0 3 * * *")
    claim = ws.claim("routine:daily", berlin("12:00"), kind=Kind.WAKE, occurrence_id="w-aaaa")
    ws.started(claim)
    ws.end(claim, "failed", "exit", "exit 1: no")

    answer = ws.ask("doctor", "--only", "outcomes")
    assert (answer.code, "daily: 1 failed in a row" in answer.out) == (1, True)
