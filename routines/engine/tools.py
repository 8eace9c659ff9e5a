"""`wake`, `unwake`, `wakeups`: what an agent calls, bound to one session.

They answer at once, never wait for a session, and say everything in their text.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from routines.domain import wake_texts
from routines.domain.clock import Clock
from routines.domain.outcome import one_line
from routines.domain.wake_calls import arguments_of
from routines.domain.wake_request import AlreadySet, WakeRequest
from routines.domain.wakeup import Bounds, Wakeup
from routines.errors import RoutinesError, UnknownWakeup, WakeupRefused
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore
from routines.store.state import State
from routines.store.wakeups import Unwoken, WakeupStore

log = logging.getLogger("routines")

# Outside of a turn `wakeups` shows those of all sessions: as many as a model reads.
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answers.

    Attributes:
        text: For the model, whole.
        data: The same as plain JSON types.
        refused: Whether it did not do what was asked; the text says why, and what to ask instead.
    """

    text: str
    data: dict[str, Any]
    refused: bool = False

    def __str__(self) -> str:
        return self.text


class WakeTools:
    """The tools of one session.

    Args:
        state: The state folder.
        session: Whose wake-ups; None outside a turn: each gets a session of its own.
        by: Who asks: `user@host`, or the key of the turn.
        turn: The key of the turn that asks, or None.
        clock: Tells the time.
        zone: The workspace's zone.
        bounds: The guardrails.
        no_scheduler: Returns the workspace in words if nothing is alive to fire, else None.
        reply_to: Returns where the reply of a session's woken turn goes, in words.
        in_turn: Whether who asks is in a turn, and may wait within it.
    """

    def __init__(
        self,
        state: State,
        *,
        session: str | None,
        by: str,
        turn: str | None,
        clock: Clock,
        zone: str,
        bounds: Bounds,
        no_scheduler: Callable[[], str | None],
        reply_to: Callable[[str], Sequence[str]] = lambda _session: (),
        in_turn: bool = True,
    ) -> None:
        self._state = state
        self._session = session
        self._by = by
        self._turn = turn
        self._clock = clock
        self._zone = zone
        self._bounds = bounds
        self._no_scheduler = no_scheduler
        self._reply_to = reply_to
        self._in_turn = in_turn
        self._wakeups = WakeupStore(state)

    # For programs that call tools ---------------------------------------------------------------

    @property
    def offered(self) -> tuple[wake_texts.Tool, ...]:
        """What a model is told of the tools: names, descriptions, arguments."""
        return wake_texts.tools(zone_key=self._zone, bounds=self._bounds)

    @property
    def functions(self) -> tuple[Callable[..., str], ...]:
        """`wake`, `unwake` and `wakeups` as functions, for frameworks that read a signature.

        They take texts and return text. What is refused is returned too, and never raised: it is
        for the model, which can ask again.
        """

        def wake(
            prompt: str,
            in_: str = "",
            at: str = "",
            every: str = "",
            cron: str = "",
            tz: str = "",
        ) -> str:
            asked = {"prompt": prompt, "in": in_, "at": at, "every": every, "cron": cron, "tz": tz}
            answer = self.call("wake", asked)
            return wake_texts.in_python(answer.text) if answer.refused else answer.text

        def unwake(id: str) -> str:  # noqa: A002 - it is what the argument is called
            return self.call("unwake", {"id": id}).text

        def wakeups() -> str:
            return self.call("wakeups").text

        made = (wake, unwake, wakeups)
        for tool, function in zip(self.offered, made, strict=True):
            function.__doc__ = tool.docstring()
            function.__qualname__ = tool.name
        return made

    def openai(self, *, responses: bool = False) -> list[dict[str, Any]]:
        """Return the tools as the `tools` of a request to OpenAI's API, or one that speaks it.

        Args:
            responses: For the Responses API; by default for Chat Completions.
        """
        flat = [
            {"name": one.name, "description": one.description, "parameters": one.schema()}
            for one in self.offered
        ]
        if responses:
            return [{"type": "function", **one} for one in flat]
        return [{"type": "function", "function": one} for one in flat]

    def anthropic(self) -> list[dict[str, Any]]:
        """Return the tools as the `tools` of a request to Anthropic's Messages API."""
        return [
            {"name": one.name, "description": one.description, "input_schema": one.schema()}
            for one in self.offered
        ]

    def call(self, name: str, arguments: object = None) -> ToolAnswer:
        """Do what a model asked for, and answer it.

        Nothing is raised, whatever the model wrote: a refusal is an answer with `refused` set.

        Args:
            name: The tool that was called.
            arguments: A mapping, or JSON text of one.
        """
        try:
            return self._call(name, arguments)
        except RoutinesError as error:
            return refused(error)
        except Exception as error:
            # A loop of turns must not end for one call; whoever reads the log finds out why.
            log.exception("tool-failed", extra={"tool": one_line(str(name), most=60)})
            kind = type(error).__name__
            return ToolAnswer(
                f"Failed: {kind}. Whether anything was changed can't be told: wakeups() says.",
                {"refused": True, "code": "bug", "message": kind, "hint": None},
                refused=True,
            )

    def _call(self, name: str, arguments: object) -> ToolAnswer:
        tool = next((one for one in self.offered if one.name == name), None)
        if tool is None:
            known = ", ".join(one.name for one in self.offered)
            shown = one_line(name, most=60) if isinstance(name, str) else type(name).__name__
            raise WakeupRefused(
                f'there is no tool "{shown}": there are {known}. Nothing was changed.'
            )
        given = arguments_of(tool, arguments)
        match tool.name:
            case "wake":
                asked: dict[str, Any] = {"prompt": None, **given}
                if "in" in asked:
                    asked["in_"] = asked.pop("in")
                return self.ask(**asked)
            case "unwake":
                wakeup_id = str(given.get("id", "")).strip()
                if not wakeup_id:
                    raise WakeupRefused(
                        "id is missing: which wake-up? Nothing was changed.",
                        hint="wakeups() shows what is pending",
                    )
                try:
                    return self.cancel(wakeup_id)
                except UnknownWakeup as error:
                    raise error.to_model() from None
            case _:
                return self.listing()

    # One by one ---------------------------------------------------------------------------------

    def wake(
        self,
        prompt: str,
        in_: str | None = None,
        at: str | None = None,
        every: str | None = None,
        cron: str | None = None,
        tz: str | None = None,
    ) -> str:
        """Be called again later, in this same conversation.

        Exactly one of *in_*, *at*, *every*, *cron*.

        Args:
            prompt: What you will be told.
            in_: "10m", "2h30m", "1d"; at least 1m.
            at: "2026-11-30T09:00" or "09:00" (its next coming), read in *tz*; or with an offset.
            every: "30m"; at least 10m; goes on until unwake.
            cron: "0 9 * * 1-5"; at least 10 min apart; goes on until unwake.
            tz: An IANA name, for *at* and *cron*.

        Raises:
            WakeupRefused: A guardrail says no, and why. Nothing was scheduled.
        """
        return self.ask(prompt=prompt, in_=in_, at=at, every=every, cron=cron, tz=tz).text

    def ask(self, **asked: Any) -> ToolAnswer:
        """Answer `wake` with text and data."""
        now = self._clock.now()
        request = WakeRequest(
            session=self._session, by=self._by, turn=self._turn, can_wait=self._in_turn, **asked
        )
        found = self._wakeups.wake(request, now=now, bounds=self._bounds, zone_key=self._zone)
        wakeup = found.wakeup if isinstance(found, AlreadySet) else found
        setting = self._setting(wakeup.session)
        return ToolAnswer(
            wake_texts.answer_wake(found, setting),
            {"already": isinstance(found, AlreadySet), **wakeup.to_json()},
        )

    def unwake(self, id: str) -> str:  # noqa: A002 - it is what the tool's argument is called
        """Cancel one of your pending wake-ups.

        Raises:
            UnknownWakeup: This session has none of that id.
        """
        return self.cancel(id).text

    def cancel(self, wakeup_id: str, *, session: str | None = None) -> ToolAnswer:
        """Answer `unwake` with text and data.

        Args:
            wakeup_id: Which.
            session: Whose, for an operator; else the caller's own.
        """
        owner = session or self._session
        if owner is None:
            # Outside a turn the caller is the operator, who may cancel any.
            found = self._wakeups.find(wakeup_id)
            owner = f"wake:{wakeup_id}" if found is None else found.session
        answer = self._wakeups.unwake(
            owner,
            wakeup_id,
            claims=ClaimStore(self._state),
            by=self._by,
            at=self._clock.now(),
        )
        setting = self._setting(owner)
        firing = answer.firing
        match answer.how:
            case Unwoken.UNKNOWN:
                pending = [one.id for one in self._wakeups.pending(owner)]
                raise UnknownWakeup(wakeup_id, pending)
            case Unwoken.GONE:
                text = wake_texts.unwoken_gone(wakeup_id, setting)
            case Unwoken.NOT_STARTED:
                if firing is not None:
                    CancelStore(self._state).ask(
                        firing.ref,
                        by=self._by,
                        person=self._turn is None,
                        at=self._clock.now(),
                        reason="unwake",
                    )
                text = wake_texts.unwoken_not_started(wakeup_id)
            case Unwoken.STARTED:
                own = firing is not None and self._turn == self._state.key(firing.ref)
                text = wake_texts.unwoken_started(wakeup_id, own_turn=own, stopped=answer.stopped)
            case Unwoken.ENDED:
                ended = "" if firing is None or firing.outcome is None else firing.outcome.value
                text = wake_texts.unwoken_ended(wakeup_id, ended)
            case _:
                assert_never(answer.how)
        return ToolAnswer(
            text,
            {"id": wakeup_id, "session": owner, "how": answer.how.value, "stopped": answer.stopped},
        )

    def wakeups(self) -> str:
        """Return your pending wake-ups: id, when, start of prompt."""
        return self.listing().text

    def listing(self) -> ToolAnswer:
        """Answer `wakeups` with text and data; outside of a turn those of all sessions."""
        session = self._session
        if session is not None:
            mine = self._wakeups.pending(session)
            text = wake_texts.answer_wakeups(mine, self._setting(session))
            return ToolAnswer(text, _listed(mine, len(mine)))
        total, _sessions = self._wakeups.count()
        some = self._wakeups.pending_all(_MOST_SHOWN)
        text = wake_texts.answer_all_wakeups(some, total, self._setting(""))
        return ToolAnswer(text, _listed(some, total))

    def pending(self) -> list[Wakeup]:
        """Return what is pending in the session."""
        return [] if self._session is None else self._wakeups.pending(self._session)

    def _setting(self, session: str) -> wake_texts.Setting:
        return wake_texts.Setting(
            now=self._clock.now(),
            zone_key=self._zone,
            reply_to=self._reply_to(session),
            pending=len(self._wakeups.pending(session)) if session else 0,
            bounds=self._bounds,
            here=self._session is not None,
            no_scheduler=self._no_scheduler(),
        )


def refused(error: RoutinesError) -> ToolAnswer:
    """Return the answer of a tool that says no."""
    said = {"code": error.code, "message": error.message, "hint": error.hint}
    return ToolAnswer(wake_texts.refusal(error), {"refused": True, **said}, refused=True)


def _listed(pending: Sequence[Wakeup], total: int) -> dict[str, Any]:
    return {"count": total, "wakeups": [one.to_json() for one in pending]}
