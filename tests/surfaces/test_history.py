"""What `history`, `show` and `explain` find, and how an occurrence is named."""

import json
from datetime import timedelta

import pytest

from routines.domain.occurrence import Kind
from tests.surfaces.world import NOW, World, berlin

# DESIGN 11: fields are only added within a major version.
RECORD_KEYS = [
    *("id", "routine", "slot", "tz", "trigger", "by", "state"),
    *("outcome", "reason", "detail", "warnings", "due_at", "claimed_at", "started_at", "ended_at"),
    *(
        "duration_s",
        "late_s",
        "session",
        "epoch",
        "turn",
        "native_session",
        "agent",
        "agent_version",
    ),
    *("model", "cwd", "exit_code", "signal", "usage", "prompt", "reply", "files", "delivered"),
    *("attempts", "recoveries", "definition", "owner", "run_id", "wakeup", "job", "missed"),
    "retry_at",
]


@pytest.fixture
def past(ws: World) -> World:
    """Four slots: completed, gated, failed, completed with a warning; and three given up."""
    ws.scheduler()
    ws.cron("daily", "0 9 * * *")
    ws.cron("other", "0 12 * * *")
    ws.gave_up("daily", berlin("2026-11-21 09:00"), berlin("2026-11-24 09:00"), "asleep")
    ws.done("daily", berlin("2026-11-25 09:00"), reply="One.")
    ws.settled("daily", berlin("2026-11-26 09:00"), "skipped", "gate", "nothing new")
    ws.done("daily", berlin("2026-11-27 09:00"), "failed", "exit", "exit 1: no", exit_code=1)
    ws.done("daily", berlin("2026-11-28 09:00"), warnings=["denied: Bash"])
    ws.done("daily", berlin("2026-11-29 09:00"), reply="Five.", usage={"usd": 0.08, "tokens": 214})
    ws.done("other", berlin("2026-11-29 12:00"))
    return ws


def days(ws: World, *words: str) -> list[str]:
    """The day of each row, newest first."""
    return [entry["due_at"][8:10] for entry in entries(ws, *words)]


def entries(ws: World, *words: str) -> list[dict]:
    answer = ws.ask("history", *words, "--json")
    return json.loads(answer.out)


def test_records_come_newest_first_with_what_was_given_up_among_them(past):
    assert days(past, "daily") == ["29", "28", "27", "26", "25", "24"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "2"], ["29", "28"]),
        (["--since", "2026-11-27"], ["29", "28", "27"]),
        (["--since", "36h"], ["29", "28"]),
        (["--outcome", "failed"], ["27"]),
        (["--outcome", "missed"], ["24"]),
        (["--problems"], ["28", "27", "24"]),
        (["--session", "routine:nobody"], []),
        (["--session", "routine:daily", "-n", "1"], ["29"]),
        (["--before", "daily@2026-11-27T08:00:00Z"], ["26", "25", "24"]),
        (["--before", "daily@2026-11-26 09:00", "-n", "1"], ["25"]),
    ],
)
def test_filters_narrow_it(past, words, expected):
    assert days(past, "daily", *words) == expected


def test_without_a_name_it_is_everything_of_the_last_day(past):
    assert [entry["routine"] for entry in entries(past)] == ["other", "daily"]


def test_a_record_has_exactly_the_documented_keys(past):
    for entry in entries(past, "daily"):
        assert list(entry) == RECORD_KEYS


def test_a_record_says_all_that_is_known(past):
    entry = entries(past, "daily", "-n", "1")[0]

    known = {
        key: entry[key] for key in ("id", "slot", "state", "outcome", "reply", "usage", "turn")
    }
    assert known == {
        "id": "daily@2026-11-29T08:00:00Z",
        "slot": "2026-11-29T08:00:00Z",
        "state": "settled",
        "outcome": "completed",
        "reply": "Five.",
        "usage": {"usd": 0.08, "tokens": 214},
        "turn": 1,
    }
    assert (entry["duration_s"], entry["late_s"], entry["attempts"]) == (41, 0.0, 1)


def test_what_was_given_up_is_counted_where_nobody_has_yet(past):
    (entry,) = entries(past, "daily", "--outcome", "missed")

    assert entry["missed"] == {
        "from": "2026-11-22T08:00:00Z",
        "to": "2026-11-24T08:00:00Z",
        "count": 3,
    }
    assert "missed x3" in past.ask("history", "daily").out


def test_more_than_a_thousand_reads_so(past):
    past.gave_up(
        "other", berlin("2020-01-01 12:00"), berlin("2026-11-28 12:00"), "disabled", count=1001
    )

    assert "missed x1000+" in past.ask("history", "other").out
    # What is counted no further adds up to no exact number.
    assert "at least 1001 missed." in past.ask("history", "other").out


def test_what_is_due_and_unclaimed_stands_first(ws):
    ws.cron("daily", "0 9 * * *", since=berlin("2026-11-28 10:00"))
    ws.done("daily", berlin("2026-11-28 09:00"))

    first, second = entries(ws, "daily")
    assert (first["state"], first["outcome"], first["claimed_at"]) == ("owed", None, None)
    assert second["state"] == "settled"


def test_a_turn_that_runs_is_running_only_while_its_owner_holds_the_claim(ws):
    ws.cron("daily", "0 9 * * *")
    claim = ws.started(ws.claim("daily", berlin("2026-11-29 09:00")))

    held = entries(ws, "daily")[0]["state"]
    claim.let_go()
    free = entries(ws, "daily")[0]["state"]

    assert (held, free) == ("running", "unknown")


def test_a_run_by_hand_and_a_firing_are_rows_of_the_routine(ws):
    ws.cron("daily", "0 9 * * *")
    hand = ws.claim(
        "daily", berlin("10:00"), kind=Kind.MANUAL, occurrence_id="k3m9q2", trigger="manual"
    )
    ws.end(ws.started(hand))
    wakeup = {"id": "w-7k3m9q", "created_by": "x"}
    fired = ws.claim(
        "routine:daily", berlin("11:00"), kind=Kind.WAKE, occurrence_id="w-7k3m9q", trigger="wake-up",
        wakeup=wakeup, session="routine:daily",
    )  # fmt: skip
    ws.end(ws.started(fired))

    rows = entries(ws, "daily", "--outcome", "completed")

    assert [row["id"] for row in rows] == [
        "wake:w-7k3m9q@2026-11-29T10:00:00Z",
        "manual:2026-11-29T09-00-00Z-k3m9q2",
    ]
    assert [row["slot"] for row in rows] == ["2026-11-29T10:00:00Z", None]
    assert "wake-up w-7k3m9q" in ws.ask("history", "daily").out


@pytest.mark.parametrize("gone", ["deleted", "broken", "there"])
def test_a_firing_in_a_named_session_is_a_row_of_the_routine_also_when_its_file_is_gone(ws, gone):
    ws.cron("daily", "0 9 * * *", "session: named:shop\n")
    slot = ws.done("daily", berlin("09:00"), claim={"session": "named:shop"})
    fired = ws.claim(
        "named:shop", berlin("11:00"), kind=Kind.WAKE, occurrence_id="w-7k3m9q", trigger="wake-up",
        wakeup={"id": "w-7k3m9q", "created_by": "x"}, session="named:shop", routine=None,
    )  # fmt: skip
    ws.end(ws.started(fired))
    # A run by hand elsewhere says nothing of where it wakes.
    hand = ws.claim(
        "daily", berlin("12:00"), kind=Kind.MANUAL, occurrence_id="k3m9q2", session="named:else"
    )
    ws.end(ws.started(hand))
    if gone == "deleted":
        (ws.root / "routines" / "daily.yaml").unlink()
    elif gone == "broken":
        ws.routine("daily", "promt: x\n")

    assert [row["id"] for row in entries(ws, "daily", "--outcome", "completed")] == [
        "manual:2026-11-29T11-00-00Z-k3m9q2",
        "wake:w-7k3m9q@2026-11-29T10:00:00Z",
        slot,
    ]


# References -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "id_"),
    [
        ("daily", "daily@2026-11-29T08:00:00Z"),
        ("daily@2026-11-27T08:00:00Z", "daily@2026-11-27T08:00:00Z"),
        ("daily@2026-11-27 09:00", "daily@2026-11-27T08:00:00Z"),
        ("daily@2026-11-27", "daily@2026-11-27T08:00:00Z"),
        ("daily@yesterday 09:00", "daily@2026-11-28T08:00:00Z"),
        ("daily@09:00", "daily@2026-11-29T08:00:00Z"),
        ("daily@2026-11-23 09:00", "daily@2026-11-24T08:00:00Z"),
        (
            "00000000-0000-4000-8000-000000000000/daily@2026-11-27T08:00:00Z",
            "daily@2026-11-27T08:00:00Z",
        ),
    ],
)
def test_an_occurrence_is_named_in_many_ways(past, ref, id_):
    assert json.loads(past.ask("show", ref, "--json").out)["id"] == id_


def test_a_run_by_hand_is_named_by_its_id_and_by_its_minute(ws):
    ws.cron("daily", "0 9 * * *")
    at = berlin("10:00") + timedelta(seconds=21)
    hand = ws.claim("daily", at, kind=Kind.MANUAL, occurrence_id="k3m9q2", trigger="manual")
    ws.end(ws.started(hand))

    for ref in ("manual:2026-11-29T09-00-21Z-k3m9q2", "daily@10:00", "daily"):
        assert json.loads(ws.ask("show", ref, "--json").out)["id"] == hand.record.ref


def test_a_firing_is_named_by_its_wake_up(ws):
    ws.cron("daily", "0 9 * * *")
    for time in ("10:00", "11:00"):
        claim = ws.claim(
            "routine:daily",
            berlin(time),
            kind=Kind.WAKE,
            occurrence_id="w-7k3m9q",
            trigger="wake-up",
        )
        ws.end(ws.started(claim))

    newest = json.loads(ws.ask("show", "w-7k3m9q", "--json").out)["id"]
    older = ws.ask("show", "wake:w-7k3m9q@2026-11-29T09:00:00Z")

    assert newest == "wake:w-7k3m9q@2026-11-29T10:00:00Z"
    assert older.code == 0


@pytest.mark.parametrize(
    "ref",
    [
        "daily@2026-11-20 09:00",
        "daily@12:30",
        "w-000000",
        "manual:2026-11-29T09-00-21Z-k3m9q2",
        "job:7",
    ],
)
def test_a_reference_to_nothing_says_so_and_what_explains_it(past, ref):
    answer = past.ask("show", ref)

    assert answer.code == 1
    assert answer.err.startswith("Error: ")
    assert "Hint: " in answer.err


def test_a_deleted_routine_keeps_its_history(past):
    (past.root / "routines" / "daily.yaml").unlink()

    assert days(past, "daily")[:2] == ["29", "28"]
    assert past.ask("show", "daily").code == 0


def test_a_broken_routines_yaml_hides_no_history(past):
    past.settings("tz: Europe/Berlin\nagent: [\n")

    assert past.ask("history", "daily", "--json").code == 0
    assert past.ask("explain", "daily").code == 0
    assert "Nothing is armed." in past.ask("list").out


def test_follow_gives_what_ends_from_now_on_an_object_a_line(past, monkeypatch):
    class Stop(Exception):
        pass

    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 1:
            past.done("daily", NOW, reply="Six.")
        elif len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(past.clock, "sleep", sleep)

    answer = past.ask("history", "daily", "--follow", "--json")

    first, *_rest = answer.out.splitlines()
    assert json.loads(first)["reply"] == "Six."
    assert answer.code == 130


# What it costs ----------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch):
    """The claims that were read, by path."""
    from routines.store import files

    read, paths = files.read, []

    def noting(path):
        if "/claims/" in path:
            paths.append(path)
        return read(path)

    monkeypatch.setattr(files, "read", noting)
    return paths


def many(ws: World, count: int) -> None:
    """So many records of one routine, as cheaply as they can be made."""
    ws.cron("daily", "* * * * *")
    first = ws.done("daily", NOW - timedelta(days=1), reply="ok")
    assert first
    line = next((ws.root / ".routines" / "claims" / "daily").rglob("*.jsonl")).read_bytes()
    for minute in range(count):
        at = NOW - timedelta(minutes=minute)
        folder = ws.root / ".routines" / "claims" / "daily" / f"{at:%Y-%m-%d}"
        folder.mkdir(exist_ok=True)
        (folder / f"{at:%Y-%m-%dT%H-%M-%SZ}.jsonl").write_bytes(line)


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["history", "daily", "-n", "20"], 20),
        (["history", "-n", "5"], 5),
        (["show", "daily"], 2),
        (["explain", "daily"], 2),
        # The newest, a run of failures that ends at once, and the whole of what is shown.
        (["list"], 3),
    ],
)
def test_only_what_is_shown_is_opened_however_much_there_is(ws, opened, words, most):  # BR-61
    many(ws, 600)
    opened.clear()

    answer = ws.ask(*words)

    assert answer.code == 0
    assert len(opened) <= most


def test_the_count_of_all_is_known_from_the_names(ws):
    many(ws, 600)

    assert "20 of 601: 20 completed." in ws.ask("history", "daily").out


# What shares a second, and what is of a tag -------------------------------------------------------


def by_hand(ws: World, name: str, run_id: str, milliseconds: int) -> str:
    """A run by hand at 16:12:21 and so many milliseconds."""
    claim = ws.claim(
        name,
        berlin("16:12") + timedelta(seconds=21),
        kind=Kind.MANUAL,
        occurrence_id=run_id,
        trigger="manual",
        late=timedelta(milliseconds=milliseconds),
    )
    ws.started(claim)
    return ws.end(claim, reply=run_id)


@pytest.fixture
def hasty(ws: World) -> tuple[World, list[str]]:
    """Three runs by hand within one second, whose names sort in another order."""
    ws.scheduler()
    ws.cron("daily", "0 9 * * *")
    ws.done("daily", berlin("09:00"))
    return ws, [
        by_hand(ws, "daily", run_id, milliseconds)
        for run_id, milliseconds in (("bbbbbb", 100), ("cccccc", 300), ("aaaaaa", 600))
    ]


def test_runs_within_one_second_come_in_the_order_they_were_claimed(hasty):
    ws, runs = hasty

    assert [entry["id"] for entry in entries(ws, "daily")][:3] == runs[::-1]
    assert [entry["id"] for entry in entries(ws)][:3] == runs[::-1]
    assert json.loads(ws.ask("show", "daily", "--json").out)["id"] == runs[-1]
    assert json.loads(ws.ask("show", "daily@16:12", "--json").out)["id"] == runs[-1]


def test_a_page_that_ends_within_a_second_loses_none_of_it(hasty):
    ws, runs = hasty

    first = [entry["id"] for entry in entries(ws, "daily", "-n", "1")]
    rest = [entry["id"] for entry in entries(ws, "daily", "--before", first[0])]

    assert first + rest == [*runs[::-1], "daily@2026-11-29T08:00:00Z"]


def test_a_tag_narrows_it_to_its_routines(past):
    past.routine("other", 'cron: "0 12 * * *"\ntags: [noon, far]\n')
    past.cron("untagged", "0 12 * * *")
    past.done("untagged", berlin("13:00"))

    assert [entry["routine"] for entry in entries(past, "--tag", "noon")] == ["other"]
    assert entries(past, "daily", "--tag", "noon") == []
    assert entries(past, "--tag", "nobody") == []
    answer = past.ask("history", "--tag", "far", "--tag", "near")
    assert answer.out.splitlines()[-1] == "1 of 1: 1 completed. None without an outcome."


def test_the_foot_counts_what_is_shown_and_says_what_is_not(past):
    past.cron("open", "0 * * * *")
    past.done("open", berlin("12:00"))
    for hour in ("13:00", "14:00", "15:00"):
        past.claim("open", berlin(hour))
    past.done("open", berlin("16:00"), "failed", "exit")

    def foot(*words):
        return past.ask("history", "open", *words).out.splitlines()[-1]

    assert foot() == "5 of 5: 1 completed, 1 failed. 3 without an outcome."
    assert foot("-n", "2") == "2 of 5: 1 failed. 1 without an outcome, and 2 that are not shown."
    assert (
        foot("--problems") == "1 of 1: 1 failed. None without an outcome, and 3 that are not shown."
    )


def test_the_foot_counts_what_was_asked_for_and_says_how_many_of_those_are_not_shown(
    ws, monkeypatch
):
    ws.cron("daily", "59 23 * * *")
    for hour in range(1, 15):
        ended = ("completed",) if hour % 2 else ("failed", "exit")
        ws.done("daily", berlin(f"{hour:02}:00"), *ended)

    def foot(*words):
        return ws.ask("history", "daily", *words, width=200).out.splitlines()[-1]

    rest = "None without an outcome."
    assert foot("-n", "5") == f"5 of 14: 2 completed, 3 failed. {rest}"
    assert foot("--problems") == f"7 of 7: 7 failed. {rest}"
    assert foot("--problems", "-n", "5") == (
        f"5 of 7: 5 failed. 2 more are not shown: -n 7. {rest}"
    )
    assert foot("--outcome", "completed", "-n", "6") == (
        f"6 of 7: 6 completed. 1 more is not shown: -n 7. {rest}"
    )
    assert foot("--before", "daily@2026-11-29T03:00:00Z", "-n", "2") == (
        f"2 of 3: 1 completed, 1 failed. 1 more is not shown: -n 3. {rest}"
    )
    monkeypatch.setattr("routines.operations.history.MOST_OPENED_TO_COUNT", 2)
    assert foot("--problems", "-n", "1").startswith("1 of at least 2: 1 failed. At least 1 more is")
