"""routines/NAME.yaml: one routine, or everything that is wrong with its file."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TypeVar

from routines.config import reader
from routines.config.files import read_bytes, relative, why
from routines.config.kinds import (
    day_limit,
    path_of,
    retry_of,
    targets_of,
)
from routines.config.reader import text_of
from routines.config.report import Report, shown
from routines.config.routine_keys import (
    FOREIGN_KEYS,
    LARGEST_PROMPT,
    ROUTINE_KEYS,
    SCHEDULE_KEYS,
    check_prompt,
)
from routines.config.tree import Mapping, Node, Scalar
from routines.config.tree import Sequence as List
from routines.config.walker import Values, read_table
from routines.config.workspace_file import WorkspaceSettings, check_agent, check_cost
from routines.domain import schedule as schedules
from routines.domain.durations import format_span
from routines.domain.names import check_routine_name
from routines.domain.routine import (
    DEFAULT_MAX_CATCH_UP,
    DEFAULT_TIMEOUT,
    CatchUpPolicy,
    OverlapPolicy,
    Routine,
)
from routines.domain.schedule import Schedule, shortest_gap
from routines.domain.targets import Target
from routines.errors import InvalidName, InvalidSchedule, Problem, UsageError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What one file says at one moment.

    Attributes:
        name: The routine's name, NFC.
        path: The file, as problems name it.
        routine: The routine; None if the file can't be used.
        problems: Why not.
        remarks: What is allowed and probably not meant.
        sources: Absolute paths of other files that it was read from, there or not.
        unreadable: A file could not be read, for a reason that may pass without a trace.
    """

    name: str
    path: str
    routine: Routine | None
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    sources: tuple[str, ...] = ()
    unreadable: bool = False


def read_routine_file(
    path: str, name: str, *, root: str, settings: WorkspaceSettings
) -> Definition:
    """Return what the file *path* says; a file that can't be read is a problem too."""
    shown_path = relative(path, root)
    try:
        data = read_bytes(path, reader.LARGEST_FILE)
    except OSError as error:
        broken = _broken(name, shown_path, f"can't be read: {why(error)}")
        return replace(broken, unreadable=True)
    return parse_routine(data, name, path=shown_path, root=root, settings=settings)


def parse_routine(
    data: bytes, name: str, *, path: str, root: str, settings: WorkspaceSettings
) -> Definition:
    """Return the routine that *data* defines, or all of its problems.

    Args:
        data: The bytes of its file.
        name: The file's stem.
        path: The file, as problems name it.
        root: The workspace, which relative paths are counted from.
        settings: What holds where the file is silent.
    """
    try:
        name = check_routine_name(name)
    except InvalidName as error:
        return _broken(name, path, error.message, error.hint)
    document = reader.read(data, path)
    report = Report(document, list(document.problems))
    if document.root is None:
        return Definition(name=name, path=path, routine=None, problems=document.problems)
    return _Routine(name, document.root, report, root, settings).definition()


def _broken(name: str, path: str, message: str, cure: str | None = None) -> Definition:
    problem = Problem(path, None, None, None, message, cure)
    return Definition(name=name, path=path, routine=None, problems=(problem,))


def _by_place(problem: Problem) -> tuple[int, int]:
    return problem.line or 0, problem.column or 0


# Many routines are due at the same few times, and reading an expression is the most of a boot.
@lru_cache(maxsize=4096)
def _cron(expressions: tuple[str, ...], zone: str) -> Schedule:
    return schedules.cron(expressions, zone)


class _Routine:
    """Makes a routine of the values of its file, or finds what they lack."""

    def __init__(
        self, name: str, top: Mapping, report: Report, root: str, settings: WorkspaceSettings
    ) -> None:
        self.name = name
        self.top = top
        self.report = report
        self.root = root
        self.settings = settings
        self.values: Values = read_table(top, ROUTINE_KEYS, report, foreign=FOREIGN_KEYS)
        self.sources: tuple[str, ...] = ()
        self.unreadable = False

    def definition(self) -> Definition:
        """Return the routine, or the problems, with what it was read from."""
        path = self.report.document.path
        given = self.values.by_key
        zone = given.get("tz", self.settings.tz)
        schedule = self._schedule(zone)
        jitter = self._jitter(schedule)
        prompt = self._prompt()
        cwd = path_of(self.values, "cwd", self.root, self.report) or self.root
        env_file = (
            path_of(self.values, "env_file", self.root, self.report) or self.settings.env_file
        )
        agent = given.get("agent")
        if agent is not None:
            check_agent(agent, self.settings, self.values.nodes["agent"], self.report)
        limits = day_limit(given.get("limits"))
        check_cost(
            "limits",
            self.values,
            limits,
            agent or self.settings.agent,
            self.settings,
            self.report,
        )
        deliver, alert = self._targets("deliver"), self._targets("alert")
        problems = tuple(sorted(self.report.problems, key=_by_place))
        if problems or prompt is None:
            return Definition(
                name=self.name,
                path=path,
                routine=None,
                problems=problems,
                sources=self.sources,
                unreadable=self.unreadable,
            )
        routine = Routine(
            name=self.name,
            prompt=prompt,
            schedule=schedule,
            zone=zone,
            zone_is_set="tz" in given or self.settings.tz_is_set,
            agent=agent or self.settings.agent,
            args=given.get("args", ()),
            model=given.get("model"),
            cwd=cwd,
            env=tuple(given.get("env", {}).items()),
            env_file=env_file or self.settings.env_file,
            session=given.get("session", "stable"),
            session_turns=given.get("session_turns"),
            overlap=OverlapPolicy(given.get("overlap", OverlapPolicy.SKIP)),
            catch_up=CatchUpPolicy(given.get("catch_up", CatchUpPolicy.ONE)),
            max_catch_up=given.get("max_catch_up", DEFAULT_MAX_CATCH_UP),
            jitter=jitter,
            start_within=given.get("start_within"),
            timeout=given.get("timeout", DEFAULT_TIMEOUT),
            only_if=given.get("only_if"),
            retry=retry_of(given.get("retry")),
            rerun_interrupted=given.get("rerun_interrupted", 0),
            verify=given.get("verify"),
            exclusive=given.get("exclusive"),
            limits=limits,
            deliver=self.settings.deliver if deliver is None else deliver,
            quiet=given.get("quiet"),
            wake_tools=given.get("wake_tools", True),
            alert=self.settings.alert if alert is None else alert,
            silent_for=given.get("silent_for"),
            enabled=given.get("enabled", True),
            description=given.get("description", ""),
            tags=given.get("tags", ()),
            path=path,
            line_of=self.values.lines,
        )
        return Definition(
            name=self.name,
            path=path,
            routine=routine,
            remarks=self._remarks(),
            sources=self.sources,
        )

    # --- when ---

    def _jitter(self, schedule: Schedule | None) -> timedelta:
        """Return the jitter, refused where slots could fall due out of their order."""
        jitter: timedelta = self.values.get("jitter", timedelta(0))
        gap = None if schedule is None or not jitter else shortest_gap(schedule)
        if gap is not None and jitter > gap:
            self.report.refuse(
                self.values.nodes["jitter"],
                "jitter",
                f"is longer than the shortest gap between two slots, {format_span(gap)}",
                f"at most jitter: {format_span(gap)}",
            )
        return jitter

    def _schedule(self, zone: str) -> Schedule | None:
        """Return the schedule, or None if there is none or it is wrong."""
        nodes, lines = self.values.nodes, self.values.lines
        given = sorted((key for key in SCHEDULE_KEYS if key in nodes), key=lines.__getitem__)
        for key in given[1:]:
            message = f"`{key}` beside `{given[0]}` in line {lines[given[0]]}: a routine has one"
            self.report.add(nodes[key], key, message, "keep one, or make two routines")
        if "anchor" in nodes and "every" not in nodes:
            message = "`anchor` is what `every` counts from, and there is no `every`"
            self.report.add(nodes["anchor"], "anchor", message, "remove the key")
        made = [self._made(key, zone) for key in given]
        return made[0] if len(made) == 1 else None

    def _made(self, key: str, zone: str) -> Schedule | None:
        value = self.values.get(key)
        if key == "every":
            return self._every(value, zone)
        if value is None:
            return None  # reported already
        if key == "cron":
            return self._cron(value, zone)
        make = schedules.at if key == "at" else schedules.rrule
        return self._tried(key, self.values.nodes[key], lambda: make(value, zone))

    def _cron(self, expressions: tuple[str, ...], zone: str) -> Schedule | None:
        node = self.values.nodes["cron"]
        if isinstance(node, List) and len(node.items) > 1:
            # One by one first, so that a problem names the place of the one that is wrong.
            single = [
                self._tried("cron", item, partial(schedules.cron, text, zone))
                for item, text in zip(node.items, expressions, strict=True)
            ]
            if None in single:
                return None
        return self._tried("cron", node, partial(_cron, expressions, zone))

    def _every(self, period: timedelta | None, zone: str) -> Schedule | None:
        # Also where the period is wrong, so that both are told at once.
        anchor = self._anchor(zone)
        if period is None or (anchor is None and "anchor" in self.values.nodes):
            return None
        return self._tried(
            "every",
            self.values.nodes["every"],
            lambda: schedules.every(period, anchor=anchor, tz=zone),
        )

    def _anchor(self, zone: str) -> datetime | None:
        text = self.values.get("anchor")
        if text is None:
            return None
        node = self.values.nodes["anchor"]
        once = self._tried("anchor", node, lambda: schedules.at(text, zone))
        return None if once is None else once.slot

    def _tried(self, key: str, node: Node, make: Callable[[], _T]) -> _T | None:
        try:
            return make()
        except InvalidSchedule as error:
            # What was found is said before it; said again it would read as two.
            quoted = f"{node.text!r} " if isinstance(node, Scalar) else ""
            self.report.refuse(node, key, error.message.removeprefix(quoted), error.hint)
            return None

    # --- what ---

    def _prompt(self) -> str | None:
        nodes = self.values.nodes
        if "prompt" in nodes and "prompt_file" in nodes:
            line = self.values.lines["prompt"]
            message = f"`prompt_file` beside `prompt` in line {line}: a routine has one prompt"
            self.report.add(nodes["prompt_file"], "prompt_file", message, "remove one of them")
        if "prompt_file" in self.values.by_key:
            return self._prompt_from_file(nodes["prompt_file"])
        if "prompt" not in nodes and "prompt_file" not in nodes and not self._misspelt():
            cure = "write `prompt: |` and the text below it, or `prompt_file: PATH`"
            self.report.add(self.top, "prompt", "`prompt` is missing", cure)
        prompt: str | None = self.values.get("prompt")
        return prompt

    def _misspelt(self) -> bool:
        """Return whether a problem already says which key was to be `prompt`."""
        cures = [problem.cure or "" for problem in self.report.problems]
        return any("prompt" in cure.replace("'", " ").split() for cure in cures)

    def _prompt_from_file(self, node: Node) -> str | None:
        path = path_of(self.values, "prompt_file", self.root, self.report)
        if path is None:
            return None
        # Watched also while it is missing, so that it is seen to come.
        self.sources = (path,)
        try:
            data = read_bytes(path, LARGEST_PROMPT)
        except OSError as error:
            self.unreadable = not isinstance(error, FileNotFoundError)
            cure = f"paths are counted from {self.root}"
            self.report.refuse(node, "prompt_file", f"can't be read: {why(error)}", cure)
            return None
        text = text_of(data, relative(path, self.root))
        if isinstance(text, Problem):
            place = f"line {text.line}: " if text.line else ""
            self.report.refuse(node, "prompt_file", place + text.message, text.cure)
            return None
        try:
            return check_prompt(text)
        except UsageError as error:
            self.report.refuse(node, "prompt_file", error.message, error.hint)
            return None

    def _targets(self, key: str) -> tuple[Target, ...] | None:
        node = self.values.nodes.get(key)
        if node is None:
            return None
        return targets_of(self.values.get(key), key, node, self.root, self.report)

    def _remarks(self) -> tuple[Problem, ...]:
        """Return what is allowed and probably not meant."""
        remarks = Report(self.report.document)
        for key in ("prompt", "description"):
            node = self.values.nodes.get(key)
            comment = remarks.document.comment_after(node) if isinstance(node, Scalar) else None
            if comment and isinstance(node, Scalar):
                message = f"{key}: {shown(comment)!r} is a comment and not part of the text"
                remarks.add(node, key, message, "put the text in quotes if it is meant to be")
        if self.values.get("session") == "fresh" and "session_turns" in self.values.by_key:
            message = "`session_turns` says nothing here: each turn has a session of its own"
            remarks.add(self.values.nodes["session_turns"], "session_turns", message)
        return tuple(remarks.problems)


def routine_name(file_name: str) -> str | None:
    """Return the stem of a file that holds a routine, or None for any other file.

    What editors leave beside a file (`.x.yaml.swp`, `x.yaml~`, `#x.yaml#`, `.#x.yaml`, a draft
    that ends in .tmp) is no routine.
    """
    stem, ending = os.path.splitext(file_name)
    if ending.casefold() not in {".yaml", ".yml"} or file_name[0] in ".#":
        return None
    return stem
