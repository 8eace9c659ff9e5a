"""What an agent may ask for, and what it is told when it may not (PROMISES W1)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from routines.domain.wake_request import AlreadySet, WakeRequest, check_request
from routines.domain.wake_timing import read_span
from routines.domain.wakeup import Bounds, Timing, Wakeup, is_id, new_id
from routines.domain.zones import day_of, zone
from routines.errors import InvalidSpan, WakeupRefused

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 29, 15, 18, tzinfo=UTC)  # Sun 29 Nov 16:18 +01:00
MINUTE = timedelta(minutes=1)


def ask(
    *, now=NOW, pending=(), fired_today=0, bounds=None, called="w-7k3m9q", zone_key=BERLIN, **words
):
    request = WakeRequest(
        prompt=words.pop("prompt", "check the deploy again and tell me"),
        session="routine:daily",
        by="w/daily@x",
        turn="w/daily@x",
        **words,
    )
    return check_request(
        request,
        id=called,
        now=now,
        pending=pending,
        fired_today=fired_today,
        bounds=bounds or Bounds(),
        zone_key=zone_key,
    )


def refused(**words):
    with pytest.raises(WakeupRefused) as caught:
        ask(**words)
    return caught.value


# What is understood --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "due"),
    [
        ({"in_": "10m"}, "15:28"),
        ({"in_": "10 minutes"}, "15:28"),
        ({"in_": "10 min"}, "15:28"),
        ({"in_": "PT10M"}, "15:28"),
        ({"in_": "1h30"}, "16:48"),
        ({"in_": "1 hour and 30 minutes"}, "16:48"),
        ({"in_": "in 2 hours"}, "17:18"),
        ({"in_": "60s"}, "15:19"),
        ({"at": "17:00"}, "16:00"),
        ({"at": "2026-11-29T17:00"}, "16:00"),
        ({"at": "2026-11-29 17:00:30"}, "16:00:30"),
        ({"at": "2026-11-29T17:00Z"}, "17:00"),
        ({"at": "17:00", "tz": "Europe/London"}, "17:00"),
        ({"every": "30m"}, "15:48"),
        ({"every": "every 30 min"}, "15:48"),
        ({"cron": "*/15 * * * *"}, "15:30"),
    ],
)
def test_a_time_is_understood_as_it_was_meant(words, due):
    found = ask(**words)
    assert found.next_at == datetime.fromisoformat(f"2026-11-29T{due}+00:00")


def test_a_bare_time_is_its_next_coming():
    assert ask(at="09:00").next_at == datetime(2026, 11, 30, 8, 0, tzinfo=UTC)


def test_arguments_that_a_model_left_empty_were_not_given():
    found = ask(in_="10m", at="", every=" ", cron=None, tz="")
    assert (found.timing, found.tz) == (Timing.IN, BERLIN)


def test_what_was_asked_is_kept_with_who_asked():
    found = ask(cron="0 9 * * 1-5", prompt="look\n")
    assert (found.prompt, found.asked, found.recurs) == ("look\n", "0 9 * * 1-5", True)
    assert (found.session, found.created_by, found.created_in_turn, found.created_at) == (
        "routine:daily",
        "w/daily@x",
        "w/daily@x",
        NOW,
    )
    assert found.schedule == {"cron": ["0 9 * * 1-5"], "tz": BERLIN}


def test_a_recurring_one_is_counted_from_the_asking():
    found = ask(every="7h", now=NOW + timedelta(milliseconds=5))
    assert found.next_at == NOW + timedelta(hours=7, seconds=1)


def test_an_instant_is_a_whole_second_and_never_early():
    found = ask(in_="10m", now=NOW + timedelta(milliseconds=1))
    assert found.next_at == NOW + timedelta(minutes=10, seconds=1)


def test_outside_a_turn_it_gets_a_session_of_its_own():
    found = check_request(
        WakeRequest(prompt="look", in_="10m", by="ana@studio"),
        id="w-7k3m9q",
        now=NOW,
        pending=(),
        fired_today=0,
        bounds=Bounds(),
        zone_key=BERLIN,
    )
    assert (found.session, found.created_in_turn) == ("wake:w-7k3m9q", None)


def test_a_cron_whose_next_time_is_seconds_away_begins_with_the_one_after():
    found = ask(cron="*/15 * * * *", now=datetime(2026, 11, 29, 15, 29, 30, tzinfo=UTC))
    assert found.next_at == datetime(2026, 11, 29, 15, 45, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1 h 30", 5400),
        ("2 hrs", 7200),
        ("1 day, 2 hours", 93600),
        ("1 week", 604800),
        ("P1DT2H", 93600),
        ("pt90s", 90),
        ("P2W", 1209600),
        ("10MIN", 600),
        ("5 Minutes", 300),
    ],
)
def test_spans_are_read_as_people_and_models_write_them(text, span):
    assert read_span(text) == timedelta(seconds=span)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "10",
        "1.5h",
        "ten minutes",
        "10 m m",
        "P",
        "PT",
        "1h30x",
        "-5m",
        "1month",
        "5m 5",
    ],
)
def test_what_is_no_span_is_not_guessed_at(text):
    with pytest.raises(InvalidSpan):
        read_span(text)


# What is refused, and in which words ---------------------------------------------------------

REFUSALS = [
    (
        {"in_": "30s"},
        'in "30s" is too soon; the shortest is 1m. Nothing was scheduled.',
        'Wait within this turn, or ask again with in="1m".',
    ),
    # BR-23: inside a turn, wake(in 0) is refused at once.
    (
        {"in_": "0s"},
        'in "0s" is too soon; the shortest is 1m. Nothing was scheduled.',
        'Wait within this turn, or ask again with in="1m".',
    ),
    ({"in_": "600"}, 'in "600": 600 what? Nothing was scheduled. Write "600s" or "10m".', None),
    ({"in_": 600}, 'in "600": 600 what? Nothing was scheduled. Write "600s" or "10m".', None),
    ({"in_": "45"}, 'in "45": 45 what? Nothing was scheduled. Write "45m" or "45h".', None),
    # What is advised is never refused in its turn.
    ({"in_": "10"}, 'in "10": 10 what? Nothing was scheduled. Write "10m" or "10h".', None),
    ({"in_": "1.5"}, 'in "1.5": 1.5 what? Nothing was scheduled. Write "1m30s" or "1h30m".', None),
    ({"in_": "0"}, 'in "0": 0 what? Nothing was scheduled. The least is "1m".', None),
    (
        {"in_": "100000000"},
        'in "100000000": 100000000 what? Nothing was scheduled. The most is "366d".',
        None,
    ),
    ({"every": "90"}, 'every "90": 90 what? Nothing was scheduled. Write "90m" or "90h".', None),
    (
        {"every": "5"},
        'every "5": 5 what? Nothing was scheduled. Write "5h"; the least is "10m".',
        None,
    ),
    (
        {"at": "2026-11-29T09:00"},
        ('at "2026-11-29T09:00" is past: it is Sun 29 Nov 16:18 +01:00 Europe/Berlin.'
        " Nothing was scheduled."),
        'For tomorrow: at="2026-11-30T09:00".',
    ),
    (
        {"at": "2026-11-28T18:00"},
        ('at "2026-11-28T18:00" is past: it is Sun 29 Nov 16:18 +01:00 Europe/Berlin.'
        " Nothing was scheduled."),
        'For today: at="2026-11-29T18:00".',
    ),
    (
        {"at": "yesterday"},
        ('at "yesterday" is past: it is Sun 29 Nov 16:18 +01:00 Europe/Berlin.'
        " Nothing was scheduled."),
        ("A day alone is its first moment."
        ' Write the time too, like at="2026-11-30T09:00", or ask with in="10m".'),
    ),
    (
        {"at": "2026-11-29"},
        ('at "2026-11-29" is past: it is Sun 29 Nov 16:18 +01:00 Europe/Berlin.'
        " Nothing was scheduled."),
        ("A day alone is its first moment."
        ' Write the time too, like at="2026-11-30T09:00", or ask with in="10m".'),
    ),
    (
        {"at": "yesterday 18:00"},
        ('at "yesterday 18:00" is past: it is Sun 29 Nov 16:18 +01:00 Europe/Berlin.'
        " Nothing was scheduled."),
        'For today: at="2026-11-29T18:00".',
    ),
    (
        {"at": "9"},
        'at "9" is no time. Nothing was scheduled.',
        'Write at="09:00" for that time of day, or in="10m" for a span.',
    ),
    (
        {"at": "1764500000"},
        'at "1764500000" is no time. Nothing was scheduled.',
        'Write it like at="2026-11-30T09:00" or at="09:00", or ask with in="10m".',
    ),
    (
        {"at": "2026-11-29T14:00Z"},
        ('at "2026-11-29T14:00Z" (Sun 29 Nov 15:00 +01:00 Europe/Berlin) is past:'
        " it is Sun 29 Nov 16:18 +01:00 Europe/Berlin. Nothing was scheduled."),
        'For tomorrow: at="2026-11-30T15:00".',
    ),
    (
        {"at": "16:18:30"},
        ('at "16:18:30" is too soon: it is Sun 29 Nov 16:18 +01:00 Europe/Berlin;'
        " the shortest is 1m ahead. Nothing was scheduled."),
        'Wait within this turn, or ask again with in="1m".',
    ),
    (
        {"every": "5m"},
        'every "5m" is too often; the least is 10m. Nothing was scheduled.',
        'Ask again with every="10m".',
    ),
    *(
        (
            {"cron": asked},
            (f'cron "{asked}" is too often: two of its times are {apart} apart; the least is 10m.'
            " Nothing was scheduled."),
            f"Ask again with {instead}.",
        )
        for asked, apart, instead in (
            ("*/5 * * * *", "5m", 'cron="*/10 * * * *"'),
            ("*/7 9-17 * * 1-5", "4m", 'cron="*/10 9-17 * * 1-5"'),
            ("* 9 * * *", "1m", 'cron="*/10 9 * * *"'),
            # A day apart at first sight: the bound is proved over the pattern.
            ("0,5 9 * * *", "5m", 'cron="0,10 9 * * *"'),
            ("0,5,10 * * * *", "5m", 'cron="0,10,20 * * * *"'),
            ("50,55 9 * * *", "5m", 'cron="50 9 * * *"'),
            ("0-59 9 * * *", "1m", 'cron="0,10,20,30,40,50 9 * * *"'),
            ("55,0 23,0 * * *", "5m", 'cron="0 23,0 * * *"'),
            ("0,55 * * * *", "5m", 'cron="0 * * * *"'),
        )
    ),
    (
        {"in_": "367d"},
        'in "367d" is too far ahead; the most is 366 days. Nothing was scheduled.',
        'Ask again with in="366d", and let that turn set the next one.',
    ),
    (
        {"at": "2028-01-01 09:00"},
        'at "2028-01-01 09:00" is too far ahead; the most is 366 days. Nothing was scheduled.',
        'Ask again with in="366d", and let that turn set the next one.',
    ),
    (
        {"cron": "0 9 29 2 *"},
        'cron "0 9 29 2 *" is too far ahead; the most is 366 days. Nothing was scheduled.',
        'Ask again with in="366d", and let that turn set the next one.',
    ),
    (
        {"every": "400d"},
        'every "400d" is too far ahead; the most is 366 days. Nothing was scheduled.',
        'Ask again with in="366d", and let that turn set the next one.',
    ),
    (
        {},
        "no time is given; exactly one of in, at, every, cron. Nothing was scheduled.",
        'For example in="10m".',
    ),
    (
        {"in_": "1h", "at": "09:00"},
        "in and at are both given; exactly one of in, at, every, cron. Nothing was scheduled.",
        "Ask again with only at, or only in.",
    ),
    (
        {"in_": "1h", "at": "09:00", "every": "1h"},
        "in, at and every are all given; exactly one of in, at, every, cron. Nothing was scheduled.",
        "Ask again with only every, or only in.",
    ),
    (
        {"in_": "10m", "prompt": ""},
        "prompt is missing. Nothing was scheduled.",
        "Say what to look at then, what to do, and when to stop.",
    ),
    (
        {"in_": "10m", "prompt": ["look"]},
        "prompt must be text, not list. Nothing was scheduled.",
        None,
    ),
    (
        {"in_": "10m", "prompt": "ü" * 16385},
        "the prompt has 32770 bytes; the most is 32768. Nothing was scheduled.",
        "Write the details to a file, and let the prompt say where it is.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message", "hint"), REFUSALS)
def test_a_refusal_says_the_bound_and_what_to_ask_instead(words, message, hint):
    error = refused(**words)
    assert (error.message, error.hint) == (message, hint)


@pytest.mark.parametrize(
    "words",
    [
        {"in_": "soon"},
        {"in_": "9" * 400},
        {"in_": "999999999w"},
        {"in_": "\x1b[31mred"},
        {"at": "noonish"},
        {"at": "25:00"},
        {"at": "2026-02-30"},
        {"at": "9999-12-31 23:59"},
        {"every": "1 fortnight"},
        {"cron": "61 * * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "@reboot"},
        {"at": "09:00", "tz": "Mars/Olympus"},
        {"at": "09:00", "tz": "UTC+8"},
        {"at": "09:00", "tz": ["UTC"]},
    ],
)
def test_nonsense_is_refused_in_words_and_in_one_line(words):
    error = refused(**words)
    assert "Nothing was scheduled." in error.message
    assert error.message.isprintable()
    assert len(error.message) < 400


def test_bounds_are_those_of_the_engine():
    bounds = Bounds(ahead=timedelta(seconds=5), apart=timedelta(minutes=45), prompt_bytes=3)
    assert ask(in_="5s", prompt="abc", bounds=bounds).next_at == NOW + timedelta(seconds=5)
    assert "the shortest is 5s" in refused(in_="4s", prompt="abc", bounds=bounds).message
    assert "the most is 3" in refused(in_="5s", prompt="abcd", bounds=bounds).message
    # `*/45` would come 15 minutes apart when the hour turns: it is never what is advised.
    assert (
        refused(cron="* * * * *", prompt="a", bounds=bounds).hint == 'Ask again with every="45m".'
    )


# The cap, and the same again -----------------------------------------------------------------


def twenty():
    return [
        replace(
            ask(in_=f"{3 + 10 * n}m", prompt="check the deploy again and again"),
            id=f"w-{n:06}",
        )
        for n in range(20)
    ]


def test_over_twenty_pending_it_says_what_is_pending():
    error = refused(in_="1h", prompt="another", pending=twenty())
    assert error.message == (
        "20 of 20 wake-ups are pending in this conversation. Nothing was scheduled."
        " Cancel one first:"
    )
    assert error.hint.splitlines() == [
        '  w-000000  16:21  "check the deploy again and..."',
        '  w-000001  16:31  "check the deploy again and..."',
        "  ... 18 more: wakeups()",
    ]


def test_the_twentieth_is_allowed():
    assert isinstance(ask(in_="1h", prompt="another", pending=twenty()[1:]), Wakeup)


# BR-21: retries created identical schedules.
@pytest.mark.parametrize(
    ("first", "again", "later"),
    [
        ({"in_": "10m"}, {"in_": "10m"}, 0),
        ({"in_": "10m"}, {"in_": "10 minutes"}, 59),
        ({"at": "09:00"}, {"at": "09:00"}, 3000),
        ({"at": "09:00"}, {"at": "2026-11-30T08:00Z"}, 10),
        ({"every": "30m"}, {"every": "30 min"}, 600),
        ({"every": "90m"}, {"every": "1h30m"}, 600),
        ({"cron": "0 9 * * 1-5"}, {"cron": "0 9 * * 1-5"}, 86400),
    ],
)
def test_the_same_again_returns_the_pending_one(first, again, later):
    one = ask(**first)
    found = ask(**again, called="w-other1", pending=[one], now=NOW + timedelta(seconds=later))
    assert found == AlreadySet(one)


@pytest.mark.parametrize(
    ("first", "again", "later"),
    [
        ({"in_": "10m"}, {"in_": "10m", "prompt": "another"}, 0),
        ({"in_": "10m"}, {"in_": "10m"}, 60),
        ({"in_": "10m"}, {"in_": "11m"}, 0),
        ({"at": "17:00"}, {"at": "17:01"}, 0),
        ({"every": "30m"}, {"every": "31m"}, 0),
        ({"cron": "0 9 * * *"}, {"cron": "0 9 * * *", "tz": "UTC"}, 0),
        ({"cron": "0 9 * * *"}, {"at": "09:00"}, 0),
    ],
)
def test_what_differs_in_prompt_or_time_is_another_one(first, again, later):
    one = ask(**first)
    found = ask(**again, called="w-other1", pending=[one], now=NOW + timedelta(seconds=later))
    assert isinstance(found, Wakeup)


def test_at_the_cap_the_same_again_is_answered_and_not_refused():
    pending = twenty()
    found = ask(in_="3m", prompt="check the deploy again and again", pending=pending)
    assert found == AlreadySet(pending[0])


def test_over_the_firings_of_a_day_it_fires_the_next_day_at_the_earliest():
    midnight = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)
    found = ask(in_="10m", fired_today=150)
    assert (found.next_at, found.asked_for) == (midnight, NOW + timedelta(minutes=10))
    assert ask(in_="1d", fired_today=150).next_at == NOW + timedelta(days=1)
    assert ask(cron="*/30 * * * *", fired_today=150).next_at == midnight
    assert ask(every="4h", fired_today=150).next_at == NOW + timedelta(hours=8)


# Values ----------------------------------------------------------------------------------------


def test_a_wakeup_reads_back_as_it_was_written():
    for words in ({"in_": "10m"}, {"every": "1h"}, {"cron": "0 9 * * *"}):
        one = ask(**words, prompt="look \ud800 \u2028 \x00 ü").with_(
            firings=3, deferred_since=NOW, try_at=NOW + MINUTE
        )
        assert Wakeup.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "rm -rf"},
        {"session": "routine:other"},
        {"next_at": "2026-11-29T15:29:00Z"},
        {"revision": 2},
        {"id": "w-000000"},
        {"digest": ""},
        {"timing": "cron"},
        {"tz": "Mars/Olympus"},
        {"schedule": {"cron": ["x"], "tz": "UTC"}},
        {"prompt": None},
        {"next_at": "2026-11-29T15:28:00"},
    ],
)
def test_a_text_that_its_digest_does_not_belong_to_is_no_wakeup(change):
    assert Wakeup.from_json(ask(in_="10m").to_json() | change) is None


@pytest.mark.parametrize("data", [None, [], {}, "x", {"id": 1}])
def test_what_is_no_wakeup_is_none(data):
    assert Wakeup.from_json(data) is None


def test_an_id_is_drawn_from_letters_and_digits():
    assert new_id(lambda letters: letters[-1]) == "w-999999"
    assert is_id(new_id(lambda letters: letters[0]))
    assert not any(map(is_id, ["w-7k3m9", "w-7k3m9qq", "W-7K3M9Q", "w-7k3m9q.json", "../x", ""]))


def test_a_day_is_that_of_the_workspace():
    start, end = day_of(NOW, zone(BERLIN))
    assert (start, end) == (
        datetime(2026, 11, 28, 23, tzinfo=UTC),
        datetime(2026, 11, 29, 23, tzinfo=UTC),
    )
    # The day on which clocks are put back has 25 hours.
    start, end = day_of(datetime(2026, 10, 25, 12, tzinfo=UTC), zone(BERLIN))
    assert end - start == timedelta(hours=25)
    # Samoa left 30 December 2011 out.
    start, end = day_of(datetime(2011, 12, 29, 20, tzinfo=UTC), zone("Pacific/Apia"))
    assert end == datetime(2011, 12, 30, 10, tzinfo=UTC)
