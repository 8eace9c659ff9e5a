"""The commands that act, through real turns: what they print and exit with."""

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from routines.domain.occurrence import Kind
from routines.domain.record import Event
from routines.domain.wake_request import WakeRequest
from routines.domain.wake_texts import tools
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.domain.zones import zone
from routines.store import files
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.places import PlaceStore
from routines.store.sessions import SessionStore
from routines.store.wake_firings import FiringStore
from routines.store.wakeups import WakeupStore
from tests.surfaces.world import World, berlin


@pytest.fixture
def echo(ws: World) -> World:
    ws.routine("daily", 'cron: "0 9 * * *"\nprompt: Say hello.\n')
    return ws


def test_run_prints_the_reply_and_exits_0(echo):
    answer = echo.ask("run", "daily", "--append", "And more.")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("Say hello.\n\nAnd more.\n")


def test_run_with_json_prints_the_record(echo):
    record = json.loads(echo.ask("run", "daily", "--json").out)

    assert (record["routine"], record["trigger"], record["outcome"]) == (
        "daily",
        "manual",
        "completed",
    )


def test_run_of_an_agent_that_fails_exits_1_and_says_why_on_stderr(ws):
    ws.settings(
        "tz: Europe/Berlin\nagent: no\nagents: {no: {command: [/bin/sh, -c, 'echo nope >&2; exit 3']}}\n"
    )
    ws.routine("daily", 'cron: "0 9 * * *"\n')

    answer = ws.ask("run", "daily")

    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith("failed after ")
    assert "exit 3: nope" in answer.err
    assert "routines show manual:" in answer.err


def test_run_of_a_broken_file_shows_its_first_problem(ws):
    ws.routine("bad", "promt: x\n")

    answer = ws.ask("run", "bad")

    assert answer.code == 1
    assert "routines/bad.yaml:1:1: unknown key 'promt'" in answer.err


def test_fire_of_an_instant_that_is_no_slot_is_refused(echo):
    answer = echo.ask("fire", "daily", "--slot", "2026-11-29T08:01:00Z")

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("Error: ")


def test_fire_of_a_slot_that_was_delivered_says_what_became_of_it(echo):
    ref = "daily@2026-11-29T08:00:00Z"
    words = ("fire", "daily", "--slot", "2026-11-29T08:00:00Z")
    claim = echo.claim("daily", berlin("09:00"))
    claimed = echo.ask(*words)
    echo.started(claim)
    runs = echo.ask(*words)
    echo.end(claim)
    ended = echo.ask(*words)

    assert (claimed.code, claimed.err) == (0, f"{ref} was delivered before and is claimed\n")
    assert (runs.code, runs.err) == (0, f"{ref} was delivered before and is running\n")
    assert (ended.code, ended.err) == (0, f"{ref} was delivered before: completed\n")


def buffered(ws: World) -> tuple[str, ...]:
    """A slot that a delivery claimed and did not see through; the words that deliver it again."""
    slot = datetime(2025, 6, 2, 7, tzinfo=UTC)
    claim = ws.claim("daily", slot)
    claim.append(Event.BUFFERED, at=slot)
    claim.let_go()
    return ("fire", "daily", "--slot", "2025-06-02T07:00:00Z")


def test_fire_of_a_slot_that_still_waits_says_to_deliver_it_again(echo):
    words = buffered(echo)
    echo.ask("pause", "daily")
    answer = echo.ask(*words)

    assert (answer.code, answer.out) == (75, "")
    assert answer.err == (
        "daily@2025-06-02T07:00:00Z is buffered and waits on: "
        "deliver it again, or leave it to the next look\n"
    )


def put_off(ws: World, event: Event, **more: str) -> tuple[str, ...]:
    claim = ws.claim("daily", berlin("09:00"))
    claim.append(event, at=berlin("09:00"), detail="connection refused", **more)
    claim.let_go()
    return ("fire", "daily", "--slot", "2026-11-29T08:00:00Z")


def test_fire_of_a_slot_whose_next_attempt_is_not_due_says_to_deliver_it_again(echo):
    words = put_off(echo, Event.RETRY, until="2999-01-01T00:00:00Z")

    for answer in (echo.ask(*words), echo.ask(*words)):
        assert answer.code == 75
        assert answer.err == (
            "daily@2026-11-29T08:00:00Z is retrying at 2999-01-01T00:00:00Z and waits on: "
            "deliver it again, or leave it to the next look\n"
        )


def test_fire_of_a_slot_whose_next_attempt_is_due_makes_it(echo):
    words = put_off(echo, Event.RETRY, until="2026-11-29T08:01:00Z")

    assert [echo.ask(*words).err for _ in range(2)] == [
        "daily@2026-11-29T08:00:00Z completed\n",
        "daily@2026-11-29T08:00:00Z was delivered before: completed\n",
    ]


def test_fire_of_a_parked_slot_exits_1_however_often_and_says_who_can_end_that(echo):
    words = put_off(echo, Event.PARKED)
    ref = "daily@2026-11-29T08:00:00Z"

    for answer in (echo.ask(*words), echo.ask(*words)):
        assert answer.code == 1
        assert answer.err == (
            f"{ref} is parked: `routines recover {ref}` runs it, `routines cancel` ends it\n"
        )


def called_off(ws: World) -> tuple[str, ...]:
    """A slot that a delivery claimed, and that somebody asked to cancel before it started."""
    words = buffered(ws)
    CancelStore(ws.state).ask(
        "daily@2025-06-02T07:00:00Z", by="ana@studio", person=True, at=ws.clock.now(), reason=""
    )
    return words


def test_fire_of_a_slot_that_was_cancelled_before_it_started_is_dealt_with(echo):
    answers = [
        echo.ask(*called_off(echo)),
        echo.ask("fire", "daily", "--slot", "2025-06-02T07:00:00Z"),
    ]

    assert [answer.code for answer in answers] == [0, 0]
    assert answers[0].err.startswith("daily@2025-06-02T07:00:00Z cancelled: person")


def test_tick_that_only_settles_what_was_cancelled_before_it_started_exits_0(echo):
    called_off(echo)
    answer = echo.ask("tick")

    assert (answer.code, answer.out) == (0, "1 cancelled\n")


def test_fire_of_a_slot_that_waited_says_how_it_ended(echo):
    answer = echo.ask(*buffered(echo))

    assert (answer.code, answer.err) == (0, "daily@2025-06-02T07:00:00Z completed\n")


def test_fire_again_of_a_slot_delivered_under_a_pause_says_so_after_it_too(echo):
    echo.routine("named", "prompt: Look.\n")
    words = ("fire", "named", "--slot", "2026-11-29T08:00:00Z")
    ref = "named@2026-11-29T08:00:00Z"
    echo.ask("pause", "named")
    first = echo.ask(*words)
    echo.ask("resume", "named")
    again = echo.ask(*words)

    assert (first.code, first.err) == (0, f"{ref} is missed: paused\n")
    assert (again.code, again.err) == (0, f"{ref} was delivered before: missed: paused\n")
    assert "missed x1" in echo.ask("history", "named").out


def test_tick_says_when_nothing_was_due(echo):
    assert echo.ask("tick").out == "nothing was due\n"
    assert json.loads(echo.ask("tick", "--json").out) == {}


def taken_session(ws: World) -> Callable[[], None]:
    lease = SessionStore(ws.state).take("named:shop", clock=ws.clock)
    return lease.let_go


def taken_group(ws: World) -> Callable[[], None]:
    return PlaceStore(ws.state).take(places=None, group="g").let_go


def taken_place(ws: World) -> Callable[[], None]:
    return PlaceStore(ws.state).take(places=1, group=None).let_go


def older_slot(ws: World) -> Callable[[], None]:
    return ws.started(ws.claim("daily", berlin("2026-11-28 09:00"), trigger="catch-up")).let_go


@pytest.mark.parametrize(
    ("more", "takes"),
    [
        ("session: named:shop\n", taken_session),
        ("exclusive: g\n", taken_group),
        ("", taken_place),
        ("catch_up: all\n", older_slot),
    ],
)
def test_tick_says_what_is_due_and_waits(echo, more, takes):
    echo.settings("tz: Europe/Berlin\nagent: echo\nconcurrency: 1\n")
    echo.cron("daily", "0 9 * * *", more, since=berlin("2026-11-28 12:00"))
    let_go = takes(echo)

    answer = echo.ask("tick")
    assert (answer.code, answer.out, answer.err) == (0, "1 waits\n", "")
    assert json.loads(echo.ask("tick", "--json").out) == {"waiting": 1}
    let_go()


def test_tick_says_that_another_process_keeps_the_lock_of_what_is_owed(echo, monkeypatch):
    monkeypatch.setattr("routines.engine.engine.PATIENCE_S", 0.0)
    echo.cron("daily", "0 9 * * *")
    with CursorStore(echo.state).section("daily", patience=0):
        answers = [echo.ask("tick"), echo.ask("tick", "--json")]

    assert [answer.code for answer in answers] == [1, 1]
    assert answers[0].out == ""
    assert "the routine daily is being changed by another process" in answers[0].err
    said = json.loads(answers[1].out)
    assert (list(said), said["error"]["code"]) == (["error"], "store-busy")
    assert echo.ask("tick").out == "1 completed\n"


def test_tick_tells_what_could_not_be_claimed_beside_what_it_did(echo, monkeypatch):
    echo.routine("good", 'cron: "0 * * * *"\n')
    echo.seen("good", {"cron": ["0 * * * *"], "tz": "Europe/Berlin"})
    echo.routine("bad", 'cron: "0 * * * *"\n')
    echo.seen("bad", {"cron": ["0 * * * *"], "tz": "Europe/Berlin"})
    echo.ask("run", "bad")
    real = os.link

    def full(source, path):
        if "/claims/bad/" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, path)

    monkeypatch.setattr(files.calls, "link", full)
    answer = echo.ask("tick", "--json")
    said = json.loads(answer.out)
    assert answer.code == 1
    assert said.pop("error")["code"] == "not-durable"
    assert said == {"completed": 1}


def test_wake_answers_when_and_how_to_cancel(echo):
    answer = echo.ask("wake", "--in", "10m", "check the deploy")

    assert answer.code == 0
    assert "is due Sun 29 Nov 16:28 +01:00 Europe/Berlin (15:28Z)" in answer.out
    assert "no scheduler is alive on ~/agents" in answer.out


def test_the_help_of_wake_says_what_the_tool_says(echo):
    said = " ".join(echo.ask("wake", "--help", width=80).out.split())

    tool = tools(zone_key="that of the workspace")[0]
    assert "Use this and not a sleep, a cron job or another scheduling tool: only this one" in said
    for meaning in tool.params.values():
        assert meaning in said


def test_a_refused_wake_keeps_its_lines(echo):
    answer = echo.ask("wake", "--in", "30s", "check the deploy")

    assert answer.code == 1
    assert 'in "30s" is too soon; the shortest is 1m. Nothing was scheduled.' in answer.err


def test_wakeups_are_cancelled_one_by_one_and_all_at_once(echo):
    echo.ask("wake", "--in", "10m", "one", "--session", "named:a")
    echo.ask("wake", "--in", "20m", "two", "--session", "named:a")
    echo.ask("wake", "--in", "30m", "three", "--session", "named:b")
    first = json.loads(echo.ask("wakeups", "--json").out)[0]["id"]

    assert echo.ask("wakeups", "cancel", first).code == 0
    assert len(json.loads(echo.ask("wakeups", "list", "--json").out)) == 2
    assert echo.ask("wakeups", "cancel", "--all").code == 0
    assert json.loads(echo.ask("wakeups", "--json").out) == []


def test_session_hold_gives_the_exit_code_of_its_command(echo):
    assert echo.ask("session", "hold", "daily", "--", "/bin/sh", "-c", "exit 7").code == 7


def test_a_session_that_a_program_named_as_it_likes_is_found_by_that_name(echo):
    echo.session("chat-7")

    assert echo.ask("session", "show", "chat-7").code == 0
    assert echo.ask("session", "reset", "chat-7").code == 0
    assert echo.ask("session", "reset", "chat-8").code == 1


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ("named:", "invalid-name"),
        ("named: a", "invalid-name"),
        ("named:a\nb", "invalid-name"),
        ("routine:dialy", "unknown-session"),
        ("wake:w-none", "unknown-session"),
        ("team", "unknown-session"),
        ("", "unknown-session"),
    ],
)
@pytest.mark.parametrize(
    "words", [("run", "daily"), ("wake", "--in", "1h", "look"), ("jobs", "add", "x")]
)
def test_a_session_that_can_not_be_meant_is_refused_and_nothing_is_begun(
    echo, words, session, code
):
    answer = echo.ask(*words, "--session", session, "--json")

    assert answer.code == (2 if code == "invalid-name" else 1)
    assert json.loads(answer.out)["error"]["code"] == code
    assert echo.ask("session", "list", "--json").out.strip() in ("[]", '{"sessions": []}')


def test_session_reset_begins_a_new_epoch(echo):
    echo.ask("run", "daily")

    answer = echo.ask("session", "reset", "daily", "--reason", "too long")

    assert (answer.code, answer.out) == (0, "routine:daily begins anew: epoch 2\n")


def test_a_cancel_is_repeated_without_harm_also_when_it_has_ended_the_turn(echo):
    ref = echo.done("daily", berlin("03:00"), "cancelled", "person", "wrong prompt")

    answer = echo.ask("cancel", ref)

    assert answer.code == 0
    assert answer.out == f"{ref}  it has ended already: cancelled: person, wrong prompt\n"


def test_a_cancel_of_what_has_ended_in_another_way_says_how(echo):
    ref = echo.done("daily", berlin("03:00"), "failed", "exit", "exit 1: no")

    answer = echo.ask("cancel", "daily@2026-11-29 03:00")

    assert answer.code == 1
    assert f"{ref}: it has ended already: failed: exit, exit 1: no" in answer.err


def test_cancel_of_what_does_not_run_says_so(echo):
    echo.ask("run", "daily")

    answer = echo.ask("cancel", "daily")

    assert answer.code == 1
    assert answer.err.startswith("Error: nothing of daily runs or waits")


def test_prune_says_what_it_removed(echo):
    echo.ask("run", "daily")

    assert echo.ask("prune").out == "removed 0 records and 0 outputs, 0.0 MiB\n"
    found = json.loads(echo.ask("prune", "--json").out)
    assert found == {"claims": 0, "missed": 0, "outputs": 0, "drafts": 0, "bytes": 0}


def bare_stderr(ws: World, *words: str) -> tuple[int, str, str]:
    """Call the program as a process of its own, without a log."""
    ended = subprocess.run(
        [sys.executable, "-m", "routines", *words],
        cwd=ws.root,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_no_bare_word_of_the_log_reaches_stderr(ws):
    ws.settings(
        "tz: Europe/Berlin\nagent: no\n"
        "agents: {no: {command: [/bin/sh, -c, 'kill -9 $PPID; sleep 1']}}\n"
    )
    ws.routine("daily", "")

    code, out, err = bare_stderr(ws, "run", "daily")

    assert (code, out) == (1, "")
    # Its turn process was killed, which the log calls `interrupted` and `settled`.
    assert err.startswith("interrupted")
    assert "\nsettled" not in f"\n{err}"
    assert len(err.splitlines()) == 2


def ran(ws: World) -> dict:
    # Turns have the clock of the machine: a name alone would look for what the world's clock knows.
    return json.loads(ws.ask("run", "daily", "--json").out)


def test_logs_that_are_followed_end_with_the_reply_of_an_agent_that_prints_nothing(echo):
    run = ran(echo)

    assert echo.ask("logs", run["id"]).out == run["reply"]
    assert echo.ask("logs", run["id"], "-f").out == run["reply"]


def test_logs_that_are_followed_do_not_repeat_what_was_printed(ws):
    ws.settings("tz: Europe/Berlin\nagent: it\nagents: {it: {command: [echo, hello]}}\n")
    ws.routine("daily", "")
    run = ran(ws)

    assert ws.ask("logs", run["id"], "-f").out == "hello\n"


def test_a_reset_begins_the_conversation_with_echo_anew(echo):
    assert echo.ask("run", "daily").out.startswith("turn 1 of")
    assert echo.ask("run", "daily").out.startswith("turn 2 of")

    echo.ask("session", "reset", "daily")

    assert echo.ask("run", "daily").out.startswith("turn 1 of")


def test_show_with_json_has_every_line_of_the_record(echo):
    events = json.loads(echo.ask("show", ran(echo)["id"], "--json").out)["events"]

    assert [line["event"] for line in events] == ["claim", "started", "outcome"]


def test_nothing_of_what_env_file_says_is_left_behind(echo):
    (echo.root / "secrets.env").write_text("TOKEN=tr0ub4dor\n")
    echo.routine("daily", 'cron: "0 9 * * *"\nenv_file: secrets.env\nprompt: Say hello.\n')

    assert echo.ask("run", "daily").code == 0

    kept = [path for path in (echo.root / ".routines").rglob("*") if path.is_file()]
    assert not [path.name for path in kept if path.name == "work.json"]
    assert not [path for path in kept if b"tr0ub4dor" in path.read_bytes()]


def test_who_holds_a_session_is_said_with_the_command(echo):
    held = subprocess.Popen(
        [sys.executable, "-m", "routines", "session", "hold", "daily", "--", "cat", "-"],
        cwd=echo.root,
        env=os.environ | {"PYTHONPATH": os.getcwd(), "LOGNAME": "ana"},
        stdin=subprocess.PIPE,
    )
    try:
        limit = time.monotonic() + 30
        while "session hold" not in (answer := echo.ask("session", "show", "daily").out):
            assert time.monotonic() < limit, answer
            time.sleep(0.05)
        assert answer.splitlines()[-1].startswith("busy: ")
        assert answer.splitlines()[-1].endswith(" (session hold: cat -)")
        refused = echo.ask("run", "daily")
        assert (refused.code, refused.out) == (75, "")
        assert "(session hold: cat -)" in refused.err
    finally:
        held.communicate()


@pytest.mark.parametrize(
    ("kind", "occurrence_id", "ref"),
    [
        (Kind.SLOT, "", "daily@2026-11-29T15:00:00Z"),
        (Kind.MANUAL, "aaaaaa", "manual:2026-11-29T15-00-00Z-aaaaaa"),
    ],
)
def test_a_turn_that_holds_a_session_is_named_by_its_id(echo, kind, occurrence_id, ref):
    claim = echo.started(
        echo.claim("daily", berlin("16:00"), kind=kind, occurrence_id=occurrence_id)
    )
    lease = SessionStore(echo.state).take("routine:daily", clock=echo.clock)
    lease.stamp(claim.record.path)

    assert claim.record.ref == ref
    assert echo.ask("session", "show", "daily").out.splitlines()[-1] == f"busy: {ref}"
    lease.let_go()


def test_wake_outside_of_a_turn_does_not_tell_anyone_to_wait_within_it(echo):
    for when in (("--in", "30s"), ("--at", "16:18:30")):
        answer = echo.ask("wake", *when, "check the deploy", "--session", "named:ops")

        assert answer.code == 1
        assert answer.err.endswith('\nHint: Ask again with in="1m".\n'), answer.err
    echo.environ["ROUTINES_TURN"] = "w/daily@2026-11-29T08:00:00Z"
    assert "Wait within this turn" in echo.ask("wake", "--in", "30s", "check").err


def fired(ws: World, prompt: str) -> Claim:
    """Set a wake-up in a session of its own and claim its firing, as a scheduler does."""
    session = f"named:{prompt}"
    request = WakeRequest(prompt=prompt, in_="1m", session=session, by="ana@studio")
    made = WakeupStore(ws.state).wake(
        request, now=ws.clock.now(), bounds=DEFAULT_BOUNDS, zone_key="UTC"
    )
    claim = FiringStore(ws.state).take(
        session,
        made.id,
        made.next_at,
        claims=ClaimStore(ws.state),
        at=made.next_at,
        bounds=DEFAULT_BOUNDS,
        place=zone("UTC"),
    )
    assert claim is not None
    return claim


def test_cancelling_all_wakeups_says_where_a_turn_still_runs_and_ends_what_has_not_started(ws):
    """One that runs may set others; one that is due and has not started would begin after all."""
    ws.settings()
    running, waiting = fired(ws, "runs"), fired(ws, "waits")
    running.append(Event.STARTED, at=ws.clock.now())

    answer = ws.ask("wakeups", "cancel", "--all")

    assert answer.code == 0
    assert f"{waiting.record.occurrence.id} was due and had not started" in answer.out
    assert f"{running.record.ref} still runs, and may set others" in answer.err
    assert "routines pause --all --now" in answer.err
    assert CancelStore(ws.state).pending(waiting.record.ref) is not None
    assert CancelStore(ws.state).pending(running.record.ref) is None
    for claim in (running, waiting):
        claim.let_go()


def test_wakeup_shows_the_turn_that_set_it(echo):
    turn = "4a1c9b3e/daily@2026-06-01T09:00:00Z"
    echo.environ.update(ROUTINES_TURN=turn, ROUTINES_SESSION="named:chat")
    assert echo.ask("wake", "--in", "1h", "look").code == 0
    (found,) = json.loads(echo.ask("wakeups", "--json").out)

    assert found["created_in_turn"] == turn
    shown = echo.ask("wakeups", "show", found["id"]).out
    assert "by daily@2026-06-01T09:00:00Z" in shown
    assert "that turn: routines show daily@2026-06-01T09:00:00Z" in shown
    assert "daily@2026-06-01T09:00:00Z" in echo.ask("wakeups", width=120).out


def test_a_wake_up_that_has_not_fired_is_cancelled_by_unwake_and_that_is_said(echo):
    wakeup = json.loads(echo.ask("wake", "--in", "30m", "--json", "look").out)["id"]

    answer = echo.ask("cancel", wakeup)

    assert answer.code == 1
    assert f"`routines unwake {wakeup}` cancels it" in answer.err


def test_wakeups_of_a_routine_are_listed_under_the_session_that_its_name_stands_for(echo):
    empty = echo.ask("wakeups", "list", "--session", "daily").out
    echo.ask("wake", "--in", "30m", "--session", "daily", "look again")

    assert "No wake-ups are pending in routine:daily." in empty
    assert "look again" in echo.ask("wakeups", "list", "--session", "daily").out


def test_schema_takes_json_and_prints_what_it_prints_without(ws):
    assert ws.ask("schema", "--json") == ws.ask("schema")


def test_a_fork_says_what_it_did_and_not_how_everything_stands(echo):
    echo.ask("run", "daily")

    answer = echo.ask("doctor", "--fork")

    assert answer.code == 0
    assert "has an id of its own now" in answer.out.replace("\n", " ")
    assert "well" not in answer.out
