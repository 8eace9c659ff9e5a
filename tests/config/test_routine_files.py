"""routines/NAME.yaml to a routine: what each key becomes, and how keys go together."""

import os
import stat
from datetime import UTC, datetime, timedelta

import pytest

from routines.config.routine_file import read_routine_file
from routines.config.workspace_file import WorkspaceSettings
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.routine import CatchUpPolicy, OverlapPolicy

CLAUDE = AgentSpec(name="claude", kind=AgentKind.COMMAND, command=("claude", "-p"))
SETTINGS = WorkspaceSettings(
    tz="Europe/Berlin",
    tz_is_set=True,
    agent="claude",
    agents={"claude": CLAUDE},
    env_file="/ws/.env",
)


def only(definition):
    assert len(definition.problems) == 1, definition.problems
    assert definition.routine is None
    return definition.problems[0]


def test_every_key_that_is_built_reaches_the_routine(parse, tmp_path):
    text = """\
prompt: |
  Summarise what was merged.
  Be brief.
cron: "0 9 * * 1-5"
tz: America/New_York
agent: echo
args: [--fast, "a b", 5, ""]
model: sonnet
cwd: src/shop
env: {A: 1, B: yes, C: "", D: 010}
env_file: ~/keys.env
session: named:shop
session_turns: 20
overlap: skip
catch_up: none
start_within: 1h30m
timeout: 20m
only_if: [test, -f, changed]
enabled: false
description: What was merged
tags: [daily, shop/web]
"""
    routine = parse(text, settings=SETTINGS).routine
    assert routine.name == "x"
    assert routine.prompt == "Summarise what was merged.\nBe brief.\n"
    assert routine.schedule.spec() == {"cron": ["0 9 * * 1-5"], "tz": "America/New_York"}
    assert (routine.zone, routine.zone_is_set) == ("America/New_York", True)
    assert (routine.agent, routine.model) == ("echo", "sonnet")
    assert routine.args == ("--fast", "a b", "5", "")
    assert routine.cwd == "/ws/src/shop"
    assert routine.env == (("A", "1"), ("B", "yes"), ("C", ""), ("D", "010"))
    assert routine.env_file == os.path.expanduser("~/keys.env")
    assert (routine.session, routine.session_turns) == ("named:shop", 20)
    assert (routine.overlap, routine.catch_up) == (OverlapPolicy.SKIP, CatchUpPolicy.NONE)
    assert (routine.start_within, routine.timeout) == (
        timedelta(minutes=90),
        timedelta(minutes=20),
    )
    assert routine.only_if == ("test", "-f", "changed")
    assert (routine.enabled, routine.description) == (False, "What was merged")
    assert routine.tags == ("daily", "shop/web")
    assert routine.path == "routines/x.yaml"
    assert (routine.line_of["prompt"], routine.line_of["cron"]) == (1, 4)


def test_what_the_file_leaves_out_comes_from_the_workspace(parse):
    routine = parse("prompt: x\n", settings=SETTINGS).routine
    assert (routine.zone, routine.zone_is_set, routine.agent) == ("Europe/Berlin", True, "claude")
    assert (routine.cwd, routine.env_file) == ("/ws", "/ws/.env")
    assert (routine.session, routine.catch_up) == ("stable", CatchUpPolicy.ONE)
    assert (routine.timeout, routine.start_within) == (timedelta(hours=1), None)
    assert routine.schedule is None


def test_without_any_zone_the_times_are_read_in_utc_and_the_routine_says_so(parse):
    routine = parse("prompt: x\ncron: '@daily'\n").routine
    assert (routine.zone, routine.zone_is_set) == ("UTC", False)


# --- schedules ---


@pytest.mark.parametrize(
    ("lines", "after", "slot"),
    [
        ("cron: '0 9 * * *'", "2026-06-30T12:00Z", "2026-07-01T07:00Z"),
        ("cron: ['0 9 * * *', '0 18 * * *']", "2026-07-01T12:00Z", "2026-07-01T16:00Z"),
        ("every: 6h", "2026-07-01T05:00Z", "2026-07-01T06:00Z"),
        ("every: 6h\nanchor: 2026-07-01T01:00", "2026-07-01T00:00Z", "2026-07-01T05:00Z"),
        ("at: 2026-07-01 09:00", "2026-06-30T12:00Z", "2026-07-01T07:00Z"),
        ("at: 2026-07-01T09:00:00+00:00", "2026-06-30T12:00Z", "2026-07-01T09:00Z"),
    ],
)
def test_each_kind_of_schedule_is_read_in_the_zone_of_the_routine(parse, lines, after, slot):
    routine = parse(f"prompt: x\n{lines}\n", settings=SETTINGS).routine
    found = routine.schedule.next_after(datetime.fromisoformat(after).astimezone(UTC))
    assert found == datetime.fromisoformat(slot)


def test_a_recurrence_rule_is_read(parse):
    rule = "DTSTART:20260701T090000 RRULE:FREQ=DAILY".replace(" ", "\\n")
    assert parse(f'prompt: x\nrrule: "{rule}"\n').routine.schedule is not None


@pytest.mark.parametrize("second", ["every: 1h", "at: 2026-07-01 09:00", "rrule: x"])
def test_two_schedules_are_refused_with_both_lines(parse, second):
    found = parse(f"prompt: x\ncron: '0 9 * * *'\n{second}\n").problems[0]
    assert found.line == 3
    assert "beside `cron` in line 2" in found.message


def test_an_anchor_without_a_period_is_refused(parse):
    assert "there is no `every`" in only(parse("prompt: x\nanchor: 2026-01-01\n")).message


def test_a_wrong_anchor_is_told_beside_a_wrong_period(parse):
    problems = parse("prompt: x\nevery: 30s\nanchor: tomorrow\n").problems
    assert [problem.key for problem in problems] == ["every", "anchor"]


def test_a_wrong_expression_in_a_list_is_named_at_its_own_place(parse):
    found = only(parse("prompt: x\ncron:\n  - '0 9 * * *'\n  - '99 9 * * *'\n"))
    assert (found.line, found.column, found.key) == (4, 5, "cron")
    assert found.message.startswith("cron: 99 9 * * *   ")


def test_a_schedule_with_nothing_left_to_come_is_loaded(parse):
    routine = parse("prompt: x\nat: 2001-01-01 09:00\n").routine
    assert routine.schedule.next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None


# BR-37: zone names.
@pytest.mark.parametrize("zone", ["Europe/Berlin", "US/Eastern", "Asia/Calcutta", "Etc/GMT+5"])
def test_a_zone_and_its_aliases_are_taken(parse, zone):
    assert parse(f"prompt: x\ntz: {zone}\n").routine.zone == zone


@pytest.mark.parametrize(
    "zone",
    ["UTC+8", "america/new_york", '""', "../../etc/passwd", "localtime", "Factory", "no", "12:30"],
)
def test_what_is_no_zone_is_refused_and_never_becomes_utc(parse, zone):
    found = only(parse(f"prompt: x\ntz: {zone}\ncron: '0 9 * * *'\n"))
    assert (found.line, found.column, found.key) == (2, 5, "tz")


# BR-36: another zone is another definition, and so another schedule.
def test_another_zone_of_the_workspace_changes_the_definition(parse):
    text = "prompt: x\ncron: '30 14 * * *'\n"
    before = parse(text, settings=WorkspaceSettings(tz="UTC")).routine
    after = parse(text, settings=WorkspaceSettings(tz="Asia/Shanghai")).routine
    assert before.digest() != after.digest()
    assert before.schedule.spec() != after.schedule.spec()
    three = datetime(2026, 7, 1, 3, tzinfo=UTC)
    assert after.schedule.next_after(three) == datetime(2026, 7, 1, 6, 30, tzinfo=UTC)


# BR-44: words that YAML would have guessed about.
@pytest.mark.parametrize("word", ["no", "on", "010", "2026-11-01", "12:30", "5", "1e3"])
def test_a_prompt_is_the_text_that_was_written(parse, word):
    assert parse(f"prompt: {word}\ndescription: {word}\n").routine.prompt == word


@pytest.mark.parametrize("line", ["timeout: 1:30", "at: 12:30", "at: 08:30", "on: x", "name: no"])
def test_a_word_with_another_meaning_elsewhere_is_refused_as_it_was_written(parse, line):
    key, _, value = line.partition(": ")
    found = only(parse(f"prompt: x\n{line}\n"))
    assert found.line == 2
    assert (value if key in {"timeout", "at"} else key) in found.message


@pytest.mark.parametrize("name", ["no", "on", "010", "08", "false", "null", "2026-11-01"])
def test_a_routine_is_called_what_its_file_is_called(folder, name):
    folder.routine(name)
    assert folder.load().names == (name,)


@pytest.mark.parametrize("key", ["timeout", "start_within", "every"])
def test_a_bare_number_is_asked_for_its_unit(parse, key):
    assert only(parse(f"prompt: x\n{key}: 90\n")).cure == 'write "90s" or "90m"'


@pytest.mark.parametrize("number", ["010", "1_000", "1e3", "0x10", "'5'", "5.0", "-1", "true"])
def test_a_number_that_programs_disagree_on_is_refused(parse, number):
    found = only(parse(f"prompt: x\nsession_turns: {number}\n"))
    assert "expected a whole number of at least 1" in found.message


# --- prompts ---


def test_a_prompt_is_never_a_template(parse):
    text = "Do {session} and $HOME and {{x}} and %s `date`\n"
    assert parse(f"prompt: |\n  {text}").routine.prompt == text


def test_a_prompt_with_windows_line_ends_holds_lf_only(parse):
    text = "prompt: |\r\n  one\r\n  two\r\n"
    assert parse(text).routine.prompt == "one\ntwo\n"
    assert parse(b"\xef\xbb\xbf" + text.encode()).routine.prompt == "one\ntwo\n"


def test_the_same_file_in_other_line_ends_is_the_same_definition(parse):
    plain = "prompt: |\n  one\n  two\ncron: '0 9 * * *'\n"
    windows = b"\xef\xbb\xbf" + plain.replace("\n", "\r\n").encode()
    assert parse(windows).routine.digest() == parse(plain).routine.digest()


@pytest.mark.parametrize("tail", ["#now", "#12 and more", "look #12"])
def test_a_prompt_whose_end_would_be_lost_as_a_comment_is_refused(parse, tail):
    found = only(parse(f"prompt: do it {tail}\n"))
    assert "for a comment" in found.message
    assert found.cure == f'prompt: "do it {tail}"'


def test_a_comment_after_a_prompt_is_remarked(parse):
    definition = parse("prompt: do it  # each day\n")
    assert definition.routine.prompt == "do it"
    assert "'# each day' is a comment" in definition.remarks[0].message
    assert parse("prompt: 'do it'  # each day\n").remarks == ()


@pytest.mark.parametrize("text", ["prompt:\n", "prompt: ''\n", "prompt: ' '\n", "prompt: |\n\n"])
def test_an_empty_prompt_is_refused(parse, text):
    assert only(parse(text)).key == "prompt"


def test_a_prompt_has_at_most_16_mib(parse):
    size = 16 * 2**20
    assert len(parse(f"prompt: {'x' * size}\n").routine.prompt) == size
    assert "larger than 16 MiB" in only(parse(f"prompt: {'x' * (size + 1)}\n")).message


def test_a_prompt_that_yaml_took_for_brackets_is_shown_in_quotes(parse):
    assert only(parse("prompt: {name}\n")).cure == 'prompt: "{name}"'
    assert only(parse("prompt: [urgent]\n")).cure == 'prompt: "[urgent]"'


def test_a_prompt_is_required(parse):
    found = only(parse("cron: '@daily'\n"))
    assert (found.key, found.message) == ("prompt", "`prompt` is missing")
    assert "prompt_file" in found.cure


def test_a_misspelt_prompt_is_one_problem_and_not_two(parse):
    found = only(parse("promt: x\n"))
    assert (found.message, found.cure) == ("unknown key 'promt'", "did you mean 'prompt'?")


# --- prompt_file ---


def prompt_file(folder, content, text="prompt_file: prompts/a.md\n"):
    folder.write("prompts/a.md", content)
    path = folder.routine("a", text)
    return read_routine_file(path, "a", root=folder.path, settings=WorkspaceSettings())


def test_a_prompt_file_is_part_of_the_definition(folder):
    one = prompt_file(folder, "one\n").routine
    two = prompt_file(folder, "two\n").routine
    assert (one.prompt, two.prompt) == ("one\n", "two\n")
    assert one.digest() != two.digest()


def test_a_prompt_file_reads_like_a_prompt(folder):
    definition = prompt_file(folder, b"\xef\xbb\xbfone\r\ntwo\rthree")
    assert definition.routine.prompt == "one\ntwo\nthree"
    assert definition.sources == (folder.file("prompts/a.md"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the prompt is empty"),
        (b"caf\xe9", "line 1: the byte 0xE9 is not UTF-8"),
        ("x".encode("utf-16"), "UTF-16"),
        (b"a\x00b", "NUL"),
        (b"x" * (16 * 2**20 + 1), "larger than 16 MiB"),
    ],
)
def test_a_prompt_file_that_holds_no_prompt_is_a_problem_of_the_routine(folder, content, message):
    found = only(prompt_file(folder, content))
    assert message in found.message
    assert (found.path, found.line, found.key) == ("routines/a.yaml", 1, "prompt_file")


def test_a_missing_prompt_file_says_where_it_was_looked_for(parse):
    definition = parse("prompt_file: prompts/none.md\n")
    found = only(definition)
    assert "prompts/none.md   can't be read: no such file or directory (ENOENT)" in found.message
    assert "/ws" in found.cure
    assert definition.sources == ("/ws/prompts/none.md",)


def test_a_pipe_in_place_of_a_file_holds_nothing_up(folder):
    os.mkfifo(folder.file("pipe"))
    found = only(prompt_file(folder, "x", "prompt_file: pipe\n"))
    assert "not a regular file" in found.message


def test_a_prompt_and_a_prompt_file_are_refused(folder):
    found = only(prompt_file(folder, "x", "prompt: x\nprompt_file: prompts/a.md\n"))
    assert "beside `prompt` in line 1" in found.message


# --- commands, variables, sessions ---


@pytest.mark.parametrize(
    ("written", "cure"),
    [
        ("test -f x", "only_if: [test, -f, x]"),
        ("git diff --quiet 'a b'", 'only_if: [git, diff, --quiet, "a b"]'),
        (
            "test -f x && make",
            'no shell is used; if you need one: only_if: [sh, -c, "test -f x && make"]',
        ),
    ],
)
def test_a_command_written_as_one_text_is_shown_as_a_list(parse, written, cure):
    found = only(parse(f"prompt: x\nonly_if: {written}\n"))
    assert found.cure == cure
    line = cure.partition(": only_if")[2] and "only_if" + cure.partition(": only_if")[2]
    assert parse(f"prompt: x\n{line or cure}\n").problems == ()


@pytest.mark.parametrize("name", ["ROUTINES_SLOT", "routines_root", "A-B", "1A", "A=B", ""])
def test_a_variable_that_may_not_be_set_is_refused(parse, name):
    found = only(parse(f'prompt: x\nenv:\n  "{name}": y\n'))
    assert found.line == 3
    assert found.key.startswith("env.")


def test_a_variable_without_a_value_is_refused(parse):
    assert only(parse("prompt: x\nenv:\n  A:\n")).key == "env.A"


@pytest.mark.parametrize(
    "word", ["stable", "fresh", "named:shop", "named:My shop: 2", "named:日報"]
)
def test_a_session_word_is_taken(parse, word):
    assert parse(f'prompt: x\nsession: "{word}"\n').routine.session == word


@pytest.mark.parametrize(
    ("word", "cure"),
    [
        ("stabel", "did you mean 'stable'?"),
        ("Fresh", "did you mean 'fresh'?"),
        ("main", "for a conversation of that name write named:main"),
        ("named:", "1 to 100 printable characters, no space around them"),
        ("named: x", "1 to 100 printable characters, no space around them"),
        (f"named:{'x' * 101}", "1 to 100 printable characters, no space around them"),
    ],
)
def test_another_session_word_is_refused_with_the_one_meant(parse, word, cure):
    found = only(parse(f'prompt: x\nsession: "{word}"\n'))
    assert found.cure == cure


@pytest.mark.parametrize(
    "word", ["forbid", "replace", "allow", "queue", "cancel", "Forbid", "drop"]
)
def test_overlap_words_of_other_tools_are_refused_with_ours(parse, word):
    found = only(parse(f"prompt: x\noverlap: {word}\n"))
    assert "expected skip, buffer-one or supersede" in found.message
    assert any(ours in found.cure for ours in ("skip", "buffer-one", "supersede", "one turn"))


# --- agents and paths ---


def test_an_unknown_agent_names_the_near_one(parse):
    found = only(parse("prompt: x\nagent: claud\n", settings=SETTINGS))
    assert found.cure == "did you mean 'claude'?"


def test_a_preset_needs_no_entry(parse):
    assert parse("prompt: x\nagent: claude-code\n", settings=SETTINGS).problems == ()
    found = only(parse("prompt: x\nagent: claude-cod\n", settings=SETTINGS))
    assert found.cure == "did you mean 'claude-code'?"


@pytest.mark.parametrize(
    ("written", "path"),
    [("~", "~"), ("~/x/../y", "~/y"), ("/abs//x", "/abs/x"), ("a/../b", "/ws/b"), (".", "/ws")],
)
def test_a_path_is_counted_from_the_root_and_a_tilde_is_the_home_folder(parse, written, path):
    routine = parse(f"prompt: x\ncwd: {written}\n").routine
    assert routine.cwd == os.path.normpath(os.path.expanduser(path))


@pytest.mark.parametrize("name", ["wake", "Job", " x", "x.", "a/b", "a:b", "x" * 101])
def test_a_name_that_no_routine_may_have_is_a_problem_of_its_file(parse, name):
    definition = parse("prompt: x\n", name=name)
    found = only(definition)
    assert (found.path, found.line) == (f"routines/{name}.yaml", None)


def test_a_file_that_cannot_be_read_names_the_error(folder):
    path = folder.routine("a")
    os.remove(path)
    os.symlink("nowhere.yaml", path)
    found = only(folder_definition(folder, path))
    assert found.message == "can't be read: no such file or directory (ENOENT)"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_names_the_error(folder):
    path = folder.routine("a")
    os.chmod(path, stat.S_IWUSR)
    found = only(folder_definition(folder, path))
    assert found.message == "can't be read: permission denied (EACCES)"


def folder_definition(folder, path):
    return read_routine_file(path, "a", root=folder.path, settings=WorkspaceSettings())
