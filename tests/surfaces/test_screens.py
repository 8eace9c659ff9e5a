"""The layouts at 80 and 120 columns, as a person sees them: golden files, redrawn by --redraw."""

from datetime import timedelta

import pytest

from routines.domain.occurrence import Kind
from routines.domain.wake_request import WakeRequest
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.store.wakeups import WakeupStore
from tests.surfaces.world import NOW, World, berlin

WIDTHS = pytest.mark.parametrize("width", [80, 120])


def a_working_week(ws: World) -> None:
    """Seven routines of which two need a person, and a scheduler that has run for days."""
    ws.settings("tz: Europe/Berlin\nagent: echo\nconcurrency: 1\n")
    ws.scheduler()
    ws.cron("ci-triage", "*/15 * * * *", "session: fresh\n")
    ws.done("ci-triage", berlin("16:00"))
    ws.started(ws.claim("ci-triage", berlin("16:15"), session="routine:ci-triage@x"))
    ws.cron("daily-digest", "0 9 * * 1-5")
    ws.done("daily-digest", berlin("2026-11-27 09:00"))
    ws.done("daily-digest", berlin("2026-11-26 09:00"), warnings=["denied: Bash"])
    ws.session("routine:daily-digest", turns=15)
    ws.routine("deploy-notes", "promt: Look.\n")
    ws.done("deploy-notes", berlin("2026-11-26 17:00"), took=12)
    ws.cron("inbox-triage", "0 8-18 * * *")
    ws.settled("inbox-triage", berlin("16:00"), "skipped", "gate", "no new mail")
    ws.cron("nightly-audit", "0 3 * * *")
    for day in (27, 28, 29):
        ws.done(
            "nightly-audit",
            berlin(f"2026-11-{day} 03:00"),
            "failed",
            "exit",
            "exit 1: Not logged in \u00b7 Please run /login",
            took=2,
        )
    ws.cron("release-check", "0 8 * * 1", "enabled: false\n")
    ws.done("release-check", berlin("2026-11-23 08:00"), took=125)
    ws.cron("weekly-report", "16 16 * * 0", since=berlin("2026-11-29 08:00"))


@WIDTHS
def test_list_shows_where_every_routine_stands(ws, looks_like, width):
    a_working_week(ws)

    looks_like(ws.ask("list", width=width), f"list-{width}")


@WIDTHS
def test_list_without_a_scheduler_says_since_when_and_what_is_owed(ws, looks_like, width):
    ws.clock = type(ws.clock)(berlin("07:40"))
    ended = berlin("2026-11-28 23:10")
    ws.scheduler(alive=False, beat_at=ended, ended_at=ended, why="stopped")
    ws.cron("nightly-audit", "0 3 * * *")
    ws.done("nightly-audit", berlin("2026-11-28 03:00"), took=80)
    ws.cron("daily-digest", "0 9 * * 1-5")
    ws.done("daily-digest", berlin("2026-11-27 09:00"))

    looks_like(ws.ask("list", width=width), f"list-no-scheduler-{width}")


def a_mixed_past(ws: World) -> None:
    """One routine with each kind of row."""
    ws.scheduler()
    ws.cron("daily-digest", "0 9 * * 1-5", 'start_within: "12h"\n')
    asleep = timedelta(hours=4, minutes=12)
    ws.gave_up(
        "daily-digest",
        berlin("2026-11-20 09:00"),
        berlin("2026-11-23 09:00"),
        "no-scheduler",
        detail="no scheduler till Tue 24 Nov 08:51, start_within is 12 h",
    )
    failed = "exit 1: Not logged in \u00b7 Please run /login"
    ws.done("daily-digest", berlin("2026-11-24 09:00"), "failed", "exit", failed, took=2, turn=11)
    late = "ended after 1 h, no reply; last line: Retrying in 32 s"
    ws.done(
        "daily-digest", berlin("2026-11-25 09:00"), "timed-out", "timeout", late, took=3600, turn=12
    )
    ws.done(
        "daily-digest",
        berlin("2026-11-26 09:00"),
        took=38,
        turn=13,
        late=asleep,
        claim={"trigger": "catch-up"},
        warnings=["denied: Bash, Write"],
        usage={"usd": 0.08},
    )
    ws.done(
        "daily-digest",
        berlin("2026-11-27 09:00"),
        turn=14,
        usage={"usd": 0.08, "tokens": 21400},
        reply="3 PRs merged, 2 wait for review: #412 (payments), #415 (search) and one more.",
        native_session="6f0e",
    )
    by_hand = ws.claim(
        "daily-digest",
        berlin("16:12") + timedelta(seconds=21),
        kind=Kind.MANUAL,
        occurrence_id="k3m9q2",
        trigger="manual",
    )
    ws.started(by_hand, turn=15)
    ws.end(by_hand, took=39, usage={"usd": 0.07}, reply="Nothing was merged since Friday.")


@WIDTHS
def test_history_shows_one_row_an_occurrence_newest_first(ws, looks_like, width):
    a_mixed_past(ws)

    looks_like(ws.ask("history", "daily-digest", width=width), f"history-{width}")


@WIDTHS
def test_history_of_everything_names_the_routine_and_goes_back_a_day(ws, looks_like, width):
    a_working_week(ws)

    looks_like(ws.ask("history", width=width), f"history-all-{width}")


@WIDTHS
def test_explain_shows_a_failure_step_by_step(ws, looks_like, width):
    ws.scheduler()
    ws.cron("nightly-audit", "0 3 * * *")
    slot = berlin("03:00")
    ws.done(
        "nightly-audit",
        slot,
        "failed",
        "exit",
        "exit 1: Not logged in \u00b7 Please run /login",
        took=2,
        turn=31,
    )
    ws.output(
        "nightly-audit/2026-11-29/2026-11-29T02-00-00Z", prompt="Audit.", stderr="Not logged in"
    )

    looks_like(ws.ask("explain", "nightly-audit", width=width), f"explain-{width}")


@WIDTHS
def test_show_gives_the_prompt_and_the_reply_whole(ws, looks_like, width):
    a_mixed_past(ws)
    ws.output(
        "daily-digest/2026-11-27/2026-11-27T08-00-00Z",
        prompt="Summarise what was merged since the last working day and what waits for me.\n",
        reply="3 PRs merged, 2 wait for review:\n\n- #412 (payments)\n- #415 (search)\n",
    )

    answer = ws.ask("show", "daily-digest@2026-11-27 09:00", width=width)

    looks_like(answer, f"show-{width}")


@WIDTHS
def test_next_shows_the_coming_instants_of_all_routines(ws, looks_like, width):
    ws.cron("ci-triage", "30 16 * * *")
    ws.cron("daily-digest", "0 9 * * 1-5")
    ws.cron("nightly-audit", "0 3 * * *")
    ws.routine("us-report", 'cron: "0 9 * * 1"\ntz: America/New_York\n')
    ws.routine("by-name", "")

    looks_like(ws.ask("next", "-n", "6", width=width), f"next-{width}")


@WIDTHS
def test_next_says_what_a_change_of_the_clock_does_to_a_slot(ws, looks_like, width):
    ws.routine("dst-check", 'cron: "30 2 * * *"\n')

    answer = ws.ask("next", "dst-check", "-n", "3", "--from", "2027-03-26", width=width)

    looks_like(answer, f"next-dst-{width}")


@WIDTHS
def test_check_shows_every_problem_with_its_place_and_its_cure(ws, looks_like, width):
    ws.routine("deploy-notes", "promt: Look.\n")
    ws.routine("poll", "prompt: Look.\ncron: */10 * * * *\n")
    ws.routine("weekly", "prompt: Look.\n\n\noverlap: queue\n")
    ws.cron("good", "0 9 * * *")
    ws.routine("odd", 'cron: "*/45 * * * *"\n')

    answer = ws.ask("check", width=width)

    looks_like(answer, f"check-{width}")
    assert answer.code == 1


@WIDTHS
def test_sessions_show_whose_conversation_it_is(ws, looks_like, width):
    ws.session(
        "routine:daily-digest",
        agent="claude",
        turns=15,
        epoch_turns=15,
        native_session="6f0e",
        last_at=NOW - timedelta(hours=1),
    )
    ws.session(
        "wake:w-7k3m9q", agent="echo", turns=1, epoch_turns=1, last_at=NOW - timedelta(days=8)
    )

    looks_like(ws.ask("session", "list", width=width), f"sessions-{width}")


def test_session_show_takes_the_name_of_a_routine(ws, looks_like):
    ws.cron("daily-digest", "0 9 * * 1-5")
    ws.session(
        "routine:daily-digest",
        agent="claude",
        turns=15,
        epoch_turns=3,
        epoch=2,
        epoch_reason="reset by ana",
    )

    looks_like(ws.ask("session", "show", "daily-digest"), "session")


@WIDTHS
def test_wakeups_show_what_is_pending_and_what_it_says(ws, looks_like, width):
    ws.cron("daily-digest", "0 9 * * 1-5")
    two_wakeups(ws)

    looks_like(ws.ask("wakeups", width=width), f"wakeups-{width}")


def two_wakeups(ws: World) -> None:
    from routines.domain.schedule import every
    from routines.domain.wakeup import Timing, Wakeup
    from routines.store.wakeups import WakeupStore

    known = {
        "session": "routine:daily-digest",
        "tz": "Europe/Berlin",
        "created_at": NOW - timedelta(minutes=10),
        "created_by": "ana@studio",
    }
    once = Wakeup(
        id="w-7k3m9q",
        prompt="Check the deploy again\nand tell me.",
        timing=Timing.IN,
        asked="20m",
        schedule=None,
        next_at=NOW + timedelta(minutes=10),
        asked_for=NOW + timedelta(minutes=10),
        **known,
    )
    again = Wakeup(
        id="w-5b0e77",
        prompt="Look at the queue.",
        timing=Timing.EVERY,
        asked="30m",
        schedule=every(timedelta(minutes=30), tz="Europe/Berlin").spec(),
        next_at=berlin("16:30"),
        asked_for=berlin("16:30"),
        firings=41,
        **known,
    )
    store = WakeupStore(ws.state)
    assert store.add(once)
    assert store.add(again)


def test_wakeups_show_gives_one_whole(ws, looks_like):
    two_wakeups(ws)

    looks_like(ws.ask("wakeups", "show", "w-7k3m9q"), "wakeup")


def test_help_groups_the_commands_by_what_they_are_for(ws, looks_like):
    answer = ws.ask("--help")

    looks_like(answer, "help")
    assert max(map(len, answer.out.splitlines())) <= 80


# What `list` says of one routine -----------------------------------------------------------------


def state_of(ws: World, name: str = "daily") -> str:
    row = next(row for row in ws.ask("list").out.splitlines() if row[2:].startswith(name))
    return row[18:31].strip()


def test_a_broken_file_that_the_scheduler_still_runs_is_a_stale_edit(ws):
    ws.scheduler(armed={"daily": "digest"})
    ws.routine("daily", "promt: x\n")

    assert state_of(ws) == "stale edit"
    assert "Runs in its last good version." in ws.ask("list", width=120).out


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('cron: "0 9 * * *"\n', "armed"),
        ('cron: "0 9 * * *"\nenabled: false\n', "disabled"),
        ('at: "2026-11-01 09:00"\n', "over"),
        ("", "by name"),
        ('cron: "0 9 * * *"\nagent: nobody\n', "broken"),
    ],
)
def test_what_a_file_says_is_its_state_while_nothing_has_happened(ws, text, state):
    ws.scheduler()
    ws.routine("daily", text)

    assert state_of(ws) == state


def test_a_completed_turn_ends_a_run_of_failures_and_a_skip_does_not(ws):
    ws.scheduler()
    ws.cron("daily", "0 3 * * *")
    for day in (27, 28):
        ws.done("daily", berlin(f"2026-11-{day} 03:00"), "failed", "exit", "exit 1: no")
    ws.settled("daily", berlin("2026-11-29 03:00"), "skipped", "gate", "nothing new")
    assert state_of(ws) == "failing 2"

    ws.clock.advance(days=1)
    ws.done("daily", berlin("2026-11-30 03:00"))
    assert state_of(ws) == "armed"


def test_a_warning_of_the_newest_turn_needs_a_person(ws):
    ws.scheduler()
    ws.cron("daily", "0 3 * * *")
    ws.done("daily", berlin("03:00"), warnings=["empty-reply"])

    assert "daily  empty-reply: routines show daily" in ws.ask("list").out


def test_a_parked_and_a_lost_turn_need_a_person(ws):
    from routines.domain.record import Event

    ws.scheduler()
    ws.cron("daily", "0 3 * * *")
    claim = ws.claim("daily", berlin("03:00"))
    claim.append(Event.PARKED, at=berlin("03:00"), detail="refused connection")
    claim.let_go()

    assert state_of(ws) == "parked"
    says = "daily  daily@2026-11-29T02:00:00Z is parked"
    assert f"{says}: routines recover daily" in ws.ask("list").out
    wide = ws.ask("list", width=120).out
    assert f"{says} (refused connection): routines recover daily" in wide


@WIDTHS
def test_list_shows_what_waits_and_what_is_held_back(ws, looks_like, width):
    from routines.domain.record import Event

    ws.scheduler()
    ws.cron("flaky", "0 16 * * *")
    flaky = ws.claim("flaky", berlin("16:00"))
    again = {"until": "2026-11-29T15:30:00Z", "detail": "connection refused"}
    flaky.append(Event.RETRY, at=berlin("16:00"), **again)
    flaky.let_go()
    ws.cron("long", "*/15 * * * *", "overlap: buffer-one\n")
    ws.started(ws.claim("long", berlin("16:00")))
    behind = ws.claim("long", berlin("16:15"))
    behind.append(Event.BUFFERED, at=berlin("16:15"))
    behind.let_go()
    ws.routine("once", 'at: "2026-11-29 09:00"\n')
    once = ws.claim("once", berlin("09:00"))
    once.append(Event.PARKED, at=berlin("09:20"), detail="connection refused")
    once.let_go()
    ws.cron("release-check", "0 8 * * 1")
    ws.ask("pause", "release-check", "--reason", "frozen")
    ws.cron("taken", "10 16 * * *")
    ws.claim("taken", berlin("16:10"))
    woken = ws.claim(
        "named:ops", berlin("12:00"), kind=Kind.WAKE, occurrence_id="w-7k3m9q", routine=None
    )
    woken.append(Event.PARKED, at=berlin("12:20"), detail="connection refused")
    woken.let_go()

    looks_like(ws.ask("list", width=width), f"list-waiting-{width}")


def test_list_says_who_holds_everything_back(ws):
    import json

    ws.scheduler()
    ws.cron("daily", "0 3 * * *")
    ws.done("daily", berlin("03:00"))
    ws.ask("pause", "--all", "--until", "2h", "--reason", "moving house")

    assert state_of(ws) == "paused"
    last = ws.ask("list", width=200).out.splitlines()[-1]
    assert last.startswith("Everything is paused by ")
    assert last.endswith(
        " since Sun 29 Nov 16:18 until Sun 29 Nov 18:18 (moving house): routines resume --all"
    )
    found = json.loads(ws.ask("list", "--json").out)
    assert found["paused"] == found["routines"][0]["paused"]
    assert found["paused"]["until"] == "2026-11-29T17:18:00Z"


def test_names_of_any_length_and_script_keep_the_rows_in_line(ws):
    ws.scheduler()
    for name in ("\u65e5\u5831", "a-name-that-is-longer-than-any-column-is-wide", "short"):
        ws.cron(name, "0 3 * * *", since=berlin("04:00"))

    rows = ws.ask("list").out.splitlines()[2:6]

    from routines.cli.escape import width

    head, long, short, wide = rows[0], rows[1], rows[2], rows[3]
    assert head.index("STATE") == short.index("armed") == width(wide[: wide.index("armed")])
    assert long.startswith("  a-name-that-is-longer-than-any-column-is-wide  armed  Mon 03:00  ")


def test_list_with_json_has_the_documented_keys(ws):
    import json

    a_working_week(ws)
    found = json.loads(ws.ask("list", "--json").out)

    assert list(found) == [
        "root", "now", "schedulers", "no_scheduler_since", "routines", "wakeups", "jobs", "problems",
        "paused", "others",
    ]  # fmt: skip
    assert list(found["routines"][0]) == [
        "name", "state", "count", "since", "schedule", "tz", "next", "due", "note", "last",
        "completed_7d", "problems_7d", "turns", "problem", "paused", "retry_at", "buffered",
    ]  # fmt: skip


def test_a_catch_up_of_all_counts_the_turns_that_the_next_start_owes(ws):
    ws.cron(
        "daily", "0 3 * * *", "catch_up: all\nmax_catch_up: 3\n", since=berlin("2026-11-20 12:00")
    )

    assert state_of(ws) == "owed 3"
    rows = ws.ask("history", "daily").out.splitlines()[3:6]
    assert [row[2:14] for row in rows] == ["today 03:00 ", "Sat 28 03:00", "Fri 27 03:00"]


def test_next_says_how_much_later_than_its_slot_a_turn_falls_due(ws):
    ws.routine("daily", 'cron: "0 9 * * *"\njitter: 30m\n')

    answer = ws.ask("next", "daily", "-n", "3")

    assert answer.out.count(" jitter\n") == 3
    assert len({row.rpartition("+")[2] for row in answer.out.splitlines()[1:]}) == 3


# Small words --------------------------------------------------------------------------------------


def test_a_scheduler_that_ended_today_is_said_without_the_day(ws):
    ended = berlin("14:13")
    ws.scheduler(alive=False, beat_at=ended, ended_at=ended, why="stopped")
    ws.cron("daily", "0 3 * * *", since=NOW)

    assert "NO SCHEDULER since 14:13 " in ws.ask("list").out


def test_an_overdue_wake_up_says_for_how_long(ws):
    two_wakeups(ws)
    ws.clock.advance(minutes=10)
    assert " now " in ws.ask("wakeups").out

    ws.clock.advance(minutes=135)

    assert "2 h 15 m late" in ws.ask("wakeups").out
    ws.cron("daily", "0 3 * * *")
    last = ws.ask("list").out.splitlines()
    assert "2 wake-ups pending in 1 session, overdue since 16:28: routines wakeups" in last


def test_one_turn_is_no_turns(ws):
    ws.cron("daily", "0 3 * * *")
    ws.session("routine:daily", agent="echo", turns=1, epoch_turns=1)

    assert "echo; 1 turn, 1 of them in epoch 1\n" in ws.ask("session", "show", "daily").out


def test_start_says_what_is_armed_and_where_in_few_words(ws):
    from routines.operations.context import Context
    from routines.operations.running import start_lines

    (ws.root / "agent.sh").write_text("#!/bin/sh\n")
    (ws.root / "agent.sh").chmod(0o755)
    ws.settings("tz: Europe/Berlin\nagent: echo\nagents: {own: {command: [./agent.sh]}}\n")
    ws.routine("daily", 'cron: "0 9 * * *"\nagent: own\n')
    ws.routine("by-name", "")
    context = Context(environ=ws.environ, cwd=str(ws.root), clock=ws.clock)

    assert start_lines(context, []) == [
        "root      ~/agents (the nearest folder upwards)",
        "state     ~/agents/.routines",
        "armed     1 of 1 routine, 1 by name",
        "agent     echo, built in",
        "agent     own: ~/agents/agent.sh",
    ]
    outside = start_lines(context, [], external_clock=True)
    assert outside[2] == (
        "armed     nothing, 1 of 1 routine, 1 by name would be: slots come from outside, by fire or tick"
    )


def test_head_of_list_and_doctor_say_when_slots_come_from_outside(ws):
    ws.cron("daily", "0 9 * * *")
    ws.scheduler(external_clock=True)

    assert ", slots come from outside" in ws.ask("list", width=120).out
    doctor = ws.ask("doctor", "--only", "scheduler", width=120)
    assert ", starts no slot (--external-clock)" in doctor.out
    ws.scheduler(scheduler_id="another")
    assert "from outside" not in ws.ask("list", width=120).out


def test_next_says_what_it_leaves_out_and_why(ws):
    import json

    ws.scheduler()
    ws.cron("daily", "0 9 * * *")
    ws.cron("frozen", "0 17 * * *")
    ws.cron("hourly", "0 * * * *")
    ws.routine("off", 'cron: "0 9 * * *"\nenabled: false\n')
    ws.routine("bad", "promt: x\n")
    ws.routine("by-name", "")
    ws.ask("pause", "frozen")
    ws.ask("pause", "hourly", "--until", "2h")

    out = ws.ask("next", "-n", "3").out.splitlines()

    assert [row.split()[-1] for row in out[1:4]] == ["hourly"] * 3
    assert out[1].startswith("  today 19:00"), "the slots of the pause are left out"
    assert out[4:] == [
        "  bad: broken: routines check",
        "  frozen: paused: nothing starts until it is resumed",
        "  hourly: paused: nothing starts until Sun 29 Nov 2026 18:18 +01:00",
        "  off: disabled",
    ]
    assert {one["routine"] for one in json.loads(ws.ask("next", "-n", "20", "--json").out)} == {
        "daily",
        "hourly",
    }
    alone = ws.ask("next", "hourly", "-n", "1").out.splitlines()
    assert alone[-1] == "  paused: nothing starts until Sun 29 Nov 2026 18:18 +01:00"


# Every label of `list` ------------------------------------------------------------------------------


def by_file(text):
    def make(ws: World) -> None:
        ws.routine("daily", text)

    return make


def running(ws: World) -> None:
    ws.cron("daily", "0 16 * * *")
    ws.started(ws.claim("daily", berlin("16:00")))


def waiting(ws: World) -> None:
    ws.settings("tz: Europe/Berlin\nagent: echo\nconcurrency: 1\n")
    ws.cron("long", "0 16 * * *")
    ws.started(ws.claim("long", berlin("16:00")))
    ws.cron("daily", "10 16 * * *", since=berlin("08:00"))


def put_off(word: str, **line: str):
    def make(ws: World) -> None:
        from routines.domain.record import Event

        ws.cron("daily", "0 16 * * *")
        claim = ws.claim("daily", berlin("16:00"))
        claim.append(Event(word), at=berlin("16:00"), **line)
        claim.let_go()

    return make


def owed(ws: World) -> None:
    ws.cron("daily", "0 16 * * *", since=berlin("08:00"))


def failing(ws: World) -> None:
    ws.cron("daily", "0 3 * * *")
    for day in (27, 28, 29):
        ws.done("daily", berlin(f"2026-11-{day} 03:00"), "failed", "exit", "exit 1: no")


def silent(ws: World) -> None:
    ws.cron("daily", "0 3 * * *", "silent_for: 5h\n")
    ws.done("daily", berlin("03:00"))
    ws.settled("daily", berlin("03:01"), "skipped", "gate", "nothing new")


def lost(ws: World) -> None:
    from routines.agents.identity import process_identity
    from tests.builders import owner

    ws.cron("daily", "0 16 * * *")
    gone = owner(**(process_identity() or {})).to_json() | {"pid": 2**22 - 1}
    claim = ws.claim("daily", berlin("16:00"), owner=gone)
    ws.started(claim, owner=gone)
    claim.let_go()


def paused(ws: World) -> None:
    ws.cron("daily", "0 3 * * *")
    ws.done("daily", berlin("03:00"))
    ws.ask("pause", "daily")


def without_agent(ws: World) -> None:
    ws.settings("tz: Europe/Berlin\nagent: gone\nagents: {gone: {command: [no-such-program]}}\n")
    ws.cron("daily", "0 3 * * *")
    ws.done("daily", berlin("03:00"))


def stale(ws: World) -> None:
    ws.scheduler(scheduler_id="1b0f7d5c", armed={"daily": "digest"})
    ws.routine("daily", "promt: x\n")


LABELS = [
    ("armed", by_file('cron: "0 9 * * *"\n'), True),
    ("running 17 m", running, True),
    ("waiting", waiting, True),
    ("buffered", put_off("buffered"), True),
    ("owed 1", owed, False),
    ("failing 3", failing, True),
    ("silent", silent, True),
    ("parked", put_off("parked", detail="connection refused"), True),
    ("retrying", put_off("retry", until="2026-11-29T15:30:00Z"), True),
    ("lost", lost, True),
    ("paused", paused, True),
    ("disabled", by_file('cron: "0 9 * * *"\nenabled: false\n'), True),
    ("over", by_file('at: "2026-11-01 09:00"\n'), True),
    ("stale edit", stale, True),
    ("by name", by_file(""), True),
    ("broken", by_file("promt: x\n"), True),
    ("no agent", without_agent, True),
]


@pytest.mark.parametrize(("label", "make", "alive"), LABELS, ids=[one[0] for one in LABELS])
def test_each_label_of_list_is_said(ws, label, make, alive):
    if alive:
        ws.scheduler()
    make(ws)

    assert state_of(ws) == label
    import json

    rows = json.loads(ws.ask("list", "--json").out)["routines"]
    word = next(row["state"] for row in rows if row["name"] == "daily")
    assert label.startswith(word)


def test_next_says_of_what_is_past_how_long_ago_it_was(ws):
    ws.scheduler()
    ws.cron("daily", "0 9 * * *")

    rows = ws.ask("next", "daily", "-n", "3", "--from", "yesterday", "--decide", width=120).out

    assert "1 d 7 h ago" in rows
    assert "7 h 18 m ago" in rows
    assert rows.count("past: routines explain says what became of it") == 2
    assert "in 16 h 42 m" in rows
    assert "1 d 7 h ago" in ws.ask("next", "--from", "yesterday").out


def test_the_foot_of_explain_stands_within_80_columns(ws):
    ws.cron("a-routine-with-a-name-that-is-long", "0 3 * * *")
    ws.done("a-routine-with-a-name-that-is-long", berlin("03:00"))

    *_, first, second = ws.ask("explain", "a-routine-with-a-name-that-is-long").out.splitlines()

    assert first == "Next: Mon 30 Nov 03:00, once a scheduler is alive: routines start."
    assert second == "Now, by hand: routines run a-routine-with-a-name-that-is-long"


def test_a_wakeup_of_another_year_and_offset_stands_within_its_column(ws):
    request = WakeRequest(prompt="Look.", session="named:shop", at="2027-03-28T12:00", by="ana@x")
    store = WakeupStore(ws.state)
    store.wake(request, now=NOW, bounds=DEFAULT_BOUNDS, zone_key="Europe/Berlin")

    head, row = ws.ask("wakeups", width=120).out.splitlines()[2:4]

    assert head.index("IN") == row.index("118 d")
    assert head.index("SESSION") == row.index("named:shop")
