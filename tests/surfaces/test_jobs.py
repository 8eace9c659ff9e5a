"""`routines jobs` and what the other commands say of jobs."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from routines.domain.limits import DayLimit, over_limit
from routines.domain.names import key_of
from routines.domain.record import Event, Owner
from routines.engine import host
from routines.operations.jobs import Jobs
from routines.store import locks
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.job_batches import BatchStore
from routines.store.job_work import JobWork
from routines.store.jobs import JobStore
from tests import builders
from tests.surfaces.world import World, berlin


@pytest.fixture
def queue(ws: World) -> World:
    ws.routine("digest", "prompt: Look.\n")
    return ws


def jobs_of(world: World) -> Jobs:
    return Jobs(world.state.path, clock=world.clock, by="ana@studio")


def answer(world: World, *words: str) -> Any:
    found = world.ask(*words, "--json")
    assert found.code == 0, found.out + found.err
    return json.loads(found.out)


def test_a_job_is_added_once_and_a_repeat_says_so(queue: World) -> None:
    first = answer(queue, "jobs", "add", "--id", "b-1", "--priority", "5", "look at the build")
    again = answer(queue, "jobs", "add", "--id", "b-1", "--priority", "5", "look at the build")

    assert (first["result"], again["result"]) == ("added", "duplicate")
    assert first["job"]["prompt"] == "look at the build"
    assert first["job"]["state"] == "waiting"
    assert queue.ask("jobs", "add", "--id", "b-1", "other").code == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--priority", "high", "x"], 2, "priority"),
        (["--recoveries", "-1", "x"], 2, "recoveries"),
        (["--id", "x" * 257, "x"], 2, "id"),
        (["--after", "soon", "x"], 2, "soon"),
        (["--agent", "nobody", "x"], 1, "nobody"),
        (["--session", "nobody", "x"], 1, "nobody"),
        ([" "], 2, "prompt"),
    ],
)
def test_what_can_not_be_used_is_refused_and_named(
    queue: World, words: list[str], code: int, said: str
) -> None:
    found = queue.ask("jobs", "add", *words)

    assert found.code == code
    assert said in found.err
    assert answer(queue, "jobs") == []


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("-5m", "after: a span must not be negative"),
        ("soon", "after: 'soon' is neither an instant nor a span"),
        ("tomorrow", "after: 'tomorrow' is neither an instant nor a span"),
        ("yesterday 03:00", "after: 'yesterday 03:00' is neither an instant nor a span"),
        ("09:00", "after: '09:00' is neither an instant nor a span"),
        ("in 10m", "after: 'in 10m' is neither an instant nor a span"),
        ("2026-12-01", "after: '2026-12-01' is neither an instant nor a span"),
        ("5", "after: '5' is neither an instant nor a span"),
        ("2026-13-01 09:00", "after: '2026-13-01 09:00' is no time: month must be in 1..12"),
    ],
)
def test_an_after_that_can_not_be_used_is_refused_as_a_field_of_a_job(
    queue: World, after: str, message: str
) -> None:
    found = queue.ask("jobs", "add", "--after", after, "x", "--json")

    refused = json.loads(found.out)["error"]
    assert (found.code, refused["code"], refused["message"]) == (2, "invalid-job", message)
    assert answer(queue, "jobs") == []


@pytest.mark.parametrize("after", ["90m", "1h30m", "2026-12-01 09:00", "2026-12-01T09:00:00Z"])
def test_what_is_added_for_later_is_a_duplicate_when_it_is_said_again_later(
    queue: World, after: str
) -> None:
    words = ("jobs", "add", "--id", "a", "--after", after, "look")
    assert answer(queue, *words)["result"] == "added"
    queue.clock.advance(hours=20)

    assert answer(queue, *words)["result"] == "duplicate"


def test_a_job_may_be_for_an_agent_program_that_has_a_preset(queue: World) -> None:
    assert answer(queue, "jobs", "add", "--agent", "codex", "x")["job"]["agent"] == "codex"

    near = queue.ask("jobs", "add", "--agent", "codx", "x")
    assert near.code == 1
    assert "did you mean 'codex'?" in near.err


def test_the_name_of_a_routine_stands_for_its_session(queue: World) -> None:
    added = answer(queue, "jobs", "add", "--session", "digest", "x")

    assert added["job"]["session"] == "routine:digest"


def test_the_list_shows_what_is_next_in_its_order_and_no_more_than_is_asked(queue: World) -> None:
    jobs = jobs_of(queue)
    for number in range(5):
        jobs.add(f"job {number}", id=f"j{number}", priority=number % 2, queue=f"q{number % 2}")
    jobs.add("later", id="later", after="1h")

    assert [one["id"] for one in answer(queue, "jobs")] == ["j1", "j3", "j0", "j2", "j4"]
    assert [one["id"] for one in answer(queue, "jobs", "list", "-n", "2")] == ["j1", "j3"]
    assert [one["id"] for one in answer(queue, "jobs", "list", "--queue", "q1")] == ["j1", "j3"]
    screen = queue.ask("jobs").out
    assert "5 waiting. The next waits until today 17:18." in screen or "5 waiting." in screen
    assert "No scheduler is alive" in screen
    assert "5 jobs queued: routines jobs" in queue.ask("list").out


def test_the_list_of_a_queue_says_when_its_own_next_job_is_due(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("soon", queue="other", after="10m")
    jobs.add("later", queue="ci", after="1h")
    jobs.add("now", queue="other")

    assert "The next waits until Sun 29 Nov 16:28." in queue.ask("jobs", "list").out
    screen = queue.ask("jobs", "list", "--queue", "ci").out
    assert "No jobs run or are due in ci. The next waits until Sun 29 Nov 17:18." in screen
    assert "The next waits" not in queue.ask("jobs", "list", "--queue", "nothing").out


def test_the_list_of_routines_counts_jobs_without_the_store_of_them(queue: World) -> None:
    jobs_of(queue).add("x")
    code = (
        "import sys; from routines.cli.main import main; main(['list']);"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=queue.root,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "1 job queued: routines jobs" in ended.stdout
    assert "routines.store.jobs" not in ended.stderr.split()


def test_jobs_that_their_producer_died_over_are_listed_and_counted(
    queue: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as died:
        died.setattr(BatchStore, "spread", lambda _, batch: locks.let_go(batch.fd))
        jobs_of(queue).add_many([{"prompt": "x", "id": "a"}, {"prompt": "y", "id": "b"}])

    assert [one["id"] for one in answer(queue, "jobs")] == ["a", "b"]
    assert "2 waiting." in queue.ask("jobs").out
    assert "2 jobs queued: routines jobs" in queue.ask("list").out


def test_what_runs_stands_first_and_shows_that_its_cancel_was_asked(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("first", id="a")
    jobs.add("second", id="b", priority=1)
    claimed = jobs.claim()
    assert claimed is not None
    jobs.cancel("b", "i1")

    head, *rest = answer(queue, "jobs")

    assert (head["id"], head["cancel_asked"]) == ("b", True)
    assert [one["id"] for one in rest] == ["a"]
    assert "cancelling" in queue.ask("jobs").out
    assert claimed.token not in queue.ask("jobs", "show", "b", "--json").out
    assert claimed.token not in queue.ask("show", "job:b", "--json").out


def test_hostile_text_is_harmless_on_a_screen(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("\x1b[31mred\nsecond line", id="a", lane="x")

    for words in (["jobs"], ["jobs", "show", "a"]):
        assert "\x1b" not in queue.ask(*words).out


def test_a_queued_job_is_cancelled_at_once_and_one_that_has_ended_is_not(queue: World) -> None:
    jobs_of(queue).add("x", id="a")

    first = answer(queue, "jobs", "cancel", "a", "--intent", "i1", "--reason", "not needed")
    again = answer(queue, "jobs", "cancel", "a", "--intent", "i1")
    late = queue.ask("jobs", "cancel", "a")

    assert (first["result"], first["outcome"]) == ("recorded", "cancelled")
    assert again["result"] == "replayed"
    assert late.code == 1
    assert "it has ended" in late.out
    assert queue.ask("jobs", "cancel", "none").code == 1


def test_the_general_cancel_takes_jobs_too(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("x", id="a")
    jobs.add("y", id="b")

    assert queue.ask("cancel", "a").code == 0
    assert queue.ask("cancel", "job:b").code == 0
    assert {jobs.read(one).outcome for one in ("a", "b")} == {"cancelled"}


@pytest.mark.parametrize("words", [["jobs", "cancel", "a"], ["cancel", "job:a"]])
def test_a_cancel_from_inside_a_turn_is_recorded_as_that_turn_s(
    queue: World, words: list[str]
) -> None:
    jobs_of(queue).add("x", id="a")
    queue.environ["ROUTINES_TURN"] = "ws/digest@2026-11-29T09:00:00Z"

    assert queue.ask(*words).code == 0

    (row,) = answer(queue, "history", "job")
    assert (row["outcome"], row["reason"]) == ("cancelled", "turn")
    assert "by a person" not in queue.ask("explain", "job:a").out


def settled(world: World) -> Jobs:
    jobs = jobs_of(world)
    jobs.add("look at the build", id="a", recoveries=1, lane="pr-1")
    claimed = jobs.claim()
    assert claimed is not None
    jobs.settle("a", claimed.token, "interrupted", detail="the power went")
    claimed = jobs.claim()
    assert claimed is not None
    jobs.settle("a", claimed.token, "completed", reply="all is well")
    return jobs


def test_history_show_logs_and_explain_know_a_job_by_its_id(queue: World) -> None:
    settled(queue)

    (row,) = answer(queue, "history", "job")
    assert row["id"] == "job:a"
    assert (row["trigger"], row["outcome"], row["recoveries"]) == ("job", "completed", 1)
    assert row["job"]["lane"] == "pr-1"
    assert "prompt" not in row["job"]
    assert row["slot"] is None
    assert "job a" in queue.ask("history", "job").out
    for ref in ("a", "job:a", "job:a#2"):
        assert answer(queue, "show", ref)["reply"] == "all is well"
        assert answer(queue, "explain", ref)["record"]["id"] == "job:a"
    assert "all is well" in queue.ask("logs", "a").out
    screen = queue.ask("explain", "a").out
    assert "completed" in screen
    assert "run again as #2: the power went" in screen
    assert answer(queue, "explain", "job:a")["record"]["id"] == "job:a"


def test_the_end_of_an_id_names_no_job(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("x", id="1.build")
    jobs.cancel("1.build", "i1")
    for ref in ("build", "job:build"):
        assert queue.ask("show", ref).code == 1
        assert queue.ask("explain", ref).code == 1
    assert queue.ask("show", "1.build").code == 0


def test_a_slot_named_in_full_is_not_looked_for_in_the_queue(
    queue: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(_store: JobStore, job_id: str) -> None:
        pytest.fail(f"{job_id} was looked for in the queue")

    jobs_of(queue).add("x", id="a")
    ref = queue.done("digest", berlin("2026-11-27 09:00"))
    monkeypatch.setattr(JobStore, "find", looked)

    assert answer(queue, "show", ref)["outcome"] == "completed"


def test_a_routine_goes_before_a_job_of_the_same_name(queue: World) -> None:
    jobs_of(queue).add("x", id="digest")

    assert queue.ask("show", "digest").code == 1
    assert "nothing is recorded of digest" in queue.ask("explain", "digest").err
    assert "job:digest" in queue.ask("explain", "job:digest").out


def test_explain_says_what_a_queued_job_waits_for(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("x", id="a")
    jobs.add("y", id="b")
    jobs.add("z", id="c", after="1h")

    assert "owed: no scheduler has been alive here" in queue.ask("explain", "a").out
    queue.scheduler()
    assert "2nd in line" in queue.ask("explain", "b").out
    assert "not to start before" in queue.ask("explain", "c").out
    assert queue.ask("pause", "--all").code == 0
    assert "everything is paused" in queue.ask("explain", "a").out
    assert queue.ask("explain", "job:none").code == 1


def test_explain_says_that_a_queued_job_waits_for_a_day_with_turns_left(queue: World) -> None:
    queue.settings("tz: Europe/Berlin\nagent: echo\nlimits: {turns_per_day: 1}\n")
    queue.cron("hourly", "0 * * * *")
    queue.done("hourly", berlin("16:00"))
    jobs_of(queue).add("x", id="b")

    over = "until tomorrow 1 of 1 turns of the workspace have started today"
    assert over in " ".join(queue.ask("explain", "b", width=200).out.split())
    queue.scheduler()
    said = " ".join(queue.ask("explain", "b", width=200).out.split())
    assert f"waiting: {over.replace('tomorrow', 'tomorrow:')}." in said


def test_a_queued_job_has_no_record_and_the_error_says_where_it_is(queue: World) -> None:
    jobs_of(queue).add("x", id="a")

    found = queue.ask("show", "a")

    assert found.code == 1
    assert "is queued" in found.err


def test_a_purge_is_one_counted_row(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add_many(["x", "y", "z"])
    jobs.purge("default")

    (row,) = answer(queue, "history", "job")
    assert (row["outcome"], row["reason"]) == ("cancelled", "purge")
    assert row["detail"] == "3 jobs queued in default"
    for command in ("show", "explain"):
        assert answer(queue, command, row["id"])
    (entry,) = jobs.settled()
    assert (entry.purged, entry.queue) == (3, "default")


def test_reading_commands_write_nothing(queue: World) -> None:
    jobs_of(queue).add("x", id="a")

    def snapshot() -> list[Any]:
        return [
            (folder, sorted(names), sorted(found))
            for folder, names, found in os.walk(queue.state.path)
        ]

    before = snapshot()
    for words in (["jobs"], ["jobs", "show", "a"], ["explain", "a"], ["history", "job"], ["list"]):
        queue.ask(*words)

    assert snapshot() == before


def _says(world: World, job: str, **fields: Any) -> None:
    known = JobStore(world.state, clock=world.clock).find(job)
    assert known is not None
    key = key_of(job)
    path = Path(world.state.at("jobs", "ids", key[:2], f"{key}.json"))
    path.write_text(json.dumps(known.job.to_json() | fields))


@pytest.mark.parametrize(
    "not_before", ["9999-12-31T23:59:59.5Z", "9999-12-31T23:59:59Z", "9999-12-31T10:00:00+00:00"]
)
def test_a_job_that_waits_for_the_end_of_time_is_shown_like_another(
    queue: World, not_before: str
) -> None:
    jobs_of(queue).add("x", id="a")
    _says(queue, "a", not_before=not_before)

    assert "not before" in queue.ask("jobs", "show", "a").out
    assert answer(queue, "jobs")[0]["not_before"].startswith("9998-12-28")
    assert queue.ask("jobs").code == 0
    assert queue.ask("explain", "a").code == 0
    assert answer(queue, "jobs", "cancel", "a")


@pytest.mark.parametrize(
    "fields",
    [
        {"not_before": "9999-12-31T23:59:59-10:00"},
        {"added_at": "9999-12-31T23:59:59Z"},
        {"added_at": "0001-01-01T00:00:00Z"},
        {"number": 10**300},
        {"number": float("inf")},
        {"priority": -(10**300)},
        {"recoveries": 10**300},
    ],
)
def test_what_can_not_be_reckoned_with_keeps_no_other_job_from_the_list(
    queue: World, fields: dict[str, Any]
) -> None:
    jobs_of(queue).add("x", id="a")
    jobs_of(queue).add("x", id="b")
    _says(queue, "a", **fields)

    assert [one["id"] for one in answer(queue, "jobs")] == ["b"]
    assert queue.ask("jobs").code == 0
    assert queue.ask("jobs", "show", "a").code == 1
    # Whoever takes the next one keeps it aside, and says so in the log.
    taken = jobs_of(queue).claim()
    assert taken is not None
    assert taken.job.id == "b"
    kept = Path(queue.state.at("jobs", "ids")).rglob("*.corrupt")
    assert len(list(kept)) == 1


@pytest.mark.parametrize("ending", ["cancelled", "interrupted"])
def test_what_a_worker_ended_without_a_word_is_not_said_of_a_person_or_of_the_scheduler(
    queue: World, ending: str
) -> None:
    jobs = jobs_of(queue)
    jobs.add("x", id="a")
    claimed = jobs.claim()
    assert claimed is not None

    jobs.settle("a", claimed.token, ending)

    for words in (["jobs", "show", "a"], ["show", "a"], ["history"], ["explain", "a"]):
        said = queue.ask(*words).out
        assert "person" not in said
        assert "scheduler was stopped" not in said
    assert f"its worker said {ending}" in queue.ask("explain", "a").out
    assert answer(queue, "show", "a")["detail"] == f"its worker said {ending}"


# What came of it -------------------------------------------------------------------------------


def replied(world: World, reply: str) -> Jobs:
    jobs = jobs_of(world)
    jobs.add("x", id="a")
    claimed = jobs.claim()
    assert claimed is not None
    jobs.settle("a", claimed.token, "completed", reply=reply)
    return jobs


def test_one_job_shows_all_of_its_reply_and_the_feed_the_beginning(queue: World) -> None:
    whole = "\n".join(f"line {number} of the answer" for number in range(100))
    jobs = replied(queue, whole)

    assert jobs.read("a").reply == whole
    assert answer(queue, "jobs", "show", "a")["reply"] == whole
    assert answer(queue, "show", "a")["reply"] == whole
    assert "\nline 99 of the answer\n" in queue.ask("jobs", "show", "a").out
    (end,) = jobs.settled()
    assert end.reply is not None
    assert end.reply.startswith("line 0 of the answer line 1")
    assert len(end.reply) <= 200


def test_where_the_output_is_not_kept_any_more_the_beginning_of_a_reply_is_left(
    queue: World,
) -> None:
    jobs = replied(queue, "all\nis well")
    shutil.rmtree(queue.state.at("output"))

    assert jobs.read("a").reply == "all is well"
    assert answer(queue, "jobs", "show", "a")["reply"] == "all is well"


def test_of_a_reply_without_end_that_a_worker_gives_head_and_tail_are_kept(queue: World) -> None:
    jobs = replied(queue, f"begins{'x' * 3_000_000}ends")

    reply = jobs.read("a").reply
    assert reply is not None
    assert reply.startswith("begins")
    assert reply.endswith("ends")
    assert 1_000_000 < len(reply) < 1_100_000


# Who ------------------------------------------------------------------------------------------


def test_who_claimed_a_job_is_whoever_holds_the_claim_and_not_who_added_it(queue: World) -> None:
    Jobs(queue.state.path, clock=queue.clock, by="ci@build7").add("x", id="a")
    assert jobs_of(queue).claim() is not None

    due, claimed, *_ = answer(queue, "explain", "a")["steps"]

    assert due["text"] == "job of default, priority 0, by ci@build7"
    assert claimed["text"].startswith(f"by {host.user_at_host()} (pid {os.getpid()}), ")


def test_a_job_that_a_turn_added_says_which_turn_without_the_id_of_the_workspace(
    queue: World,
) -> None:
    turn = queue.state.key("job:par")
    Jobs(queue.state.path, clock=queue.clock, by=turn).add("x", id="a")
    Jobs(queue.state.path, clock=queue.clock, by="ci/build7").add("x", id="b")
    assert jobs_of(queue).claim() is not None

    assert " by job:par\n" in queue.ask("jobs", "show", "a").out
    assert " by ci/build7\n" in queue.ask("jobs", "show", "b").out
    assert ", by job:par\n" in queue.ask("explain", "a", width=120).out
    assert answer(queue, "jobs", "show", "a")["by"] == turn


# Where it stands --------------------------------------------------------------------------------


def job_claim(world: World, name: str, owner: Owner) -> Claim:
    """The claim of a job as a scheduler of *owner* has made it."""
    jobs_of(world).add("x", id=name)
    store = JobStore(world.state, clock=world.clock)
    known = store.find(name)
    assert known is not None
    claim = store.take(known.job, at=world.clock.now(), extra={"owner": owner.to_json()})
    assert claim is not None
    return claim


def gone() -> Owner:
    """A process of this host and boot that lives no more."""
    return replace(host.owner(), start="1")


def test_each_row_of_a_job_that_has_not_ended_names_the_job(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("x", id="again", recoveries=1)
    claimed = jobs.claim()
    assert claimed is not None
    jobs.settle("again", claimed.token, "interrupted", detail="the power went")
    job_claim(queue, "elsewhere", builders.owner()).let_go()
    lost = job_claim(queue, "gone", gone())
    lost.append(Event.STARTED, at=queue.clock.now(), owner=gone().to_json())
    lost.let_go()
    parked = job_claim(queue, "parked", host.owner())
    parked.append(Event.PARKED, at=queue.clock.now(), detail="connection refused")
    parked.let_go()

    rows = queue.ask("history", "job", width=120).out

    assert re.search(r"can't tell .* job elsewhere; can't tell from here", rows)
    assert re.search(r"retrying .* job again; again now: the power went", rows)
    assert re.search(r"lost .* job gone; its owner is gone", rows)
    assert re.search(r"parked .* job parked; connection refused", rows)


def left_alone(world: World, name: str) -> str:
    """A job that a program claimed which then went; returns the token that it left."""
    jobs_of(world).add("x", id=name)
    store = JobStore(world.state, clock=world.clock)
    work = JobWork(world.state, store, clock=world.clock, owner=gone(), here=host.here())
    claimed = work.claim()
    assert claimed is not None
    return claimed.token


def test_a_job_whose_program_has_gone_is_said_to_wait_for_the_lease_and_not_for_another_host(
    queue: World,
) -> None:
    left_alone(queue, "w")

    said = (
        f"pid {os.getpid()}, which claimed it, is gone; taken back once its lease of 120 s lapses"
    )
    assert "; 1 of a program that is gone, until the lease of 120 s lapses" in line_of_turns(queue)
    assert "another host" not in line_of_turns(queue)
    (one,) = answer(queue, "jobs")
    assert (one["state"], one["detail"]) == ("unknown", said)
    assert "can't tell" in queue.ask("jobs").out
    assert said in queue.ask("jobs", "show", "w").out
    assert said in queue.ask("explain", "w", width=160).out
    assert f"job w; {said}" in queue.ask("history", "job", width=160).out


def line_of_turns(world: World) -> str:
    (found,) = answer(world, "doctor", "--only", "turns")["findings"]
    return str(found["text"])


def test_a_cancel_that_was_asked_for_is_shown_with_who_and_why_until_the_end_and_after_it(
    queue: World,
) -> None:
    token = left_alone(queue, "w")
    assert queue.ask("jobs", "cancel", "w", "--reason", "not needed").code == 0

    for words in (["show", "w"], ["jobs", "show", "w"], ["history", "job"], ["explain", "w"]):
        out = queue.ask(*words, width=250).out
        assert "its cancel was asked for by " in out, words
        assert ": not needed" in out, words
    *_, step = answer(queue, "explain", "w")["steps"]
    assert step["word"] == "cancel"
    assert step["text"].endswith(": not needed")

    jobs_of(queue).settle("w", token, "completed")

    *_, step = answer(queue, "explain", "w")["steps"]
    assert step["word"] == "cancelled"
    assert re.fullmatch(r"asked by \S+: not needed; its worker said completed", step["text"])


def test_a_job_that_was_cancelled_while_it_was_queued_says_who_asked(queue: World) -> None:
    jobs = jobs_of(queue)
    jobs.add("x", id="a")
    jobs.add("y", id="b", lane="l")
    jobs.cancel("a", "i1", reason="not needed")
    jobs.fail_lane("l", "the build is gone")

    for name, text in (
        ("a", "asked by ana@studio: not needed"),
        ("b", "lane, asked by ana@studio: the build is gone"),
    ):
        *_, step = [one for one in answer(queue, "explain", name)["steps"] if one["at"]]
        assert step["text"] == text


# In the session of a routine ---------------------------------------------------------------------


def in_session_of_digest(world: World) -> Jobs:
    """A job that a program worked in the session of a routine, one that it works, and another."""
    jobs = jobs_of(world)
    jobs.add("first", id="rt1", session="routine:digest")
    claimed = jobs.claim()
    assert claimed is not None
    jobs.settle("rt1", claimed.token, "completed", reply="done")
    jobs.add("second", id="rt2", session="routine:digest")
    jobs.add("alone", id="own")
    for _ in range(2):
        assert jobs.claim() is not None
    return jobs


def test_a_job_in_the_session_of_a_routine_is_one_of_its_turns_whoever_works_it(
    queue: World,
) -> None:
    in_session_of_digest(queue)

    by_id = {one["id"]: one for one in answer(queue, "history")}
    assert by_id["job:rt1"]["routine"] == by_id["job:rt2"]["routine"] == "digest"
    assert by_id["job:own"]["routine"] is None
    assert re.search(r"digest .* completed .* job rt1", queue.ask("history", width=120).out)

    (running, ended) = answer(queue, "history", "digest")
    assert (running["id"], ended["id"]) == ("job:rt2", "job:rt1")
    screen = queue.ask("history", "digest").out
    assert "2 of 2: 1 completed. 1 without an outcome." in screen
    of_one = queue.ask("history", "digest", "-n", "1", "--outcome", "completed").out
    assert "and 1 that are not shown" in of_one


def test_jobs_of_others_do_not_hide_the_slots_of_a_routine(
    queue: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routines.operations.history.MOST_OPENED", 3)
    queue.done("digest", berlin("2026-11-29 09:00"))
    jobs = jobs_of(queue)
    jobs.add("old", id="rt1", session="routine:digest")
    for number in range(4):
        queue.clock.advance(seconds=1)
        jobs.add("x", id=f"x{number}")
    while (claimed := jobs.claim()) is not None:
        jobs.settle(claimed.job.id, claimed.token, "completed")

    found = queue.ask("history", "digest").out

    assert "1 of 1: 1 completed. Older ones were not looked at" in found


def test_a_job_that_a_program_works_is_read_in_the_zone_of_the_workspace(queue: World) -> None:
    in_session_of_digest(queue)

    assert {one["tz"] for one in answer(queue, "history", "job")} == {"Europe/Berlin"}
    assert answer(queue, "show", "rt1")["tz"] == "Europe/Berlin"


def test_what_a_program_works_uses_up_no_turn_of_the_day_of_its_routine(queue: World) -> None:
    in_session_of_digest(queue)
    limit = DayLimit(turns=1, routine="digest")

    records = ClaimStore(queue.state).open_records()

    assert [one.routine for one in records if one.occurrence.id == "rt2"] == ["digest"]
    now = queue.clock.now()
    assert over_limit(limit, records, now=now, place=ZoneInfo("Europe/Berlin")) is None
