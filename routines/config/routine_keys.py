"""Which keys a routine's file may have: the table, and words of other tools for the same things."""

import re
from datetime import timedelta

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
)
from routines.config.reader import unix_lines
from routines.config.report import near
from routines.config.single import Span, Text, Truth, Whole, Word
from routines.config.walker import Key, ListOf
from routines.domain.names import check_session_name
from routines.domain.routine import (
    CatchUpPolicy,
    OverlapPolicy,
)
from routines.errors import InvalidName, UsageError

# What a model can read is far less; what a pipe and a record can carry is not.
LARGEST_PROMPT = 16 * 2**20


def check_prompt(text: str) -> str:
    """Return *text* as an agent gets it, or raise `UsageError`."""
    if not text.strip():
        raise UsageError("the prompt is empty", hint="say what the agent is to do")
    if len(text) * 4 > LARGEST_PROMPT and len(text.encode()) > LARGEST_PROMPT:
        raise UsageError(f"the prompt is larger than {LARGEST_PROMPT // 2**20} MiB")
    return unix_lines(text)


def _session_word(text: str) -> str:
    """Return *text* if it says which conversation a routine continues, or raise `InvalidName`."""
    if text in _SESSIONS:
        return text
    word, colon, _ = text.partition(":")
    if word == "named" and colon:
        return check_session_name(text)
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
    Key("prompt", Text(convert=check_prompt, prose=True), "The text that the agent gets."),
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
        Text(_SESSION_EXPECTED, _session_word, pattern="^(stable|fresh|named:.+)$"),
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
FOREIGN_KEYS = {
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
