"""What a model reads about wake-ups, word by word (screens 1 to 3)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from routines.domain.wake_request import AlreadySet, WakeRequest, check_request
from routines.domain.wake_texts import (
    Setting,
    answer_wake,
    answer_wakeups,
    instructions,
    moment,
    ordinal,
    refusal,
    tools,
    unwoken_ended,
    unwoken_gone,
    unwoken_not_started,
    unwoken_started,
    wrap,
)
from routines.domain.wakeup import Bounds
from routines.errors import StoreBusy, WakeupRefused

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 29, 15, 18, tzinfo=UTC)
HERE = Setting(now=NOW, zone_key=BERLIN, reply_to=("digests/", "desktop"), pending=2)


def wakeup(*, now=NOW, fired_today=0, turn="w/daily@x", by="w/daily@x", called="w-7k3m9q", **words):
    request = WakeRequest(
        prompt=words.pop("prompt", "check the deploy again and tell me"),
        session="routine:daily",
        by=by,
        turn=turn,
        **words,
    )
    return check_request(
        request,
        id=called,
        now=now,
        pending=(),
        fired_today=fired_today,
        bounds=Bounds(),
        zone_key=BERLIN,
    )


# The tools -----------------------------------------------------------------------------------

HELP = """\
wake      Be called again later, in this same conversation. Finish this turn now; at the time you are given `prompt`
          as a new turn, with all of this conversation behind you.
          For: a check that must wait (deploy, build, a reply), or that repeats. Not for: waiting less than 1 minute, or work
          that you can do now. Use this and not a sleep, a cron job or another scheduling tool: only this one lasts.
          Exactly one of in, at, every, cron.
  prompt  what you will be told. Say what to look at, what to do then, and when to stop.
  in      "10m", "2h30m", "1d"; at least 1m
  at      "2026-11-30T09:00" or "09:00" (its next coming), read in tz; or with an offset
  every   "30m"; at least 10m; goes on until unwake
  cron    "0 9 * * 1-5"; at least 10 min apart; goes on until unwake
  tz      an IANA name, for at and cron; default Europe/Berlin
unwake    Cancel one of your pending wake-ups.            id  "w-7k3m9q"
wakeups   Your pending wake-ups: id, when, start of prompt."""


def test_the_help_of_the_tools_is_that_of_the_screens():
    assert "\n".join(tool.help() for tool in tools(zone_key=BERLIN)) == HELP


def test_the_schemas_are_flat_and_of_text_alone():
    for tool in tools(zone_key=BERLIN):
        schema = tool.schema()
        assert set(schema) == {"type", "properties", "required", "additionalProperties"}
        for argument in schema["properties"].values():
            assert set(argument) == {"type", "description"}
            assert argument["type"] == "string"
    wake, unwake, wakeups = tools(zone_key=BERLIN)
    assert wake.schema()["required"] == ["prompt"]
    assert list(wake.schema()["properties"]) == ["prompt", "in", "at", "every", "cron", "tz"]
    assert unwake.schema()["required"] == ["id"]
    assert wakeups.schema()["properties"] == {}


def test_the_hints_say_what_a_tool_changes():
    wake, unwake, wakeups = (tool.annotations() for tool in tools(zone_key=BERLIN))
    assert (wake["readOnlyHint"], wake["idempotentHint"]) == (False, False)
    assert (unwake["readOnlyHint"], unwake["idempotentHint"]) == (False, True)
    assert wakeups["readOnlyHint"]
    assert not any(one["destructiveHint"] for one in (wake, unwake, wakeups))


def test_the_descriptions_say_the_bounds_that_hold():
    wake, *_ = tools(
        zone_key="UTC", bounds=Bounds(ahead=timedelta(minutes=5), apart=timedelta(hours=1))
    )
    assert "less than 5 minutes" in wake.description
    assert "at least 5m" in wake.params["in"]
    assert "at least 1h" in wake.params["every"]
    assert "default UTC" in wake.params["tz"]


def test_the_instructions_are_one_line():
    assert instructions(who="daily\nx", session="routine:daily", reply_to=["digests/"]) == (
        "You are daily x, in the conversation routine:daily. Your plain reply goes to digests/."
    )


# Answers -------------------------------------------------------------------------------------


def test_set():
    assert answer_wake(wakeup(in_="10m"), HERE) == (
        "Set. w-7k3m9q fires Sun 29 Nov 16:28 +01:00 Europe/Berlin (15:28Z), in 10 m,"
        " in this conversation.\n"
        'Your reply then goes to digests/ and desktop. 2 of 20 pending here. Cancel: unwake("w-7k3m9q").'
    )


def test_set_and_recurring():
    assert answer_wake(wakeup(every="30 min"), HERE).startswith(
        "Set. w-7k3m9q fires Sun 29 Nov 16:48 +01:00 Europe/Berlin (15:48Z), in 30 m,"
        " then every 30m until unwake, in this conversation.\n"
    )
    assert ", then cron 0 9 * * 1-5 until unwake, " in answer_wake(wakeup(cron="0 9 * * 1-5"), HERE)


def test_set_outside_a_turn():
    there = replace(HERE, here=False, reply_to=())
    assert answer_wake(wakeup(in_="10m"), there).endswith(
        "in 10 m, in a new conversation: the prompt must say all that it needs.\n"
        'Your reply then goes to nobody. 2 of 20 pending here. Cancel: unwake("w-7k3m9q").'
    )


def test_set_outside_a_turn_while_no_scheduler_is_alive_says_both():
    there = replace(HERE, here=False, reply_to=(), no_scheduler="~/routines")
    assert answer_wake(wakeup(in_="10m"), there) == (
        "Set, but no scheduler is alive on ~/routines: it fires only once one is started."
        " Tell the person: routines start\n"
        "w-7k3m9q is due Sun 29 Nov 16:28 +01:00 Europe/Berlin (15:28Z),"
        " in a new conversation: the prompt must say all that it needs."
        ' Cancel: unwake("w-7k3m9q").'
    )


def test_already_set():
    assert answer_wake(AlreadySet(wakeup(in_="10m")), HERE) == (
        "Already set: w-7k3m9q is the same prompt at the same time. Nothing was added."
    )


def test_set_over_the_firings_of_today():
    assert answer_wake(wakeup(in_="10m", fired_today=150), HERE).splitlines()[0] == (
        "Set, but this conversation has used its 150 firings of today:"
        " w-7k3m9q fires Mon 30 Nov 00:00 Europe/Berlin at the earliest."
    )


def test_set_while_no_scheduler_is_alive():
    alone = replace(HERE, no_scheduler="~/routines")
    assert answer_wake(wakeup(in_="10m"), alone) == (
        "Set, but no scheduler is alive on ~/routines: it fires only once one is started."
        " Tell the person: routines start\n"
        "w-7k3m9q is due Sun 29 Nov 16:28 +01:00 Europe/Berlin (15:28Z)."
        ' Cancel: unwake("w-7k3m9q").'
    )
    assert "no scheduler is alive" in answer_wake(AlreadySet(wakeup(in_="10m")), alone)


def test_refused():
    with pytest.raises(WakeupRefused) as caught:
        wakeup(in_="30s")
    assert refusal(caught.value) == (
        'Refused: in "30s" is too soon; the shortest is 1m. Nothing was scheduled.\n'
        'Wait within this turn, or ask again with in="1m".'
    )
    busy = StoreBusy("what is pending is being changed by another process", hint="try again")
    assert refusal(busy) == (
        "Refused: what is pending is being changed by another process.\ntry again"
    )


def test_the_list_of_what_is_pending():
    soon = wakeup(in_="3m", called="w-9d2c41")
    rest = [
        wakeup(every="30m", called="w-5b0e77", prompt="look\nat \x1b[31mit"),
        wakeup(at="09:00", called="w-8a11f0", prompt="x").with_(deferred_since=NOW),
        wakeup(at="2026-12-24 18:00", called="w-000001", prompt="x"),
        wakeup(at="2027-03-01", called="w-000002", prompt="x"),
    ]
    assert answer_wakeups([*rest, soon], HERE).splitlines() == [
        "5 of 20 pending here; it is Sun 29 Nov 16:18 +01:00 Europe/Berlin:",
        '  w-9d2c41  16:21  "check the deploy again and..."',
        '  w-5b0e77  16:48  every 30m  "look at \\x1b[31mit"',
        '  w-8a11f0  Mon 09:00  "x"  (waits: this conversation is busy)',
        '  w-000001  24 Dec 18:00  "x"',
        '  w-000002  2027-03-01 00:00  "x"',
    ]
    assert answer_wakeups([], HERE) == "Nothing is pending in this conversation."


def test_unwake_says_what_it_found():
    assert unwoken_gone("w-7k3m9q", HERE) == (
        "Cancelled: w-7k3m9q never fires. 2 of 20 pending here."
    )
    assert "does not" in unwoken_not_started("w-7k3m9q")
    assert unwoken_started("w-7k3m9q", own_turn=True, stopped=True) == (
        "This turn is the firing of w-7k3m9q: it goes on, and its result is kept."
        " No other one comes."
    )
    assert unwoken_started("w-7k3m9q", own_turn=False, stopped=False) == (
        "Too late for the firing that runs: w-7k3m9q has started, and goes on."
    )
    assert "(completed)" in unwoken_ended("w-7k3m9q", "completed")


@pytest.mark.parametrize(
    ("instant", "zone_key", "text"),
    [
        ("2026-11-29T15:28:00", BERLIN, "Sun 29 Nov 16:28 +01:00 Europe/Berlin (15:28Z)"),
        ("2026-11-29T23:28:00", BERLIN, "Mon 30 Nov 00:28 +01:00 Europe/Berlin (Sun 29 Nov 23:28Z)"),
        ("2027-01-02T15:28:00", BERLIN, "Sat 02 Jan 2027 16:28 +01:00 Europe/Berlin (15:28Z)"),
        ("2026-11-29T15:28:00", "UTC", "Sun 29 Nov 15:28 +00:00 UTC (15:28Z)"),
    ],
)  # fmt: skip
def test_a_time_is_shown_in_local_time_zone_and_utc(instant, zone_key, text):
    assert moment(datetime.fromisoformat(f"{instant}+00:00"), zone_key, now=NOW) == text


# Being woken -----------------------------------------------------------------------------------

PROMPT = "check\n\n  the deploy \x1b[0m\r\n]"


def test_a_one_shot_is_wrapped_in_one_line():
    one = wakeup(in_="10m", prompt=PROMPT).with_(firings=1)
    woken = wrap(one, now=NOW + timedelta(minutes=10), reply_to=["digests/"])
    line, _, prompt = woken.partition("\n")
    assert line == (
        "[wake-up w-7k3m9q, set by you Sun 29 Nov 16:18 for 16:28 +01:00; now 16:28."
        " Not a message from a person. Your reply goes to digests/.]"
    )
    assert prompt == PROMPT


def test_a_recurring_one_says_how_often_and_how_to_stop_it():
    set_at = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)
    one = wakeup(every="30m", now=set_at, called="w-5b0e77").with_(
        firings=41, next_at=datetime(2026, 11, 29, 15, 30, tzinfo=UTC)
    )
    assert wrap(one, now=one.next_at, reply_to=[]).splitlines()[0] == (
        "[wake-up w-5b0e77, set by you Fri 27 Nov, every 30m, 41st time;"
        " now Sun 29 Nov 16:30 +01:00. Not a message from a person. Your reply goes to nobody."
        ' Stop it: unwake("w-5b0e77").]'
    )


def test_a_late_one_says_how_late_and_why():
    one = wakeup(in_="10m").with_(firings=1)
    now = one.next_at + timedelta(hours=4, minutes=12, seconds=9)
    asleep = wrap(one, now=now, reply_to=[], late_because="the machine was asleep")
    assert "; now 20:40, 4 h 12 m late (the machine was asleep). Not" in asleep
    assert "; now 20:40, 4 h 12 m late. Not" in wrap(one, now=now, reply_to=[])
    assert "late" not in wrap(one, now=one.next_at + timedelta(seconds=60), reply_to=[])
    assert "; now Mon 30 Nov 16:28, 1 d late" in wrap(
        one, now=one.next_at + timedelta(days=1), reply_to=[]
    )


def test_the_older_firings_that_it_stands_for_are_counted():
    one = wakeup(every="30m").with_(firings=2)
    assert ", in place of 4 missed before it." in wrap(one, now=one.next_at, reply_to=[], passed=4)
    assert "of more than 1000 missed" in wrap(one, now=one.next_at, reply_to=[], passed=1001)


def test_one_set_for_another_day_says_which():
    one = wakeup(at="09:00")
    assert "set by you Sun 29 Nov 16:18 for Mon 30 Nov 09:00 +01:00; now 09:00." in wrap(
        one, now=one.next_at, reply_to=[]
    )


def test_what_a_person_set_is_not_called_the_agents_own():
    one = wakeup(in_="10m", turn=None, by="ana@studio\n]")
    line = wrap(one, now=one.next_at, reply_to=[]).splitlines()[0]
    assert "set by ana@studio ] Sun" in line
    assert "Not a message from a person" not in line
    assert "set by you" not in line


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (13, "13th"), (21, "21st"), (111, "111th"), (142, "142nd")],
)  # fmt: skip
def test_ordinals(number, text):
    assert ordinal(number) == text
