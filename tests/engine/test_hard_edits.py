"""The hard cases of edits under a live scheduler (PROMISES L5, FR-10).

In each of them the live schedule is what the files say, the old one never fires again, and the log
says what changed.
"""

import logging
import os

import pytest

from tests.engine.stage import MINUTE, SECOND, at
from tests.engine.test_edits import digest, folder, live, settled

__all__ = ["folder"]

OLD = digest("'*/10 * * * *'", prompt="old")
NEW = digest("'5,15,25,35,45,55 * * * *'", prompt="new")


def put(path, content, *, older_by=0):
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    if older_by:
        found = os.stat(path)
        os.utime(path, (found.st_atime - older_by, found.st_mtime - older_by))


def rename(folder, path):
    os.rename(path, folder.file("routines/other.yaml"))


def replace_by_rename(folder, path):
    put(folder.file("routines/.digest.yaml.swp"), NEW)
    os.replace(folder.file("routines/.digest.yaml.swp"), path)


def delete(folder, path):
    os.unlink(path)


def restore_with_an_older_time(folder, path):
    put(path, NEW, older_by=86_400)


def edit_of_the_same_size_in_the_same_second(folder, path):
    found = os.stat(path)
    text = OLD.replace("*/10", "*/30")
    assert len(text) == len(OLD)
    put(path, text)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def another_zone(folder, path):
    put(path, digest("'0,10,20,30,40,50 9 * * *'", prompt="new", tz="Europe/Berlin"))


# What is done, what fires afterwards, and what the log says of it.
CASES = [
    (rename, {"other": "08:20 08:30"}, ["routine-removed digest", "routine-added other"]),
    (replace_by_rename, {"digest": "08:15 08:25"}, ["routine-edited digest: schedule, prompt"]),
    (delete, {}, ["routine-removed digest"]),
    (
        restore_with_an_older_time,
        {"digest": "08:15 08:25"},
        ["routine-edited digest: schedule, prompt"],
    ),
    (
        edit_of_the_same_size_in_the_same_second,
        {"digest": "08:30"},
        ["routine-edited digest: schedule"],
    ),
    (another_zone, {"digest": ""}, ["routine-edited digest: schedule, prompt"]),
]


def said(caplog):
    """What the log says of edits, as `routine-edited digest: schedule, prompt`."""
    lines = []
    for one in caplog.records:
        if one.getMessage() in (
            "routine-added",
            "routine-edited",
            "routine-removed",
            "file-broken",
            "file-mended",
            "file-removed",
        ):
            keys = getattr(one, "keys", None)
            lines.append(f"{one.getMessage()} {one.routine}" + (f": {keys}" if keys else ""))
    return lines


def fired(stage, *names):
    """When turns of each routine were given to the agent after 08:12."""
    found = {}
    for turn in stage.agent.turns:
        if turn.slot > at("08:12"):
            found.setdefault(turn.routine, []).append(f"{turn.slot:%H:%M}")
    return {name: " ".join(slots) for name, slots in found.items()}


@pytest.mark.parametrize(
    ("edit", "fires", "log"), CASES, ids=[case[0].__name__.replace("_", " ") for case in CASES]
)
async def test_live_schedule_is_what_the_files_say(stage, folder, caplog, edit, fires, log):
    caplog.set_level(logging.INFO, "routines")
    path = folder.routine("digest", OLD)
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:12"))
        assert said(caplog) == [], "what is there at the start is no edit"
        edit(folder, path)
        await stage.clock.advance_to(at("08:32"))

    assert stage.slots[:1] == ["08:10"]
    expected = {name: slots for name, slots in fires.items() if slots}
    assert fired(stage) == expected
    assert said(caplog) == log


async def test_half_written_file_is_not_read_before_it_is_whole(stage, folder, caplog):
    """A writer that takes its time: what is there in between is valid, and another schedule."""
    caplog.set_level(logging.INFO, "routines")
    folder.routine("digest", OLD)
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:14:55"))
        text = digest("'15 * * * *'", prompt="never")
        for end in range(8):
            # The slot of the half comes to be due while it is written.
            folder.routine("digest", text + f"# {end}\n")
            await stage.clock.advance(SECOND)
        folder.routine("digest", NEW)
        await stage.clock.advance_to(at("08:26"))

    assert stage.told == ["old", "new"]
    assert stage.slots == ["08:10", "08:25"]
    assert said(caplog) == ["routine-edited digest: schedule, prompt"]


async def test_file_that_turns_bad_and_good_again_loses_nothing_and_the_log_says_both(
    stage, folder, caplog
):
    caplog.set_level(logging.INFO, "routines")
    folder.routine("digest", OLD)
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:12"))
        for content in ("cron: [", OLD, "promt: x", NEW):
            folder.routine("digest", content)
            await stage.clock.advance(3 * MINUTE)
        await stage.clock.advance_to(at("08:36"))

    # The last good version goes on while the file is bad: 08:20 is of OLD, mended at 08:15.
    assert fired(stage) == {"digest": "08:20 08:25 08:35"}
    assert said(caplog) == [
        "file-broken digest",
        "file-mended digest",
        "file-broken digest",
        "routine-edited digest: schedule, prompt",
        "file-mended digest",
    ]
    broken = [one for one in caplog.records if one.getMessage() == "file-broken"]
    assert [one.still_armed for one in broken] == [True, True]
    assert all("routines/digest.yaml:1" in one.error for one in broken)


async def test_broken_file_that_is_deleted_is_not_called_mended(stage, folder, caplog):
    caplog.set_level(logging.INFO, "routines")
    folder.routine("digest", OLD)
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:12"))
        folder.routine("digest", "cron: [")
        await stage.clock.advance(3 * MINUTE)
        os.remove(os.path.join(folder.path, "routines", "digest.yaml"))
        await stage.clock.advance(3 * MINUTE)

    assert said(caplog) == ["file-broken digest", "routine-removed digest", "file-removed digest"]


async def test_branch_that_is_switched_away_for_a_month_and_back_is_one_counted_record(
    stage, folder
):
    """All files go, others come, a month later all are as they were: nothing is made good."""
    names = [f"r{number}" for number in range(5)]
    for name in names:
        folder.routine(name, digest("'0 9 * * *'", prompt=name))
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("10:00"))
        for name in names:
            os.unlink(folder.file(f"routines/{name}.yaml"))
        folder.routine("branch", digest("'30 9 * * *'", prompt="branch"))
        await stage.clock.advance_to(at("2026-07-01 10:00"), step=6 * 60 * MINUTE)
        os.unlink(folder.file("routines/branch.yaml"))
        for name in names:
            folder.routine(name, digest("'0 9 * * *'", prompt=name))
        await settled(stage)
        told = len(stage.agent.turns)
        await stage.clock.advance_to(at("2026-07-02 09:31"))

    for name in names:
        assert stage.history(name) == [
            "09:00 completed",
            "09:00-09:00 missed not-armed x30",
            "09:00 completed",
        ]
    assert len(stage.agent.turns) == told + len(names), "nothing is made good"
    # What is in neither branch any more fires no more.
    assert stage.told.count("branch") == 30


async def test_five_hundred_files_that_a_checkout_changes_at_once_are_all_seen(
    stage, folder, caplog
):
    """At nine all of them would have fired; by the new files twenty do, a minute later."""
    caplog.set_level(logging.INFO, "routines")
    names = [f"r{number:03}" for number in range(500)]
    for name in names:
        put(folder.file(f"routines/{name}.yaml"), digest("'0 9 * * *'", prompt="old"))
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:59:50"))
        for number, name in enumerate(names):
            cron = "'1 9 * * *'" if number < 20 else "'0 23 * * *'"
            put(folder.file(f"routines/{name}.yaml"), digest(cron, prompt="new"))
        await stage.clock.advance_to(at("09:00:05"), step=SECOND)
        await stage.clock.advance_to(at("09:01:20"))

    assert stage.told == ["new"] * 20
    assert {turn.slot for turn in stage.agent.turns} == {at("09:01")}
    assert said(caplog) == [f"routine-edited {name}: schedule, prompt" for name in names]


async def test_two_schedulers_that_see_an_edit_at_different_moments_fire_what_the_file_says(
    stage, folder
):
    """The one that has not looked yet reads the file under the routine's lock (L5)."""
    folder.routine("digest", OLD)
    late = live(folder)
    async with (
        stage.running(routines=live(folder)),
        stage.running(routines=late),
    ):
        await stage.clock.advance_to(at("08:12"))
        late.look = lambda _now: False
        folder.routine("digest", NEW)
        await stage.clock.advance_to(at("08:22"))
        assert fired(stage) == {"digest": "08:15"}, "08:20 is of the old schedule"
        del late.look
        await stage.clock.advance_to(at("08:36"))

    assert stage.history() == [
        "08:10 completed",
        "08:15 completed",
        "08:25 completed",
        "08:35 completed",
    ]
    assert stage.told[1:] == ["new"] * 3


async def test_scheduler_that_has_not_seen_a_file_go_starts_no_turn_of_it(stage, folder):
    path = folder.routine("digest", OLD)
    late = live(folder)
    async with stage.running(routines=late):
        await stage.clock.advance_to(at("08:12"))
        late.look = lambda _now: False
        os.unlink(path)
        await stage.clock.advance_to(at("08:22"))

    assert stage.slots == ["08:10"]


async def test_slot_of_the_moment_that_its_file_is_edited_in_is_recorded_and_alarms_nobody(
    stage, folder
):
    """By the file it is no slot any more, and the scheduler has not taken that up yet."""
    folder.routine("digest", digest("'0 9 * * *'"))
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:59:59"))
        folder.routine("digest", digest("'30 9 * * *'", prompt="new"))
        await stage.clock.advance_to(at("09:31"))

    assert stage.history() == ["09:00-09:00 missed not-armed x1", "09:30 completed"]
    (record,) = stage.missed()
    assert record.detail == "it was edited before it could start"
    assert [event.name for event in stage.events if event.name == "alert"] == []
