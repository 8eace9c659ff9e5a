"""What a program does to a wake-up that it manages: update, pause, resume (PROMISES W7).

Values in, values out. The caps of W1 hold here as they do when one is made; what is not changed is
not judged again, so that an update of the prompt is no new start.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from routines.domain import schedule as schedules
from routines.domain.durations import format_span
from routines.domain.names import format_instant, parse_instant
from routines.domain.outcome import one_line
from routines.domain.wake_firing import joined, passed_over
from routines.domain.wake_request import (
    Timed,
    WakeRequest,
    check_room,
    checked_prompt,
    not_today,
    timed,
)
from routines.domain.wake_timing import checked_zone, is_given
from routines.domain.wake_words import rule_text
from routines.domain.wakeup import Bounds, Timing, Wakeup
from routines.domain.zones import zone
from routines.errors import WakeupRefused

# What a caller may call it: an id of its own, a URL, a sentence.
LONGEST_KEY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an update changes; None leaves it as it is.

    Attributes:
        prompt: What is told.
        in_: A span from now.
        at: An instant, or a time of day.
        every: A span between firings.
        cron: A cron expression.
        tz: An IANA name.
        anchor: Where `every` is counted from.
        fresh: Whether each firing gets a new conversation.
    """

    prompt: str | None = None
    in_: str | None = None
    at: str | None = None
    every: str | None = None
    cron: str | None = None
    tz: str | None = None
    anchor: datetime | None = None
    fresh: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """What a change of one wake-up is judged by, besides itself.

    Attributes:
        others: What else is pending in its session.
        fired_today: How many firings of its session were due today.
        bounds: The guardrails.
        zone_key: The workspace's zone.
    """

    others: Sequence[Wakeup]
    fired_today: int
    bounds: Bounds
    zone_key: str


def fingerprint_of(request: WakeRequest) -> str:
    """Return what tells the content of a creation from another's, not when it was asked."""
    anchor = None if request.anchor is None else format_instant(request.anchor)
    content = [
        request.session,
        request.prompt,
        request.in_,
        request.at,
        request.every,
        request.cron,
        request.tz,
        anchor,
        request.fresh,
    ]
    text = json.dumps(content, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def updated(wakeup: Wakeup, change: Change, company: Company, *, now: datetime, by: str) -> Wakeup:
    """Return *wakeup* with *change* as its next revision; itself if nothing is changed.

    Raises:
        WakeupRefused: A guardrail says no.
    """
    prompt = wakeup.prompt
    if change.prompt is not None:
        prompt = checked_prompt(change.prompt, company.bounds)
    fresh = wakeup.fresh if change.fresh is None else change.fresh
    changed = _timed_anew(wakeup, change, company, now).with_(prompt=prompt, fresh=fresh)
    if changed == wakeup:
        return wakeup
    _check_caps(changed, company, now)
    return _next_revision(changed, now=now, by=by)


def _timed_anew(wakeup: Wakeup, change: Change, company: Company, now: datetime) -> Wakeup:
    tz = checked_zone(change.tz, wakeup.tz)
    words = {"in_": change.in_, "at": change.at, "every": change.every, "cron": change.cron}
    given: dict[str, Any] = {name: value for name, value in words.items() if is_given(value)}
    own = "in_" if wakeup.timing is Timing.IN else wakeup.timing.value
    is_read_anew = tz != wakeup.tz and wakeup.timing in (Timing.AT, Timing.CRON)
    if not is_read_anew and change.anchor is None:
        if given == {own: wakeup.asked} and wakeup.timing is Timing.AT:
            # The same words: what is past or put off meanwhile is not judged as if it were new.
            given = {}
        if not given:
            return wakeup.with_(tz=tz)
    given = given or {own: wakeup.asked}
    anchor = change.anchor
    if anchor is None and set(given) == {"every"}:
        anchor = anchor_of(wakeup)
    request = WakeRequest(prompt="", tz=tz, anchor=anchor, can_wait=False, **given)
    when = timed(request, now=now, bounds=company.bounds, zone_key=wakeup.tz)
    if _is_as_it_was(wakeup, when):
        # The same times as before: what falls due next is not put off by naming them again.
        return wakeup.with_(tz=when.tz)
    return _put_off(
        wakeup.with_(
            timing=when.timing,
            asked=one_line(when.asked),
            schedule=None if when.schedule is None else when.schedule.spec(),
            tz=when.tz,
            next_at=when.first,
            asked_for=when.first,
            deferred_since=None,
            try_at=None,
            passed=_passed_so_far(wakeup, now),
        ),
        company,
        now,
    )


def anchor_of(wakeup: Wakeup) -> datetime | None:
    """Return where `every` is counted from; None for another timing."""
    if wakeup.timing is not Timing.EVERY or wakeup.schedule is None:
        return None
    return parse_instant(wakeup.schedule["anchor"])


def _is_as_it_was(wakeup: Wakeup, when: Timed) -> bool:
    if when.timing is not wakeup.timing:
        return False
    if when.schedule is None:
        return when.timing is Timing.AT and when.first == wakeup.asked_for
    return {**when.schedule.spec(), "tz": ""} == {**(wakeup.schedule or {}), "tz": ""} and (
        when.timing is Timing.EVERY or when.tz == wakeup.tz
    )


def paused(wakeup: Wakeup, *, now: datetime, by: str) -> Wakeup:
    """Return *wakeup* as it is kept, and fires no more until it is resumed."""
    if wakeup.paused_at is not None:
        return wakeup
    return _next_revision(wakeup.with_(paused_at=now), now=now, by=by)


def resumed(wakeup: Wakeup, company: Company, *, now: datetime, by: str) -> Wakeup:
    """Return *wakeup* with its pause ended.

    What a recurring one passed over is counted in its next firing. A one-shot that fell due
    meanwhile fires at once.

    Raises:
        WakeupRefused: A guardrail says no; it is still paused.
    """
    if wakeup.paused_at is None:
        return wakeup
    changed = wakeup.with_(paused_at=None, deferred_since=None, try_at=None)
    _check_caps(changed, company, now)
    if changed.schedule is not None and changed.next_at <= now:
        following = schedules.from_spec(changed.schedule).next_after(now)
        passed = _passed_so_far(changed, now)
        changed = changed.with_(next_at=following or changed.next_at, passed=passed)
    return _next_revision(_put_off(changed, company, now), now=now, by=by)


def _passed_so_far(wakeup: Wakeup, now: datetime) -> dict[str, Any] | None:
    passed = joined(wakeup.passed, passed_over(wakeup, now))
    return None if passed is None else passed.to_json()


def _put_off(wakeup: Wakeup, company: Company, now: datetime) -> Wakeup:
    if company.fired_today < company.bounds.firings:
        return wakeup
    return not_today(wakeup, now, zone(company.zone_key))


def _check_caps(wakeup: Wakeup, company: Company, now: datetime) -> None:
    check_room(company.others, company.bounds, now, zone(company.zone_key))
    apart = company.bounds.apart
    if wakeup.schedule is None:
        return
    if not schedules.never_closer_than(schedules.from_spec(wakeup.schedule), apart):
        raise WakeupRefused(
            f"{rule_text(wakeup)} is too often; the least is {format_span(apart)}."
            " Nothing was changed."
        )


def _next_revision(wakeup: Wakeup, *, now: datetime, by: str) -> Wakeup:
    return replace(wakeup, revision=wakeup.revision + 1, changed_at=now, changed_by=by)
