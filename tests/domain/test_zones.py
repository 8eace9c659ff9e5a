from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from routines.domain.zones import (
    changes,
    furthest_shown,
    instant_of,
    local_text,
    segment_at,
    shown,
    zone,
)
from routines.errors import InvalidZone

BERLIN = ZoneInfo("Europe/Berlin")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "key",
    [
        "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires",
        # Aliases are names too.
        "US/Eastern", "Asia/Calcutta", "Etc/GMT+5", "GB", "EST5EDT", "Etc/UTC",
    ],
)  # fmt: skip
def test_iana_names_and_their_aliases_are_zones(key):  # BR-37
    assert zone(key).key == key


def test_etc_gmt_plus_5_is_five_hours_behind_and_is_shown_so():  # BR-37
    text = local_text(utc("2026-11-29T12:00"), zone("Etc/GMT+5"))
    assert text == "Sun 29 Nov 2026 07:00 -05:00"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        # Nothing.
        ("", "Europe/Berlin"),
        ("  ", "Europe/Berlin"),
        # The same name means another thing elsewhere, or nothing.
        ("localtime", "Europe/Berlin"),
        ("Factory", "Europe/Berlin"),
        ("posixrules", "Europe/Berlin"),
        ("posix/Europe/Berlin", "Europe/Berlin"),
        ("right/Europe/Berlin", "Europe/Berlin"),
        # Offsets; the sign of the name for one is reversed.
        ("UTC+8", "Etc/GMT-8"),
        ("GMT-3", "Etc/GMT+3"),
        ("+01:00", "Etc/GMT-1"),
        ("+05:30", "Asia/Shanghai"),
        # Spelling.
        ("america/new_york", "'America/New_York'"),
        ("EUROPE/BERLIN", "'Europe/Berlin'"),
        ("America/New York", "'America/New_York'"),
        ("Europe/Rigga", "'Europe/Riga'"),
        ("Berlin", "'Europe/Berlin'"),
        ("Tokyo", "'Asia/Tokyo'"),
        # Files and folders.
        ("../../etc/passwd", "IANA name"),
        ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("zone.tab", "IANA name"),
        ("America", "America/"),
        ("Europe/", "Europe/"),
        ("Europe/Berlin\0", "Europe/Berlin"),
        ("Europe/Berlin\n", "Europe/Berlin"),
        ("x" * 10_000, "IANA name"),
        ("Москва", "IANA name"),
        ("\udcff", "IANA name"),
    ],
)  # fmt: skip
def test_what_is_no_zone_is_refused_with_a_hint(key, hint):  # BR-37
    with pytest.raises(InvalidZone) as caught:
        zone(key)
    assert hint in caught.value.hint


def test_every_zone_that_the_package_lists_can_be_used():
    from importlib.resources import files

    for key in (files("tzdata") / "zones").read_text().split():
        if key not in ("Factory", "localtime"):
            assert zone(key).key == key


@pytest.mark.parametrize(
    ("key", "wall", "instant"),
    [
        # Once.
        ("Europe/Berlin", "2026-07-01 09:00", "2026-07-01T07:00"),
        # Never: the first instant after the gap.
        ("Europe/Berlin", "2027-03-28 02:00", "2027-03-28T01:00"),
        ("Europe/Berlin", "2027-03-28 02:59:59", "2027-03-28T01:00"),
        ("Europe/Berlin", "2027-03-28 03:00", "2027-03-28T01:00"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03T15:30"),
        ("Africa/Cairo", "2026-04-24 00:00", "2026-04-23T22:00"),
        ("Antarctica/Troll", "2026-03-29 01:30", "2026-03-29T01:00"),
        # Twice: the first coming.
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25T00:30"),
        ("Europe/Berlin", "2026-10-25 03:00", "2026-10-25T02:00"),
        ("Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-04T14:45"),
        ("America/St_Johns", "2006-10-28 23:30", "2006-10-29T02:00"),
        # The day that Apia left out is not made up for.
        ("Pacific/Apia", "2011-12-30 09:00", None),
        ("Pacific/Apia", "2011-12-31 00:00", "2011-12-30T10:00"),
        ("Pacific/Kwajalein", "1993-08-21 12:00", None),
        # The ends of time.
        ("Europe/Berlin", "0001-01-01 00:00", None),
        ("Europe/Berlin", "9999-12-31 23:59", None),
    ],
)  # fmt: skip
def test_a_fixed_time_comes_once_or_not_at_all(key, wall, instant):
    found = instant_of(datetime.fromisoformat(wall), zone(key))
    assert found == (None if instant is None else utc(instant))


def test_while_an_hour_is_repeated_the_clock_has_been_further_than_it_shows():
    instant = utc("2026-10-25T01:10")
    assert shown(instant, BERLIN) == datetime(2026, 10, 25, 2, 10)
    reached = furthest_shown(instant, BERLIN)
    assert datetime(2026, 10, 25, 2, 59, 59) < reached < datetime(2026, 10, 25, 3)


def test_a_segment_ends_where_the_offset_changes():
    part = segment_at(BERLIN, utc("2026-07-01T00:00"))
    assert (part.start, part.end) == (utc("2026-03-29T01:00"), utc("2026-10-25T01:00"))
    assert part.offset == timedelta(hours=2)


def test_no_change_of_any_zone_is_overlooked():
    # Four days in 1939 are the shortest time that any zone kept an offset.
    found = changes(
        zone("Africa/Freetown"), after=utc("1939-08-01T00:00"), until=utc("1939-10-01T00:00")
    )
    assert len(found) == 2
    casablanca = changes(
        zone("Africa/Casablanca"), after=utc("2026-01-01T00:00"), until=utc("2027-01-01T00:00")
    )
    assert [change.at for change in casablanca] == [
        utc("2026-02-15T02:00"),
        utc("2026-03-22T02:00"),
    ]
    assert changes(zone("UTC"), after=utc("2026-01-01T00:00"), until=utc("2036-01-01T00:00")) == []


def test_a_change_at_the_turn_of_a_year_is_found_once():
    # Kathmandu left +05:30 at midnight of 1 January 1986, which is 18:30 UTC the day before.
    place = zone("Asia/Kathmandu")
    found = changes(place, after=utc("1985-06-01T00:00"), until=utc("1986-06-01T00:00"))
    assert [change.at for change in found] == [utc("1985-12-31T18:30")]
    assert segment_at(place, utc("1986-01-01T00:00")).start == utc("1985-12-31T18:30")


def test_times_are_shown_with_their_offset_whatever_the_locale():
    assert local_text(utc("2027-03-27T01:30"), BERLIN) == "Sat 27 Mar 2027 02:30 +01:00"
    assert (
        local_text(utc("2026-11-29T12:00"), zone("America/St_Johns"))
        == "Sun 29 Nov 2026 08:30 -03:30"
    )
    assert local_text(utc("1880-01-01T12:00"), BERLIN) == "Thu 01 Jan 1880 12:53:28 +00:53:28"
