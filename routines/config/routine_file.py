"""routines/NAME.yaml: one routine, or everything that is wrong with its file."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TypeVar

from routines.config import reader
from routines.config.files import absolute, read_bytes, relative, why
from routines.config.kinds import (
    ALERT,
    DELIVER,
    ENVIRONMENT,
    LIMITS,
    MOMENT,
    PATH,
    RETRY,
    WORDS,
    ZONE,
    Command,
    day_limit,
    retry_of,
    targets_of,
)
from routines.config.reader import text_of, unix_lines
from routines.config.report import Report, near, shown
from routines.config.single import Span, Text, Truth, Whole, Word
from routines.config.tree import Mapping, Node, Scalar
from routines.config.tree import Sequence as List
from routines.config.walker import Key, ListOf, Values, read_table
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

# What a model can read is far less; what a pipe and a record can carry is not.
LARGEST_PROMPT = 16 * 2**20
_LONGEST_SESSION = 100


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


# --- the table --------------------------------------------------------------------------------


def _prompt(text: str) -> str:
    """Return *text* as an agent gets it, or raise `UsageError`."""
    if not text.strip():
        raise UsageError("the prompt is empty", hint="say what the agent is to do")
    if len(text) * 4 > LARGEST_PROMPT and len(text.encode()) > LARGEST_PROMPT:
        raise UsageError(f"the prompt is larger than {LARGEST_PROMPT // 2**20} MiB")
    return unix_lines(text)


def session_word(text: str) -> str:
    """Return *text* if it says which conversation a routine continues, or raise `InvalidName`."""
    if text in _SESSIONS:
        return text
    word, colon, name = text.partition(":")
    if word == "named" and colon:
        bare = name.strip() == name and name.isprintable()
        if bare and 0 < len(name) <= _LONGEST_SESSION:
            return text
        hint = f"1 to {_LONGEST_SESSION} printable characters, no space around them"
        raise InvalidName("a named session needs a name", hint=hint)
    close = near(text, (*_SESSIONS, "named"))
    raise InvalidName(
        f"expected {_SESSION_EXPECTED}",
        hint=close or (f"for a conversation of that name write named:{text}" if text else None),
    )


_SESSIONS = ("stable", "fresh")
_SESSION_EXPECTED = "stable, fresh or named:NAME"


def _tag(text: str) -> str:
    if not re.fullmatch(r"[\w.:/-]{1,100}", text):
        raise InvalidName("a tag is one word", hint="letters, digits, '-', '_', '.', ':' and '/'")
    return text


_OVERLAPS = tuple(OverlapPolicy)
_NEVER_TWO = "a conversation has one turn at a time, so two turns of a routine never overlap"
_FOREIGN_OVERLAPS = {
    "forbid": "for that write skip",
    "drop": "for that write skip",
    "ignore": "for that write skip",
    "coalesce": "for that write buffer-one",
    "buffer_one": "write buffer-one",
    "buffer": "write buffer-one",
    "queue": 'for "wait until it is free" write buffer-one',
    "wait": 'for "wait until it is free" write buffer-one',
    "replace": "for that write supersede",
    "cancel": "for that write supersede",
    "restart": "for that write supersede",
    "allow": _NEVER_TWO,
    "allow_all": _NEVER_TWO,
    "parallel": _NEVER_TWO,
}
_FOREIGN_CATCH_UPS = {
    "false": "write none",
    "no": "write none",
    "off": "write none",
    "never": "write none",
    "skip": "write none",
    "true": "write one",
    "yes": "write one",
    "on": "write one",
    "latest": "write one",
    "last": "write one",
}

ROUTINE_KEYS = (
    Key("prompt", Text(convert=_prompt, prose=True), "The text that the agent gets."),
    Key("prompt_file", PATH, "A file with the prompt, from the workspace root."),
    Key(
        "cron",
        ListOf(Text("five fields, like '0 9 * * 1-5'"), "cron expressions", least=1, alone=True),
        "Five fields, a list of such, or an alias like @daily.",
    ),
    Key("every", Span(timedelta(minutes=1)), "A period, counted from `anchor`."),
    Key(
        "anchor",
        Text("an instant, like 2026-01-01T09:00"),
        "What `every` counts from.",
        "1970-01-01T00:00Z",
    ),
    Key("at", Text("an instant, like 2026-12-24T18:00"), "One instant."),
    Key("rrule", Text("an RFC 5545 rule with DTSTART"), "A recurrence rule with DTSTART."),
    Key("tz", ZONE, "The time zone its times are read in.", "the workspace's, else UTC"),
    Key("agent", Text("the name of an agent"), "The agent.", "the workspace's"),
    Key("args", WORDS, "Words added to the agent's command line."),
    Key("model", Text("the name of a model"), "The model, handed over as the agent's entry says."),
    Key("cwd", PATH, "The folder that the turn runs in.", "the workspace folder"),
    Key("env", ENVIRONMENT, "Variables added to the turn's environment."),
    Key("env_file", PATH, "KEY=VALUE lines for its environment.", "the workspace's"),
    Key(
        "session",
        Text(_SESSION_EXPECTED, session_word, pattern="^(stable|fresh|named:.+)$"),
        "Which conversation its turns continue.",
        "stable",
    ),
    Key("session_turns", Whole(1), "After so many turns a new conversation.", "no limit"),
    Key(
        "overlap",
        Word(_OVERLAPS, _FOREIGN_OVERLAPS),
        "What becomes of a slot while the one before it runs.",
        "skip",
    ),
    Key(
        "catch_up",
        Word(tuple(CatchUpPolicy), _FOREIGN_CATCH_UPS),
        "What is owed after an absence.",
        "one",
    ),
    Key("max_catch_up", Whole(1, 1000), "The most that `catch_up: all` owes.", "100"),
    Key("start_within", Span(), "Later than this after its slot it is missed.", "no limit"),
    Key("timeout", Span(MOMENT), "Of one turn with its gates, in time awake.", "1h"),
    Key("jitter", Span(zero=True), "The longest stable offset from the slot.", "0s"),
    Key("retry", RETRY, "What is done when a turn provably did not start."),
    Key(
        "rerun_interrupted",
        Whole(0, 100),
        "How often an interrupted turn is run again.",
        "0",
    ),
    Key("only_if", Command(), "A command that decides before the agent is started."),
    Key("verify", Command(), "A command that judges a completed turn."),
    Key("exclusive", Text("a name"), "Turns of one group never run at once."),
    Key("limits", LIMITS, "The most that it may use a day."),
    Key("deliver", DELIVER, "Where the replies of completed turns go.", "the workspace's"),
    Key("quiet", Text(), "A reply that is exactly this is kept and not delivered."),
    Key("alert", ALERT, "Who is told what went wrong, besides the log.", "the workspace's"),
    Key(
        "silent_for",
        Span(MOMENT),
        "Tell if it has not completed for that long.",
        "two slots and `timeout`",
    ),
    Key(
        "wake_tools",
        Truth(),
        "Give the agent `wake` and `unwake` where its program allows it.",
        "true",
    ),
    Key("enabled", Truth(), "Whether its slots run.", "true"),
    Key("description", Text(prose=True, empty=True), "For people who read the list."),
    Key("tags", ListOf(Text("a tag", _tag), "tags"), "Words that commands can select by."),
)
SCHEDULE_KEYS = ("cron", "every", "at", "rrule")
_FOREIGN = {
    "schedule": "write cron, every, at or rrule",
    "when": "write cron, every, at or rrule",
    "crontab": "write cron",
    "interval": "write every",
    "timezone": "write tz",
    "time_zone": "write tz",
    "zone": "write tz",
    "name": "the name of the file is the name of the routine",
    "id": "the name of the file is the name of the routine",
    "message": "write prompt",
    "task": "write prompt",
    "text": "write prompt",
    "instructions": "write prompt",
    "command": "agents are named under `agents:` in routines.yaml",
    "working_dir": "write cwd",
    "workdir": "write cwd",
    "directory": "write cwd",
    "environment": "write env",
    "concurrency": "write overlap; how many turns run at once is said in routines.yaml",
    "concurrency_policy": "write overlap",
    "misfire": "write catch_up",
    "disabled": "write `enabled: false`",
    "agents": "agents are defined in routines.yaml",
}


# --- reading ----------------------------------------------------------------------------------


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
        self.values: Values = read_table(top, ROUTINE_KEYS, report, foreign=_FOREIGN)
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
        cwd = self._path("cwd") or self.root
        env_file = self._path("env_file") or self.settings.env_file
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
            env_file=env_file,
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
        path = self._path("prompt_file")
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
            return _prompt(text)
        except UsageError as error:
            self.report.refuse(node, "prompt_file", error.message, error.hint)
            return None

    def _path(self, key: str) -> str | None:
        text = self.values.get(key)
        if text is None:
            return None
        path = absolute(text, self.root)
        if path is None:
            message = "no user of that name has a home folder"
            self.report.refuse(self.values.nodes[key], key, message)
        return path

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
