"""Create, update, pause, resume, cancel and fire, in any order, against the real store.

The model is what a program is promised: revisions that count up, one firing an instant, none of what
is paused or cancelled, and a stale revision that changes nothing.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from routines.domain.outcome import Outcome, Reason
from routines.domain.wake_firing import Fire, Skip, Wait
from routines.domain.wake_managing import Change, fingerprint_of, paused, resumed, updated
from routines.domain.wake_request import WakeRequest
from routines.domain.wakeup import Bounds, keyed_id
from routines.domain.zones import zone
from routines.errors import UnknownWakeup, WakeupConflict, WakeupRefused
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.state import open_for_writing
from routines.store.wake_firings import FiringStore
from routines.store.wake_managing import ManagedStore
from routines.store.wakeups import Unwoken, WakeupStore
from tests.builders import BOOT
from tests.store.crash import Unsynced

NOON = datetime.fromisoformat("2026-06-01T12:00:00+00:00")
BOUNDS = Bounds(pending=3, firings=12)
UTC_ZONE = zone("UTC")
SESSIONS = ("chat", "Chat")
KEYS = ("a", "b", "c", "d")
WORDS = st.sampled_from(
    [{"in_": "5m"}, {"in_": "90m"}, {"every": "10m"}, {"every": "45m"}, {"cron": "*/30 * * * *"}]
)


@dataclass
class Model:
    """One wake-up, as its program knows it."""

    session: str
    key: str
    fingerprint: str
    prompt: str
    revision: int = 1
    state: str = "pending"
    fired: list = field(default_factory=list)


class Managing(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.calls, files.calls = files.calls, Unsynced()
        self.folder = tempfile.mkdtemp(prefix="routines-machine-")
        self.state = open_for_writing(os.path.join(self.folder, "state"), boot=BOOT)
        self.store = ManagedStore(self.state)
        self.wakeups = WakeupStore(self.state)
        self.firings = FiringStore(self.state)
        self.claims = ClaimStore(self.state)
        self.now = NOON
        self.known: dict[str, Model] = {}

    def teardown(self):
        if hasattr(self, "calls"):
            files.calls = self.calls
            shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def same(found, expected):
        assert found == expected

    @property
    def asked(self):
        return {"now": self.now, "bounds": BOUNDS, "zone_key": "UTC"}

    def pending(self, session):
        return [
            one
            for one in self.known.values()
            if one.session == session and one.state in ("pending", "paused")
        ]

    # What a program does ------------------------------------------------------------------------

    @rule(
        session=st.sampled_from(SESSIONS),
        key=st.sampled_from(KEYS),
        prompt=st.sampled_from(["look", "read"]),
        words=WORDS,
        fresh=st.booleans(),
    )
    def create(self, session, key, prompt, words, fresh):
        request = WakeRequest(
            prompt=prompt, session=session, by="host", key=key, fresh=fresh, **words
        )
        fingerprint = fingerprint_of(request)
        request = WakeRequest(
            prompt=prompt,
            session=session,
            by="host",
            key=key,
            fresh=fresh,
            fingerprint=fingerprint,
            **words,
        )
        wakeup_id = keyed_id(session, key)
        known = self.known.get(wakeup_id)
        before = self.store.known(session, wakeup_id)
        try:
            made = self.store.create(request, **self.asked)
        except WakeupConflict as conflict:
            assert known.fingerprint != fingerprint
            self.same(conflict.revision, known.revision)
            assert self.store.known(session, wakeup_id) == before
        except WakeupRefused:
            assert known is None
            assert len(self.pending(session)) >= BOUNDS.pending
            assert self.store.known(session, wakeup_id) is None
        else:
            assert made.new == (known is None)
            if known is None:
                assert len(self.pending(session)) < BOUNDS.pending
                self.known[wakeup_id] = Model(session, key, fingerprint, prompt)
            else:
                assert known.fingerprint == fingerprint
                assert made.wakeup.revision == known.revision

    @precondition(lambda self: getattr(self, "known", None))
    @rule(
        data=st.data(),
        act=st.sampled_from(["update", "pause", "resume", "cancel", "unwake"]),
        stale=st.sampled_from([0, 0, 0, -1, 1]),
        prompt=st.sampled_from([None, "look", "read", "listen"]),
        words=st.one_of(st.just({}), WORDS),
    )
    def act(self, data, act, stale, prompt, words):
        wakeup_id = data.draw(st.sampled_from(sorted(self.known)))
        known = self.known[wakeup_id]
        before = self.store.known(known.session, wakeup_id)
        revision = known.revision + stale
        if act == "unwake":
            answer = self.wakeups.unwake(
                known.session, wakeup_id, claims=self.claims, by="agent", at=self.now
            )
            was = known.state in ("pending", "paused")
            assert answer.stopped == was
            assert (answer.how is Unwoken.GONE) == was
            known.state = "cancelled" if was else known.state
            return
        try:
            if act == "cancel":
                self.store.cancel(known.session, wakeup_id, revision, by="ana", at=self.now)
            else:
                made = self.store.change(
                    known.session, wakeup_id, revision, self._make(act, prompt, words), **self.asked
                )
        except WakeupConflict as conflict:
            assert stale or known.state in ("ended", "cancelled")
            self.same(conflict.revision, known.revision)
            assert self.store.known(known.session, wakeup_id) == before
            return
        except WakeupRefused:
            assert act in ("update", "resume")
            assert self.store.known(known.session, wakeup_id) == before
            return
        assert not stale
        if act == "cancel":
            if known.state in ("pending", "paused"):
                known.state = "cancelled"
            return
        assert known.state in ("pending", "paused")
        assert made.revision in (known.revision, known.revision + 1)
        known.revision = made.revision
        known.prompt = made.prompt
        if act == "update" and prompt is not None:
            assert made.prompt == prompt
        known.state = {"pause": "paused", "resume": "pending"}.get(act, known.state)

    def _make(self, act, prompt, words):
        if act == "pause":
            return lambda one, _: paused(one, now=self.now, by="ana")
        if act == "resume":
            return lambda one, company: resumed(one, company, now=self.now, by="ana")
        change = Change(prompt=prompt, **words)
        return lambda one, company: updated(one, change, company, now=self.now, by="ana")

    @rule(session=st.sampled_from(SESSIONS), wakeup_id=st.sampled_from(["w-aaaaaa", "", "../x"]))
    def unknown(self, session, wakeup_id):
        for act in (
            lambda: self.store.change(session, wakeup_id, 1, lambda one, _: one, **self.asked),
            lambda: self.store.cancel(session, wakeup_id, 1, by="ana", at=self.now),
        ):
            try:
                act()
            except UnknownWakeup:
                continue
            raise AssertionError("what is not there was changed")

    # What an engine does ------------------------------------------------------------------------

    @rule(minutes=st.sampled_from([1, 5, 10, 37, 200, 1500]))
    def time_passes(self, minutes):
        self.now += timedelta(minutes=minutes)

    @rule(refuse=st.booleans())
    def look(self, refuse):
        for hint in self.wakeups.due(self.now):
            planned = self.firings.plan(
                hint, claims=self.claims, now=self.now, bounds=BOUNDS, place=UTC_ZONE
            )
            if planned is None:
                continue
            wakeup, due = planned
            known = self.known[wakeup.id]
            assert known.state == "pending", "it is paused, cancelled or over, and fires"
            self._one(wakeup, due, known, refuse=refuse)

    def _one(self, wakeup, due, known, *, refuse):
        session, wakeup_id = wakeup.session, wakeup.id
        if isinstance(due, Wait):
            if due.limit:
                self.firings.postpone(
                    session,
                    wakeup_id,
                    wakeup.next_at,
                    until=due.until,
                    claims=self.claims,
                    at=self.now,
                )
            return
        if isinstance(due, Fire) and refuse:
            due = Skip(due.instant, Reason.REFUSED, due.passed)
        if isinstance(due, Skip):
            record = self.firings.settle_skipped(
                session,
                wakeup_id,
                due,
                claims=self.claims,
                at=self.now,
                revision=known.revision,
            )
            assert record is not None
        else:
            assert (
                self.firings.take(
                    session,
                    wakeup_id,
                    due.instant,
                    claims=self.claims,
                    at=self.now,
                    bounds=BOUNDS,
                    place=UTC_ZONE,
                    revision=known.revision + 1,
                )
                is None
            ), "another revision than the one that was planned for was taken"
            claim = self.firings.take(
                session,
                wakeup_id,
                due.instant,
                claims=self.claims,
                at=self.now,
                bounds=BOUNDS,
                place=UTC_ZONE,
                revision=known.revision,
            )
            assert claim is not None
            taken = claim.record.claim["wakeup"]
            assert (taken["revision"], taken["prompt"]) == (known.revision, known.prompt)
            claim.settle(Outcome.COMPLETED, at=self.now)
            claim.let_go()
        assert due.instant <= self.now
        assert due.instant not in known.fired, "one instant fired twice"
        known.fired.append(due.instant)
        if not wakeup.recurs:
            known.state = "ended"

    @rule()
    def boot(self):
        self.store = ManagedStore(self.state)
        repaired = self.wakeups.repair()
        assert (repaired.hinted, repaired.removed, repaired.corrupt) == (0, 0, ())

    # What is always so --------------------------------------------------------------------------

    @invariant()
    def files_say_what_the_model_does(self):
        for wakeup_id, known in getattr(self, "known", {}).items():
            found = self.store.known(known.session, wakeup_id)
            assert found is not None
            assert found.wakeup.revision == known.revision
            assert found.pending == (known.state in ("pending", "paused"))
            assert (found.wakeup.cancelled_at is not None) == (known.state == "cancelled")
            if known.state == "pending":
                assert found.wakeup.paused_at is None
            if known.fired:
                assert found.firing is not None
                assert found.firing.occurrence.instant == known.fired[-1]

    @invariant()
    def bounds_hold(self):
        for session in SESSIONS if hasattr(self, "known") else ():
            pending = self.wakeups.pending(session)
            assert len(pending) == len(self.pending(session)) <= BOUNDS.pending
            assert all(one.session == session for one in pending)


Managing.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestManaging = Managing.TestCase
