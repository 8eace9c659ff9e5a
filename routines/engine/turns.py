"""The steps of one turn, in the order that its promises need, whoever runs the agent.

    gate -> begin (checks, ledger, `started`) -> the agent -> finish (outcome, ledger)

All of it blocks; an engine calls it off its loop, a turn process just calls it.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from routines.agents import environment
from routines.agents.base import Reply, Turn, TurnResult, Usage
from routines.agents.output import Capture, bounded
from routines.agents.programs import run_program
from routines.agents.starting import CannotStart
from routines.domain.clock import Clock
from routines.domain.http_agent import header_secrets
from routines.domain.ledger import (
    Known,
    Totals,
    chooses_id,
    resumes_unfinished,
    this_turn,
    why_new_epoch,
)
from routines.domain.limits import DayLimit, over_limit
from routines.domain.masking import Masker, declared_secrets
from routines.domain.names import format_instant, safe_name
from routines.domain.occurrence import Kind, slot_of_file
from routines.domain.outcome import Outcome, Reason, Warn, one_line
from routines.domain.record import Event, Owner, Record
from routines.domain.retry import Again, GiveUp, Park, next_try
from routines.domain.schedule import from_spec
from routines.domain.targets import Target, TargetKind
from routines.domain.versions import is_at_least
from routines.domain.zones import day_of, local_text, zone
from routines.engine.work import Work
from routines.errors import InvalidFiles, RoutinesError, StoreError
from routines.store import files
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.control import Cancel, CancelStore, SwitchStore
from routines.store.cursors import CursorStore
from routines.store.job_settling import called_off, end_of_cancel, intents_of, settling
from routines.store.natives import NativeStore
from routines.store.sessions import Lease, Ledger, native_path
from routines.store.state import State
from routines.store.works import WorkStore

log = logging.getLogger("routines")

# The gate is asked before each turn: one that hangs must not hold the session for an hour.
GATE_TIMEOUT = timedelta(seconds=60)
# A turn that used its time up to the end still has its work looked at.
_LEAST_VERIFY = timedelta(seconds=10)
# History shows the beginnings of prompt and reply; the whole is in the output folder.
SHOWN = 200
# Younger claims are the newest of their routine: they were made under its lock a moment ago.
_MAY_BE_STALE_AFTER = timedelta(seconds=5)
# How long between tries to write an outcome: the disk may be full for hours.
_SETTLE_AGAIN_S = (0.1, 0.5, 2.0, 5.0, 15.0, 30.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """That a turn is not to start, and what its claim is settled with."""

    outcome: Outcome
    reason: Reason | None
    detail: str = ""
    by: str | None = None


class TurnSteps:
    """One turn of a claimed occurrence, under its session's lease."""

    def __init__(
        self,
        state: State,
        claim: Claim,
        lease: Lease,
        *,
        clock: Clock,
        owner: Owner,
        reread: Callable[[Work], "Work | Verdict"] | None = None,
    ) -> None:
        self.state = state
        self.claim = claim
        self.lease = lease
        self.clock = clock
        self.owner = owner
        self._reread = reread
        self._cancels = CancelStore(state)
        self.cancelled_by: Cancel | None = None
        # Of the agent's program, once it was asked.
        self.agent_version: str | None = None
        self.program = ""
        # The session whose conversation the program went on with, and which one that is.
        self.taken_by: str | None = None
        self.taken = ""
        # Asked while a reply is handed over: a stop must not wait for that.
        self.stop_requested: Callable[[], str | None] = lambda: None
        self._began = clock.awake()
        # Until the environment is known, what has a known form is masked.
        self.masker = Masker()

    @property
    def ref(self) -> str:
        """The occurrence."""
        return self.claim.record.ref

    @property
    def folder(self) -> str:
        """Where the turn's output is kept."""
        return self.state.at("output", self.claim.occurrence.place)

    def count_from(self, began: datetime) -> None:
        """Count the time limit from *began*, when another process began the turn."""
        passed = max(self.clock.now() - began, timedelta(0))
        self._began = self.clock.awake() - passed.total_seconds()

    def left(self, work: Work) -> timedelta:
        """Return what is left of the time limit, gates included."""
        return work.timeout - timedelta(seconds=self.clock.awake() - self._began)

    # Before -------------------------------------------------------------------------------------

    def verify(
        self, work: Work, turn: Turn, result: TurnResult, base_env: Mapping[str, str]
    ) -> TurnResult:
        """Let `verify` judge a completed turn: it gets the reply on stdin, and exit 0 is a yes."""
        if work.verify is None or result.outcome is not Outcome.COMPLETED:
            return result
        said = Capture()
        try:
            ended = run_program(
                work.verify,
                stdin=result.reply.text.encode("utf-8", "replace"),
                cwd=work.cwd,
                env=self.environment(work, turn, base_env),
                out=said.feed,
                err=said.feed,
                clock=self.clock,
                timeout=max(self.left(work), _LEAST_VERIFY),
            )
        except (CannotStart, InvalidFiles) as error:
            return _not_verified(result, _words_of(error))
        finally:
            said.close()
        if ended.code == 0 and ended.why is None:
            return result
        how = "took longer than its limit" if ended.why is not None else f"exit {ended.code}"
        last = said.last_line()
        return _not_verified(result, f"{how}: {last}" if last else how)

    def gate(self, work: Work, base_env: Mapping[str, str]) -> Verdict | None:
        """Ask `only_if`; None if the turn may go on. It may be asked again after a crash (T6)."""
        if work.only_if is None:
            return None
        err = Capture()
        out = Capture()
        try:
            ended = run_program(
                work.only_if,
                stdin=None,
                cwd=work.cwd,
                env=self.preview(work, base_env),
                out=out.feed,
                err=err.feed,
                clock=self.clock,
                timeout=min(GATE_TIMEOUT, self.left(work)),
            )
        except (CannotStart, InvalidFiles) as error:
            return Verdict(Outcome.FAILED, Reason.GATE, f"only_if: {_words_of(error)}")
        finally:
            out.close()
            err.close()
        said = out.last_line() or err.last_line()
        if ended.code == 0 and ended.why is None:
            return None
        if ended.code == 1 and ended.why is None:
            return Verdict(Outcome.SKIPPED, Reason.GATE, said)
        how = (
            "took longer than its limit"
            if ended.why is not None
            else f"ended with {f'exit {ended.code}' if ended.code is not None else 'a signal'}"
        )
        return Verdict(
            Outcome.FAILED, Reason.GATE, f"only_if {how}" + (f": {said}" if said else "")
        )

    def begin(
        self, work: Work, is_durable: Callable[[Work], bool] = lambda _: False
    ) -> tuple[Work, Turn] | None:
        """Look at everything once more, write ledger and `started`; None if it is settled instead.

        When this returns a turn, `started` is on the disk and the agent may be launched. When it
        returns None nothing may be launched, and the claim has an outcome (PROMISES L9).

        Args:
            work: What is to be done, as it was when the occurrence was claimed.
            is_durable: Whether the agent of what is done now outlives its turn's owner.

        Raises:
            StoreError: `started` could not be written: no agent.
        """
        record = self.claim.reread()
        if record.end is not None or not self.claim.still_named():
            return None
        now = self.clock.now()
        if work.is_edited() and self._reread is not None:
            changed = self._reread(work)
            if isinstance(changed, Verdict):
                self.settle(changed)
                return None
            work = changed
        verdict = self._why_not(work, record, now)
        if verdict is not None:
            self.settle(verdict)
            return None
        if record.occurrence.kind is not Kind.MANUAL and self._is_paused(work, now):
            # Unstarted and unsettled: it goes on when that is resumed.
            return None
        with contextlib.ExitStack() as counted:
            # Held until `started` is on the disk: two turns at once can't both be the last one.
            for limit in work.limits:
                counted.enter_context(files.section(self._limit_lock(limit)))
            over = self._over_limit(work, now)
            if over is None:
                return work, self._start(work, now, durable=is_durable(work))
        if record.occurrence.kind is Kind.JOB:
            self._wait_for_tomorrow(over, now)
        else:
            self.settle(Verdict(Outcome.SKIPPED, Reason.LIMIT, over))
        return None

    def _wait_for_tomorrow(self, over: str, now: datetime) -> None:
        """Put a job off until the day has turns left: it is to be done, not only today."""
        place = zone(str(self.claim.record.claim.get("tz") or "UTC"))
        until = format_instant(day_of(now, place)[1])
        self.claim.append(Event.RETRY, at=now, until=until, detail=over, by=self.owner.user)

    def _is_paused(self, work: Work, now: datetime) -> bool:
        return SwitchStore(self.state).held(work.routine, now=now) is not None

    def _limit_lock(self, limit: DayLimit) -> str:
        name = ".workspace" if limit.routine is None else safe_name(limit.routine)
        return self.state.at("locks", "limits", f"{name}.lock")

    def _over_limit(self, work: Work, now: datetime) -> str | None:
        for limit in work.limits:
            place = zone(limit.zone)
            records = ClaimStore(self.state).changed_since(day_of(now, place)[0])
            over = over_limit(limit, records, now=now, place=place)
            if over is not None:
                return over
        return None

    def _start(self, work: Work, now: datetime, *, durable: bool) -> Turn:
        self.program = os.path.basename((work.agent and work.agent.program) or work.agent_name)
        ledger = self._open_ledger(work, now)
        turn = self.turn_of(work, ledger)
        anew = turn.first and ledger.epoch > 1
        self._keep(self.folder, "prompt.md", work.prompt)
        more: dict[str, Any] = {}
        if durable:
            # Whoever goes on with it asks the same agent the same thing, whatever is edited.
            WorkStore(self.state).keep(self.claim.record, work.encode())
            more = {"durable": True, "exclusive": work.exclusive}
        self.claim.append(
            Event.STARTED,
            at=now,
            owner=self.owner.to_json(),
            definition=work.digest,
            session=ledger.session,
            epoch=ledger.epoch,
            epoch_reason=ledger.epoch_reason if anew else None,
            turn=ledger.turns + 1,
            native_session=turn.native_session,
            agent=work.agent_name,
            agent_version=self._shown_version(work),
            model=work.model,
            cwd=work.cwd,
            late_s=round(turn.late.total_seconds(), 3),
            prompt=one_line(work.prompt, most=SHOWN),
            rerun_interrupted=work.rerun_interrupted,
            **more,
        )
        return turn

    def _shown_version(self, work: Work) -> str | None:
        program = None if work.agent is None else work.agent.program
        if self.agent_version is None or program is None:
            return None
        return f"{os.path.basename(program)} {self.agent_version}"

    def _why_not(self, work: Work, record: Record, now: datetime) -> Verdict | None:
        cancel = self._cancels.take_up(record.ref)
        if cancel is not None:
            return cancelled(cancel, "before it started")
        if record.occurrence.kind is not Kind.SLOT:
            return None
        if record.by_person:
            return None
        late = now - record.due_at
        if work.start_within is not None and late > work.start_within:
            return Verdict(
                Outcome.MISSED,
                Reason.TOO_LATE,
                f"start_within passed {late - work.start_within} ago",
            )
        claimed_at = record.claimed_at or now
        if now - claimed_at > _MAY_BE_STALE_AFTER and self._is_stale(record, now):
            return Verdict(Outcome.MISSED, Reason.STALE, "a newer slot was claimed or recorded")
        return None

    def _is_stale(self, record: Record, now: datetime) -> bool:
        routine, slot = record.occurrence.owner, record.occurrence.instant
        given_up = CursorStore(self.state).newest_missed(routine, until=now)
        if given_up is not None and given_up.last > slot:
            return True
        claims = ClaimStore(self.state)
        newer = claims.walk([safe_name(routine)], since=slot + timedelta(seconds=1), until=now)
        return any(
            _took_its_place(claims.read_path(path))
            for path in newer
            if slot_of_file(os.path.basename(path)) is not None
        )

    def _open_ledger(self, work: Work, now: datetime) -> Ledger:
        """Bring the ledger up to this turn, with the stamp and the first launch written down."""
        ledger = absorb_stamp(self.state, self.lease.ledger, own=self.claim.record.path)
        reason = why_new_epoch(
            Known(
                agent=ledger.agent,
                epoch=ledger.epoch,
                native_session=ledger.native_session,
                first_turn_begun=ledger.first_turn_begun is not None,
                epoch_turns=ledger.epoch_turns,
            ),
            agent=work.agent_name,
            spec=work.agent,
            session_turns=work.session_turns,
        )
        if reason is not None:
            ledger = ledger.new_epoch(reason, agent=work.agent_name)
        if self._goes_on_unfinished(work, ledger):
            native = ledger.uuid(self.state.workspace)
            ledger = ledger.with_(native_session=native, minted_by="us")
        ledger = ledger.with_(
            agent=work.agent_name,
            claim=self.claim.record.path,
            first_turn_begun=ledger.first_turn_begun or now,
        )
        self.lease.write(ledger)
        return ledger

    def _goes_on_unfinished(self, work: Work, ledger: Ledger) -> bool:
        """Return whether this is the second try of a first turn, under the id of the first."""
        return (
            ledger.first_turn_begun is not None
            and ledger.native_session is None
            and work.agent is not None
            and resumes_unfinished(work.agent)
        )

    def turn_of(self, work: Work, ledger: Ledger) -> Turn:
        """Return what the agent is given."""
        record = self.claim.record
        now = self.clock.now()
        missed = record.claim.get("missed")
        slotted = record.occurrence.kind is not Kind.MANUAL
        return Turn(
            key=self.state.key(record.turn_ref),
            session=ledger.session,
            native_session=ledger.native_session,
            session_uuid=ledger.uuid(self.state.workspace),
            first=ledger.epoch_turns == 0 and ledger.native_session is None,
            prompt=work.prompt,
            routine=work.routine,
            slot=record.occurrence.instant if slotted and not _is_job(record) else None,
            trigger=record.trigger,
            late=max(now - record.due_at, timedelta(0)) if slotted else timedelta(0),
            missed=int(missed.get("count") or 0) if isinstance(missed, dict) else 0,
            deadline=now + self.left(work),
            session_file=native_path(self.state, ledger.session, ledger.epoch),
        )

    def environment(self, work: Work, turn: Turn, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of this turn's programs.

        Raises:
            InvalidFiles: `env_file` can't be used.
        """
        spec_env = () if work.agent is None else work.agent.env
        made = environment.environment(
            base,
            turn,
            root=work.root,
            state=self.state.path,
            env_file=work.env_file,
            env=dict(work.env),
            spec_env=spec_env,
        )
        http = None if work.agent is None else work.agent.http
        headers = () if http is None else header_secrets(http, made)
        self.masker = Masker((*headers, *declared_secrets(made)))
        return made

    def preview(self, work: Work, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment that the turn would have if it began now.

        Raises:
            InvalidFiles: `env_file` can't be used.
        """
        return self.environment(work, self.turn_of(work, self.lease.ledger), base)

    # Meanwhile ----------------------------------------------------------------------------------

    def learn_native_session(self, native_session: str) -> None:
        """Keep the id that the program says, at once: a killed turn can then be resumed."""
        ledger = self.lease.ledger
        if ledger.native_session != native_session:
            try:
                ours = native_session == ledger.uuid(self.state.workspace)
                if not ours and self._is_taken(native_session):
                    return
                minted_by = "us" if ours else "program"
                self.lease.write(ledger.with_(native_session=native_session, minted_by=minted_by))
            except StoreError as error:
                # The outcome carries it too; only a kill before that would lose it.
                log.warning("ledger-not-written", extra={"ref": self.ref, "error": error.message})

    def _is_taken(self, native_session: str) -> bool:
        """Return whether another session has that conversation: then this turn must end."""
        self.taken_by = NativeStore(self.state).take(
            native_session,
            program=self.program,
            session=self.lease.session,
            clock=self.clock,
        )
        if self.taken_by is not None:
            self.taken = native_session
        return self.taken_by is not None

    def take_up_cancel(self) -> Cancel | None:
        """Accept a pending cancel and note it, so that it can't be withdrawn; None if none is."""
        cancel = self._cancels.pending(self.ref)
        if cancel is None or not self._cancels.accept(cancel):
            return None
        self.cancelled_by = cancel
        self.claim.append(
            Event.CANCELLING,
            at=self.clock.now(),
            by=cancel.by,
            person=cancel.person,
            newer=cancel.newer,
            intent=cancel.intent,
            lane=cancel.lane,
        )
        return cancel

    def lose(self, work: Work, result: TurnResult) -> None:
        """Begin a new epoch: the program no longer has the conversation, and did nothing.

        Whoever calls this begins the turn again; in the record that is another `started`.

        Raises:
            StoreError: It could not be written; the turn is not to go on.
        """
        self._note_not_started(result)
        ledger = self.lease.ledger
        why = f"{work.agent_name} no longer has the conversation: {result.detail}"
        reason = one_line(self.masker.mask(why), most=SHOWN)
        log.warning("session-lost", extra={"ref": self.ref, "session": ledger.session})
        # The stamp stays: it is the same claim's turn.
        self.lease.write(ledger.new_epoch(reason, agent=work.agent_name))

    # After --------------------------------------------------------------------------------------

    def settle(self, verdict: Verdict) -> Record:
        """Settle a turn that did not start."""
        return self._settle(verdict.outcome, verdict.reason, verdict.detail, by=verdict.by)

    def finish(self, work: Work, turn: Turn, result: TurnResult) -> Record:
        """Write down how the turn ended, and bring the ledger up to it."""
        reply, cut = bounded(self.masker.mask(result.reply.text))
        if reply:
            self._keep(self.folder, "reply.md", reply)
        outcome, reason, detail = self._end_of(result)
        if result.outcome is None or result.reason is Reason.NOT_FOUND:
            self._note_not_started(result)
        spent = self._spent(work, result)
        left = self._leave_open(work, result, detail, spent)
        if left is not None:
            return left
        warnings = {self.masker.mask(warning) for warning in result.reply.warnings}
        if cut:
            warnings.add(Warn.TRUNCATED.value)
        if not reply.strip():
            warnings.add(Warn.EMPTY_REPLY.value)
        delivered: dict[str, Any] = {}
        if outcome is Outcome.COMPLETED:
            try:
                delivered = self._deliver(work, turn, reply, is_clean=not warnings)
            except Exception as error:
                # Whatever it is, the turn has completed, and its outcome is to be written.
                log.exception("not-delivered", extra={"ref": self.ref})
                why = one_line(f"{type(error).__name__}: {error}")
                delivered = {"delivered": [{"to": "nobody", "ok": False, "detail": why}]}
            if not all(one["ok"] for one in delivered.get("delivered", ())):
                warnings.add(Warn.NOT_DELIVERED.value)
        return self._settle(
            outcome,
            reason,
            detail,
            **delivered,
            by=None if self.cancelled_by is None else self.cancelled_by.by,
            warnings=sorted(warnings) if outcome is Outcome.COMPLETED else [],
            exit_code=result.exit_code,
            signal=result.signal,
            **spent,
            reply=one_line(reply, most=SHOWN),
            native_session=result.reply.native_session or _own_id(work, turn),
        )

    def _spent(self, work: Work, result: TurnResult) -> dict[str, Any]:
        """Return what the occurrence has cost by now, and the totals of its conversation."""
        usage, totals = self._usage(work, result.reply.usage)
        for key, before in self.claim.record.spent_before.items():
            # An earlier turn of it was put off: what that cost was spent all the same.
            usage[key] = round(usage.get(key, 0) + before, 6)
        return {"usage": usage, "totals": totals}

    def _usage(self, work: Work, usage: Usage | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the turn alone cost, and the totals of its conversation."""
        if usage is None:
            return {}, {}
        ledger = self.lease.ledger
        since = None if work.agent is None else work.agent.totals_from
        turn, totals = this_turn(
            alone=Totals(usd=usage.usd, tokens=usage.tokens),
            reported=Totals(usd=usage.usd_total, tokens=usage.tokens_total),
            before=Totals(usd=ledger.usd_total, tokens=ledger.tokens_total),
            running=is_at_least(self.agent_version, since),
        )
        said = {"usd": turn.usd, "tokens": turn.tokens}
        kept = {"usd_total": totals.usd, "tokens_total": totals.tokens}
        return (
            {key: value for key, value in said.items() if value is not None},
            {key: value for key, value in kept.items() if value is not None},
        )

    def _leave_open(
        self, work: Work, result: TurnResult, detail: str, spent: dict[str, Any]
    ) -> Record | None:
        """Put a turn off that may be tried again; None if it ends here and now (L12)."""
        follow = self._follow(work, result)
        if isinstance(follow, GiveUp):
            return None
        record = self.claim.record
        more: dict[str, Any] = {"detail": one_line(self.masker.mask(detail)), "by": self.owner.user}
        event = Event.PARKED
        if isinstance(follow, Again):
            event = Event.RETRY
            more["until"] = format_instant(follow.at)
            if result.outcome is Outcome.INTERRUPTED:
                more["rerun"] = record.reruns + 1
        if result.outcome is not None and result.reason is not None:
            # That it was begun, and how it ends if a newer slot comes first.
            more |= {"ended": result.outcome.value, "because": result.reason.value}
        if spent["usage"]:
            more |= spent
        if record.is_durable and result.outcome is not None and "rerun" not in more:
            # Its run has ended: under the same key the agent would only name that one again.
            more["anew"] = True
        try:
            self.claim.append(event, at=self.clock.now(), **more)
            ledger = self.lease.ledger
            if ledger.claim == record.path:
                self.lease.write(after_turn(ledger, self.claim.record))
        except StoreError as error:
            # What can't be put off ends: an outcome is tried for as long as we live.
            log.warning("not-put-off", extra={"ref": self.ref, "error": error.message})
            return self.claim.record if self.claim.reread().last == event.value else None
        return self.claim.record

    def _follow(self, work: Work, result: TurnResult) -> Again | Park | GiveUp:
        record = self.claim.record
        now = self.clock.now()
        if record.occurrence.kind is Kind.MANUAL or self.cancelled_by is not None:
            return GiveUp()
        if result.outcome is Outcome.INTERRUPTED and result.reason is Reason.STOPPED:
            return Again(now) if record.reruns < work.rerun_interrupted else GiveUp()
        failed_ = result.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
        never = result.outcome is None
        if result.reason is Reason.NOT_FOUND or not (never or (work.retry.started and failed_)):
            return GiveUp()
        return next_try(
            work.retry,
            attempts=record.retries - record.reruns + 1,
            recurs=record.recurs,
            now=now,
            next_slot=_next_slot(work, record),
        )

    def _deliver(self, work: Work, turn: Turn, reply: str, *, is_clean: bool) -> dict[str, Any]:
        """Hand the reply of a completed turn over; return what the outcome says of it."""
        if not work.deliver:
            return {}
        # Here and not above: most turns deliver nothing.
        from routines.engine import delivering

        occurrence = self.claim.occurrence
        quiet = work.quiet is not None and reply.strip() == work.quiet.strip()
        targets = [one for one in work.deliver if one.kind is not TargetKind.PING]
        if quiet or not reply.strip():
            targets = []
        pings = [one for one in work.deliver if one.kind is TargetKind.PING]
        try:
            env = self.environment(work, turn, dict(os.environ))
        except InvalidFiles:
            # The agent's; broken since it was started. The targets can do without.
            env = delivering.plain_environment(os.environ, root=work.root)
        who = work.routine or turn.session
        place = zone(str(self.claim.record.claim.get("tz") or "UTC"))
        message = delivering.Message(
            title=f"{one_line(who)}, {local_text(occurrence.instant, place)}",
            body=reply,
            name=f"{safe_name(who)}.{occurrence.stem}.md",
        )

        def hand_over(some: Sequence[Target]) -> list[dict[str, Any]]:
            found = delivering.deliver(
                some,
                message,
                env=env,
                cwd=work.root,
                clock=self.clock,
                stop_requested=self.stop_requested,
            )
            # What a program of theirs printed may hold what it was given to log in with.
            return [{**one.to_json(), "detail": self.masker.mask(one.detail)} for one in found]

        nobody = delivering.Delivered("nobody", ok=True, detail="quiet").to_json()
        results = [nobody] if quiet else hand_over(targets)
        if is_clean and occurrence.kind is Kind.SLOT and all(one["ok"] for one in results):
            # A dead-man service is to hear of slots that really are well, and of nothing else.
            results += hand_over(pings)
        return {"delivered": results}

    def _end_of(self, result: TurnResult) -> tuple[Outcome, Reason | None, str]:
        if self.taken_by is not None:
            # It is theirs, and so is what was said there: nothing of it is kept here.
            whose = f"it answered in {self.taken}, which is the conversation of {self.taken_by}"
            return Outcome.FAILED, Reason.SESSION_CHANGED, whose
        if result.outcome is None and result.reason is Reason.SESSION_LOST:
            return Outcome.FAILED, Reason.SESSION_LOST, result.detail
        if result.outcome is None:
            busy = result.reason is Reason.BUSY
            if busy and self.claim.occurrence.kind is Kind.WAKE:
                # Busy is never a failure of a wake-up (W4).
                return Outcome.SKIPPED, Reason.BUSY, result.detail
            said = "the agent's own session is busy" if busy else "the agent is not available"
            detail = f"{said}: {result.detail}" if result.detail else said
            return Outcome.FAILED, Reason.NOT_STARTED, detail
        if self.cancelled_by is not None and result.outcome is Outcome.CANCELLED:
            verdict = cancelled(self.cancelled_by, result.detail)
            return verdict.outcome, verdict.reason, verdict.detail
        return result.outcome, result.reason, result.detail

    def _note_not_started(self, result: TurnResult) -> None:
        reason = result.reason or Reason.NOT_STARTED
        try:
            self.claim.append(
                Event.NOT_STARTED,
                at=self.clock.now(),
                reason=reason.value,
                detail=one_line(self.masker.mask(result.detail)),
            )
        except StoreError as error:
            # The outcome says it too.
            log.warning("not-started-not-written", extra={"ref": self.ref, "error": error.message})

    def _settle(self, outcome: Outcome, reason: Reason | None, detail: str, **more: Any) -> Record:
        started = self.claim.record.started_at
        detail = self.masker.mask(detail)
        now = self.clock.now()
        more["duration_s"] = None if started is None else round((now - started).total_seconds(), 3)

        def settle() -> Record:
            # Locked for one try alone: whoever cancels the job must not wait for a full disk.
            with settling(self.state, self.claim.occurrence):
                end, why, said, besides = outcome, reason, detail, more
                if self.claim.occurrence.kind is Kind.JOB:
                    end, why, said, besides = self._called_off(end, why, said, besides)
                return self.claim.settle(
                    end, why, said, at=self.clock.now(), settled_by=self.owner.user, **besides
                )

        record = _calmly(settle, ref=self.ref, clock=self.clock)
        self._cancels.clear(self.ref)
        if (record.started or {}).get("durable"):
            WorkStore(self.state).discard(record)
        try:
            ledger = self.lease.ledger
            if ledger.claim == record.path:
                self.lease.write(after_turn(ledger, record))
        except StoreError as error:
            # The stamp names a settled claim: the next turn takes it from there.
            log.warning("ledger-not-written", extra={"ref": self.ref, "error": error.message})
        return record

    def _called_off(
        self, outcome: Outcome, reason: Reason | None, detail: str, more: dict[str, Any]
    ) -> tuple[Outcome, Reason | None, str, dict[str, Any]]:
        """Return how a job ends: a cancel that was recorded before its end makes it that (J4)."""
        more = more | intents_of(self.state, self.claim.record)
        cancel = self.cancelled_by or called_off(self.state, self.claim.record)
        if cancel is None or outcome in (Outcome.CANCELLED, Outcome.SUPERSEDED):
            return outcome, reason, detail, more
        ended = f"its turn was {outcome.value}" + (f": {detail}" if detail else "")
        verdict = cancelled(cancel, ended)
        return verdict.outcome, verdict.reason, verdict.detail, more | {"by": verdict.by}

    def _keep(self, folder: str, name: str, text: str) -> None:
        try:
            files.add_folder(folder)
            files.replace(
                os.path.join(folder, name), text.encode("utf-8", "backslashreplace"), sync=False
            )
        except OSError as error:
            # Output is for people; a turn does not fail for it. Its beginning is in the record.
            log.warning(
                "output-not-kept",
                extra={"ref": self.ref, "error": files.fault(error, "write", folder).message},
            )


def _took_its_place(newer: Record | None) -> bool:
    """Return whether a newer slot goes before one that is about to start.

    One that was skipped since this one was on its way, or waits for its end, does not: to give
    this one up for it would lose both.
    """
    if newer is None or newer.last == Event.BUFFERED.value:
        return False
    return newer.outcome is not Outcome.SKIPPED or newer.reason is not Reason.OVERLAP


def _calmly(settle: Callable[[], Record], *, ref: str, clock: Clock) -> Record:
    """Settle; where the store refuses, try again as long as this process lives (D4)."""
    tries = 0
    while True:
        try:
            return settle()
        except (StoreError, OSError) as error:
            pause = _SETTLE_AGAIN_S[min(tries, len(_SETTLE_AGAIN_S) - 1)]
            tries += 1
            log.error(  # noqa: TRY400 - the cause is in the message; the traceback would repeat it
                "outcome-not-written", extra={"ref": ref, "error": str(error)}
            )
            clock.sleep(pause)


def cancelled(cancel: Cancel, detail: str) -> Verdict:
    """Return the end of a turn that a person, another turn or a newer slot cancelled."""
    if cancel.newer is not None:
        return Verdict(Outcome.SUPERSEDED, None, f"by {cancel.newer}", by=cancel.by)
    said = "; ".join(part for part in (cancel.reason, detail) if part)
    outcome, reason = end_of_cancel(cancel)
    return Verdict(outcome, reason, said, by=cancel.by)


def absorb_stamp(state: State, ledger: Ledger, *, own: str) -> Ledger:
    """Return *ledger* with what a settled claim still under its stamp adds to it.

    Its owner may have died between the outcome and the ledger; without this the conversation's
    first turn would look cut short, and the conversation would be lost.
    """
    if ledger.claim is None:
        return ledger
    record = ClaimStore(state).read_path(ledger.claim)
    if record is None or (record.end is None and ledger.claim != own):
        return ledger.with_(claim=None)
    return after_turn(ledger, record)


def after_turn(ledger: Ledger, record: Record) -> Ledger:
    """Return *ledger* after the turn that *record* tells of, its stamp cleared."""
    ledger = ledger.with_(claim=None, held_by=None)
    end = record.end
    if record.started is None and not ledger.epoch_turns and not ledger.native_session:
        # It was about to be launched, and provably was not: the conversation is as new as before.
        return ledger.with_(first_turn_begun=None)
    if record.started is None:
        return ledger
    totals = (record.events[-1] if end is None else end).get("totals") or {}
    ledger = ledger.with_(
        usd_total=totals.get("usd_total", ledger.usd_total),
        tokens_total=totals.get("tokens_total", ledger.tokens_total),
    )
    if end is None:
        return ledger
    finished = record.outcome is Outcome.COMPLETED
    native = end.get("native_session") if finished else None
    return ledger.with_(
        turns=ledger.turns + 1,
        epoch_turns=ledger.epoch_turns + (1 if finished or ledger.native_session else 0),
        native_session=native or ledger.native_session,
        last_at=record.ended_at,
    )


def _is_job(record: Record) -> bool:
    return record.occurrence.kind is Kind.JOB


def _own_id(work: Work, turn: Turn) -> str | None:
    """Return the id of the conversation where we chose it ourselves."""
    if work.agent is not None and chooses_id(work.agent):
        return turn.native_session or turn.session_uuid
    return turn.native_session


def _words_of(error: Exception) -> str:
    if isinstance(error, CannotStart):
        return error.result.detail
    return str(error)


def _next_slot(work: Work, record: Record) -> datetime | None:
    if work.schedule is None or record.occurrence.kind is not Kind.SLOT:
        return None
    try:
        return from_spec(work.schedule).next_after(record.occurrence.instant)
    except (RoutinesError, KeyError, TypeError, ValueError):
        # A host's own kind of schedule can't be made from its spec.
        return None


def _not_verified(result: TurnResult, why: str) -> TurnResult:
    return replace(
        result, outcome=Outcome.FAILED, reason=Reason.VERIFY, detail=one_line(f"verify: {why}")
    )


def failed(reason: Reason, detail: str) -> TurnResult:
    """Return the result of a turn that failed for a reason of our own."""
    return TurnResult(outcome=Outcome.FAILED, reason=reason, detail=detail, reply=Reply())
