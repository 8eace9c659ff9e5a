"""The wake tools for whoever calls tools: an MCP server, or a program with a loop of its own."""

from collections.abc import Callable, Mapping

from routines.domain import wake_texts
from routines.domain.names import check_session
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.engine.recipients import reply_to
from routines.engine.tools import ToolAnswer, WakeTools, refused
from routines.errors import RoutinesError
from routines.operations.context import Context
from routines.operations.holding import session_of
from routines.operations.life import schedulers


def tools(
    session: str | None = None,
    *,
    root: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> WakeTools:
    """Return `wake`, `unwake` and `wakeups` for a program that runs no engine.

    What they set is fired by the scheduler of the workspace, which is found as the command finds
    it: *root*, else `$ROUTINES_ROOT`, else the nearest one upwards, else the user's own.

    Args:
        session: Whose wake-ups: `named:NAME` is yours to choose, the name of a routine stands
            for its own conversation. By default that of the turn that this process runs in;
            outside of a turn each wake-up then gets a conversation of its own.
        root: The workspace.
        environ: The environment; that of this process by default.

    Raises:
        WorkspaceNotFound: There is none.
        InvalidName, UnknownSession: It has a name that no session can have.
    """
    if session is not None:
        session = check_session(session)
    context = Context(explicit_root=root, environ=environ)
    return wake_tools(context, session=None if session is None else session_of(context, session))


def wake_tools(context: Context, *, session: str | None) -> WakeTools:
    """Return the tools of *session*, or of the turn that this process belongs to."""
    state = context.writable_state
    turn = context.environ.get("ROUTINES_TURN")
    own = session or context.environ.get("ROUTINES_SESSION")

    def no_scheduler() -> str | None:
        alive = schedulers(state, now=context.clock.now()).alive
        return None if alive else context.short(context.root.path)

    return WakeTools(
        state,
        session=own,
        by=context.who,
        turn=turn,
        clock=context.clock,
        zone=context.workspace.settings.tz,
        bounds=DEFAULT_BOUNDS,
        no_scheduler=no_scheduler,
        reply_to=lambda name: reply_to(
            name, context.workspace.routines, context.workspace.settings.deliver
        ),
        in_turn=turn is not None,
    )


def wake(
    context: Context,
    *,
    prompt: str,
    in_: str | None,
    at: str | None,
    every: str | None,
    cron: str | None,
    tz: str | None,
    session: str | None,
) -> ToolAnswer:
    """Set a wake-up in the turn's session, in *session*, or in a fresh one.

    Raises:
        WakeupRefused: A guardrail says no; nothing was scheduled.
    """
    if session is not None:
        session = session_of(context, session)
    tools = wake_tools(context, session=session)
    return tools.ask(prompt=prompt, in_=in_, at=at, every=every, cron=cron, tz=tz)


def unwake(context: Context, wakeup_id: str) -> ToolAnswer:
    """Cancel a wake-up: inside a turn one of its session, outside any."""
    return wake_tools(context, session=None).cancel(wakeup_id)


class ToolDesk:
    """Answers calls of the wake tools as long as a process lives, each from the files as they are.

    Args:
        make_context: Makes a context: the files may have changed since the last call.
        session: What `--session` said, or None.
    """

    def __init__(self, make_context: Callable[[], Context], *, session: str | None = None) -> None:
        self._make_context = make_context
        self._session = session

    def offered(self) -> tuple[wake_texts.Tool, ...]:
        """Return the tools as the workspace offers them."""
        try:
            # Not by `_tools`: being asked what there is makes no state folder.
            return wake_texts.tools(zone_key=self._make_context().workspace.settings.tz)
        except RoutinesError:
            # They are offered all the same: a call says what is wrong, to one who can tell it on.
            return wake_texts.tools(zone_key="UTC")

    def call(self, name: str, arguments: object) -> ToolAnswer:
        """Do what was asked for and answer it; nothing is raised."""
        try:
            context = self._make_context()
            if name == "wakeups" and not arguments and context.state_or_none is None:
                # To look is no reason to make a state folder.
                return ToolAnswer("Nothing is pending.", {"count": 0, "wakeups": []})
            found = self._tools(context)
        except RoutinesError as error:
            return refused(error)
        return found.call(name, arguments)

    def instructions(self) -> str:
        """Return one line: who asks here, in which conversation, and where its plain reply goes.

        Outside of a turn, what a wake-up is there; without a workspace, what is wrong.
        """
        try:
            context = self._make_context()
            session = self._session_of(context) or context.environ.get("ROUTINES_SESSION")
            routines, deliver = context.workspace.routines, context.workspace.settings.deliver
        except RoutinesError as error:
            return wake_texts.refusal(error)
        if session is None:
            return wake_texts.instructions_outside(reply_to("", routines, deliver))
        who = context.environ.get("ROUTINES_ROUTINE") or session
        return wake_texts.instructions(
            who=who, session=session, reply_to=reply_to(session, routines, deliver)
        )

    def problem(self) -> RoutinesError | None:
        """Return why no call can succeed, or None."""
        try:
            context = self._make_context()
            self._session_of(context)
            _ = context.workspace
        except RoutinesError as error:
            return error
        return None

    def _session_of(self, context: Context) -> str | None:
        return None if self._session is None else session_of(context, self._session)

    def _tools(self, context: Context) -> WakeTools:
        return wake_tools(context, session=self._session_of(context))


# What answers calls is a surface's to know as well.
__all__ = ["ToolAnswer", "ToolDesk", "tools"]
