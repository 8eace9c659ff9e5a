"""An agent that is a command: every way in which it can be given a turn, end, or not begin."""

import errno
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from routines.agents import starting
from routines.agents.base import Usage
from routines.agents.command import run_command
from routines.agents.command_words import command_words
from routines.agents.environment import environment
from routines.agents.identity import process_identity
from routines.agents.process_table import leftovers, process_table
from routines.domain.agent import OutputFormat, PromptBy, Signs
from routines.domain.outcome import Outcome, Reason
from tests.agents.stubs import HALF_AN_HOUR, LimitWhen, eventually, make_turn, spec_of

ALIVE = {"timeout": timedelta(seconds=60), "grace": timedelta(seconds=20)}


@pytest.fixture
def run(turn, env, clock, tmp_path):
    """Run words as the agent's command; `turn`, `spec` and any argument can be changed."""

    def call(*words, turn=turn, spec=None, **changes):
        arguments = {"cwd": str(tmp_path), "env": env, "folder": None, "clock": clock, **ALIVE}
        arguments |= {key: changes.pop(key) for key in [*changes] if key in _RUN_KEYS}
        return run_command(spec or spec_of(*words, **changes), turn, **arguments)

    return call


@pytest.fixture
def limit(tmp_path):
    """Arguments by which the limit passes once the agent has made the file `ready`."""
    return {"timeout": HALF_AN_HOUR, "clock": LimitWhen(tmp_path / "ready")}


_RUN_KEYS = [
    "cwd",
    "env",
    "folder",
    "timeout",
    "grace",
    "args",
    "stop_requested",
    "on_native_session",
]
_RUN_KEYS += ["clock"]
# `model` is both a key of an entry and an argument: tests that need it build their own spec.


def verdict(result):
    return result.outcome, result.reason, result.detail


# The prompt -----------------------------------------------------------------------------------


PROMPTS = {
    "plain": "say hello",
    "empty": "",
    "no line end, many lines": "a\n\nb\r\nc",
    "placeholders are text": "{session} {prompt} {native_session} {} {{x}} %s $HOME `id` $(id)",
    "quotes and backslashes": '"it\'s" \\n \\',
    "every script": "äöü € 漢字 🙂 \u202e\u2028 e\u0301",
    "127 KiB": "x" * (127 * 1024),
}
LONG_PROMPTS = {
    "129 KiB": "ä" * (129 * 512),
    "3 MB": "0123456789" * 300_000,
    "NUL": "a\0b",
}


@pytest.mark.parametrize(
    "prompt", [*PROMPTS.values(), *LONG_PROMPTS.values()], ids=[*PROMPTS, *LONG_PROMPTS]
)
def test_prompt_reaches_stdin_exactly(run, stub, turn, tmp_path, prompt):
    agent = stub("open('got', 'wb').write(sys.stdin.buffer.read()); print('read')")

    result = run(agent, turn=make_turn(key=turn.key, prompt=prompt))

    assert result.outcome is Outcome.COMPLETED
    assert (tmp_path / "got").read_bytes() == prompt.encode()


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_prompt_reaches_an_argument_exactly(run, stub, turn, tmp_path, prompt):
    agent = stub("open('got', 'wb').write(os.fsencode(sys.argv[2])); print(len(sys.argv))")
    spec = spec_of(agent, "-p", "{prompt}", prompt_by=PromptBy.ARGUMENT)

    result = run(spec=spec, turn=make_turn(key=turn.key, prompt=prompt))

    assert result.reply.text == "3\n"
    assert (tmp_path / "got").read_bytes() == prompt.encode()


def test_prompt_is_utf_8_whatever_the_locale(tmp_path, stub):
    agent = stub("open('got', 'wb').write(os.environb[b'WORD'] + b'|' + os.fsencode(sys.argv[1]))")
    code = f"""
import sys
from datetime import timedelta
from routines.agents.command import run_command
from routines.domain.agent import PromptBy
from tests.agents.stubs import *
run_command(
    spec_of({agent!r}, "{{prompt}}", prompt_by=PromptBy.ARGUMENT),
    make_turn(prompt="\\u00e4\\u20ac"),
    cwd={str(tmp_path)!r},
    env={{"PATH": "/usr/bin:/bin", "WORD": "\\u00f6"}},
    folder=None,
    clock=RealClock(),
    timeout=timedelta(seconds=60),
)
print(sys.getfilesystemencoding())
"""
    odd = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    done = subprocess.run([sys.executable, "-c", code], env=odd, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got").read_bytes() == "ö|ä€".encode()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems bound all arguments together")
@pytest.mark.parametrize("prompt", [LONG_PROMPTS["129 KiB"], LONG_PROMPTS["3 MB"], "x" * 131_072])
def test_prompt_too_long_for_an_argument_fails_before_anything_starts(
    run, stub, turn, tmp_path, prompt
):
    spec = spec_of(stub("open('ran', 'w')"), "{prompt}", prompt_by=PromptBy.ARGUMENT)

    result = run(spec=spec, turn=make_turn(key=turn.key, prompt=prompt))

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.AGENT)
    assert result.detail.startswith("prompt too long for one argument: ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the bound is Linux's")
def test_the_longest_prompt_that_fits_an_argument_is_given(run, stub, turn):
    spec = spec_of(stub("print(len(sys.argv[1]))"), "{prompt}", prompt_by=PromptBy.ARGUMENT)

    assert (
        run(spec=spec, turn=make_turn(key=turn.key, prompt="x" * 131_071)).reply.text == "131071\n"
    )


@pytest.mark.parametrize(
    ("prompt", "prompt_by", "says"),
    [
        ("a\0b", PromptBy.ARGUMENT, "NUL"),
        ("a\ud800b", PromptBy.ARGUMENT, "half a character"),
        ("a\ud800b", PromptBy.STDIN, "the prompt holds half a character at 1"),
    ],
)
def test_prompt_that_cannot_be_given_fails_saying_why(
    run, stub, turn, tmp_path, prompt, prompt_by, says
):
    spec = spec_of(stub("open('ran', 'w')"), "{prompt}", prompt_by=prompt_by)

    result = run(spec=spec, turn=make_turn(key=turn.key, prompt=prompt))

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.AGENT)
    assert says in result.detail
    assert not (tmp_path / "ran").exists()


def test_agent_that_does_not_read_a_large_prompt_is_judged_by_its_exit(run, stub, turn):
    large = make_turn(key=turn.key, prompt=LONG_PROMPTS["3 MB"])

    assert run(stub("print('did not read')"), turn=large).outcome is Outcome.COMPLETED
    assert run(stub("sys.exit(4)"), turn=large).exit_code == 4


def test_agent_that_answers_before_it_has_read_all_is_no_deadlock(run, stub, turn):
    agent = stub("print('x' * 1_000_000); print(len(sys.stdin.read()))")

    result = run(agent, turn=make_turn(key=turn.key, prompt=LONG_PROMPTS["3 MB"]))

    assert result.reply.text.endswith("\n3000000\n")


def test_stdin_is_never_left_open_for_a_question(run, stub):
    agent = stub("sys.stdin.read(); print(repr(sys.stdin.read(1)))")

    assert run(agent).reply.text == "''\n"


def test_with_the_prompt_as_an_argument_stdin_is_empty_and_no_terminal_is_there(run, stub):
    agent = stub(
        "print(repr(sys.stdin.read()), os.isatty(0), os.getsid(0) == os.getpid())\n"
        "try: open('/dev/tty')\nexcept OSError: print('no terminal')\n"
    )
    spec = spec_of(agent, "{prompt}", prompt_by=PromptBy.ARGUMENT)

    assert run(spec=spec).reply.text == "'' False True\nno terminal\n"


# The words ------------------------------------------------------------------------------------


def test_placeholders_are_filled_in_once():
    spec = spec_of(
        "{session}|{session_uuid}|{native_session}|{turn}", "{prompt}", "{unknown}", "{{model}}"
    )
    turn = make_turn(first=False, native_session="{prompt}", prompt="{session}")

    assert command_words(spec, turn, args=["{prompt}"], model="m") == [
        f"routine:digest|{turn.session_uuid}|{{prompt}}|{turn.key}",
        "{session}",
        "{unknown}",
        "{m}",
        "{prompt}",
    ]


def test_model_and_args_come_after_the_command_in_this_order():
    from dataclasses import replace

    spec = replace(spec_of("agent", "-p"), model=("--model", "{model}"))

    assert command_words(spec, make_turn(), args=["-v"], model="opus") == [
        "agent",
        "-p",
        "--model",
        "opus",
        "-v",
    ]
    assert command_words(spec, make_turn(), args=["-v"]) == ["agent", "-p", "-v"]


def test_first_turn_of_an_epoch_has_words_of_its_own():
    spec = spec_of(
        "a", "--resume", "{native_session}", first=("a", "--session-id", "{session_uuid}")
    )

    assert command_words(spec, make_turn())[1] == "--session-id"
    assert command_words(spec, make_turn(first=False, native_session="n1"))[1:] == [
        "--resume",
        "n1",
    ]


def test_a_first_turn_that_was_killed_is_resumed_by_the_id_that_we_chose():
    spec = spec_of(
        "a", "--resume", "{native_session}", first=("a", "--session-id", "{session_uuid}")
    )
    turn = make_turn(first=False)

    assert command_words(spec, turn)[1:] == ["--resume", turn.session_uuid]


def test_an_id_that_only_the_program_knows_and_never_said_is_a_lost_session(run, turn):
    result = run("sh", "{native_session}", turn=make_turn(key=turn.key, first=False))

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.SESSION_LOST)


def test_no_shell_ever_sees_a_word(run, tmp_path):
    result = run("printf", "%s|", "$HOME `touch x`", "; touch x", "*", "~", "a b")

    assert result.reply.text == "$HOME `touch x`|; touch x|*|~|a b|"
    assert os.listdir(tmp_path) == []


# How it ends ----------------------------------------------------------------------------------


def test_exit_0_is_completed_with_stdout_as_the_reply(run):
    result = run("sh", "-c", "echo noise >&2; echo hello")

    assert verdict(result) == (Outcome.COMPLETED, None, "")
    assert (result.reply.text, result.exit_code, result.signal) == ("hello\n", 0, None)
    assert result.reply.warnings == ()


@pytest.mark.parametrize("printed", ["", "'\\n \\t\\n'"])
def test_exit_0_with_an_empty_reply_is_not_clean(run, stub, printed):
    result = run(stub(f"sys.stdout.write({printed or repr('')})"))

    assert result.outcome is Outcome.COMPLETED
    assert result.reply.warnings == ("empty-reply",)


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("exit 1", "exit 1"),
        ("echo out; echo 'first\nlast' >&2; echo >&2; exit 1", "exit 1: last"),
        ("echo 'all on\nstdout'; exit 2", "exit 2: stdout"),
        ("printf 'red \\033[31m' >&2; exit 3", "exit 3: red \\x1b[31m"),
    ],
)
def test_other_exits_are_failed_with_the_last_words(run, script, detail):
    result = run("sh", "-c", script)

    assert verdict(result) == (Outcome.FAILED, Reason.EXIT, detail)
    assert result.exit_code == int(detail[5])


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV"])
def test_death_by_a_signal_is_named(run, name):
    result = run("sh", "-c", f"echo why >&2; kill -{name} $$")

    assert verdict(result) == (Outcome.FAILED, Reason.SIGNAL, f"ended by SIG{name}: why")
    assert (result.exit_code, result.signal) == (None, getattr(signal, f"SIG{name}"))


def test_busy_exit_never_started(run):
    result = run("sh", "-c", "echo 'in use by pid 4' >&2; exit 75")

    assert verdict(result) == (None, Reason.BUSY, "exit 75: in use by pid 4")


def test_busy_text_on_stderr_counts_only_beside_a_failure(run):
    busy = {"busy": Signs(stderr=("active writer",))}

    assert (
        run("sh", "-c", "echo 'an active writer exists' >&2; exit 1", **busy).reason is Reason.BUSY
    )
    assert (
        run("sh", "-c", "echo 'an active writer' >&2; echo ok", **busy).outcome is Outcome.COMPLETED
    )
    assert run("sh", "-c", "echo 'Active Writer' >&2; exit 1", **busy).reason is Reason.EXIT
    assert run("sh", "-c", "echo 'active writer'; exit 1", **busy).reason is Reason.EXIT
    assert run("sh", "-c", "echo 'an active writer' >&2", **busy).outcome is Outcome.COMPLETED


@pytest.mark.parametrize("keys", [{}, {"busy": Signs(stderr=("no",))}])
def test_busy_after_output_is_a_failure_that_counts_as_started(run, keys):
    result = run("sh", "-c", "echo working; echo no >&2; exit 75", **keys)

    assert verdict(result) == (Outcome.FAILED, Reason.EXIT, "exit 75: no")


def test_entry_says_which_exits_are_busy(run):
    assert run("sh", "-c", "exit 75", busy=Signs(exit=(9,))).reason is Reason.EXIT
    assert run("sh", "-c", "exit 9", busy=Signs(exit=(9,))).reason is Reason.BUSY


# What can't be started --------------------------------------------------------------------------


def test_missing_command_is_not_found_and_shows_where_was_looked(run):
    result = run("no-such-agent", env={"PATH": "/usr/bin:/nowhere"})

    assert verdict(result) == (
        Outcome.FAILED,
        Reason.NOT_FOUND,
        "command not found: no-such-agent, PATH=/usr/bin:/nowhere",
    )


def test_command_is_looked_for_in_the_path_of_its_own_environment(run, stub, tmp_path):
    stub("print('found')", name="my-agent")

    assert run("my-agent", env={"PATH": str(tmp_path)}).reply.text == "found\n"
    assert run("./my-agent").reply.text == "found\n"
    assert run("my-agent").reason is Reason.NOT_FOUND


def test_file_that_is_not_executable_is_named(run, tmp_path):
    (tmp_path / "agent").write_text("#!/bin/sh\n")

    result = run("agent", env={"PATH": str(tmp_path)})

    assert verdict(result) == (
        Outcome.FAILED,
        Reason.NOT_FOUND,
        f"command not executable: {tmp_path}/agent",
    )


def test_missing_interpreter_and_missing_first_line_are_named(run, stub):
    lost = run(stub("#!/no/such/interpreter\n", name="lost"))
    bare = run(stub("#!", name="bare"))

    assert lost.reason is bare.reason is Reason.NOT_FOUND
    assert "the interpreter that" in lost.detail
    assert "command not executable" in bare.detail


@pytest.mark.parametrize("word", ["", "/", "."])
def test_a_folder_or_nothing_is_no_command(run, word):
    assert run(word).reason is Reason.NOT_FOUND


def test_working_directory_that_is_not_there_is_named(run, tmp_path):
    result = run("true", cwd=str(tmp_path / "gone"))

    assert verdict(result) == (
        Outcome.FAILED,
        Reason.NOT_FOUND,
        f"working directory not found: {tmp_path}/gone",
    )


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ETXTBSY])
def test_a_machine_without_room_never_started_it(run, monkeypatch, number):
    def no_room(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(starting, "start_program", no_room)

    result = run("true")

    assert (result.outcome, result.reason) == (None, Reason.NOT_STARTED)


def test_words_that_are_too_long_together_fail_before_anything_starts(run):
    result = run(
        "true", env={"PATH": os.environ["PATH"]} | {f"V{n}": "x" * 100_000 for n in range(100)}
    )

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.AGENT)
    assert "too long" in result.detail


# Where it runs ----------------------------------------------------------------------------------


def test_it_runs_in_its_folder_with_its_environment_and_nothing_else(run, tmp_path):
    result = run("/usr/bin/env", env={"ONLY": "this"})

    assert sorted(result.reply.text.split()) == ["ONLY=this", f"PWD={tmp_path}"]
    assert run("pwd").reply.text == f"{tmp_path}\n"


def test_a_surrounding_agent_is_not_seen(turn, state, tmp_path, run):
    outer = {**os.environ, "CLAUDECODE": "1", "CODEX_THREAD_ID": "t", "ROUTINES_TURN": "outer"}

    made = environment(outer, turn, root=str(tmp_path), state=state)
    lines = run("env", env=made).reply.text.splitlines()

    assert f"ROUTINES_TURN={turn.key}" in lines
    assert not [line for line in lines if line.startswith(("CLAUDECODE", "CODEX_THREAD_ID"))]


def test_no_descriptor_but_the_three_is_inherited(run, tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        shown = run("sh", "-c", f"[ -e /dev/fd/{fd} ] && echo inherited || echo closed")
    finally:
        os.close(fd)

    assert shown.reply.text == "closed\n"


def test_signals_that_we_ignore_are_felt_by_the_agent(run, stub):
    agent = stub(
        "print([signal.getsignal(s) is signal.SIG_IGN for s in (2, 15, 1, 3)],"
        " signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    before = [signal.signal(number, signal.SIG_IGN) for number in (2, 15, 1, 3)]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        result = run(agent)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        for number, handler in zip((2, 15, 1, 3), before, strict=True):
            signal.signal(number, handler)

    assert result.reply.text == "[False, False, False, False] set()\n"


# Output of any size -----------------------------------------------------------------------------


def test_output_is_kept_in_the_folder_and_bounded(run, stub, tmp_path):
    agent = stub(
        "sys.stdout.write('first\\n' + 'x' * 50_000_000 + '\\nlast\\n'); print('e', file=sys.stderr)"
    )

    result = run(agent, folder=str(tmp_path / "out"))

    kept = (tmp_path / "out" / "stdout.log").read_bytes()
    assert kept.startswith(b"first\nxx")
    assert kept.endswith(b"xx\nlast\n")
    assert b"48,951,436 bytes were dropped" in kept
    assert result.reply.text == kept.decode()
    assert result.reply.warnings == ("truncated",)
    assert (tmp_path / "out" / "stderr.log").read_bytes() == b"e\n"


def test_flood_on_stderr_alone_blocks_nothing_and_its_last_words_are_kept(run, stub):
    agent = stub(
        "for _ in range(300): os.write(2, b'z' * 100_000)\nos.write(2, b'\\nthe end\\n')\nsys.exit(1)"
    )

    assert run(agent).detail == "exit 1: the end"


def test_bytes_that_are_no_text_are_survived(run):
    result = run("printf", "a\\000b\\377c")

    assert result.reply.text == "a\0b\ufffdc"


def test_output_without_end_is_ended_at_the_limit(run, limit):
    result = run("sh", "-c", "yes | head -c 9000000; touch ready; exec yes", **limit)

    assert result.outcome is Outcome.TIMED_OUT
    assert result.reply.text.startswith("y\ny\n")
    assert "truncated" in result.reply.warnings


# JSON -------------------------------------------------------------------------------------------

READ = {
    "reply": "result",
    "native_session": "session_id",
    "failed": "is_error",
    "denied": "permission_denials",
    "cost": "usd",
    "cost_total": "total_cost_usd",
    "tokens": "usage",
    "tokens_total": "stats.tokens.0",
}
JSON = {"output": OutputFormat.JSON, "read": READ}
JSONL = {"output": OutputFormat.JSONL, "read": READ}


def printing(*events, exit_code=0):
    text = "".join(f"{e if isinstance(e, str) else json.dumps(e)}\n" for e in events)
    return ["sh", "-c", f'printf %s "$1"; exit {exit_code}', "sh", text]


def test_json_gives_reply_session_cost_and_tokens(run):
    told = []
    event = {
        "result": "done",
        "session_id": "n-1",
        "is_error": False,
        "permission_denials": [],
        "usd": 0.25,
        "total_cost_usd": 3,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 100,
            "other": "x",
        },
        "stats": {"tokens": [7]},
    }

    result = run(*printing(event), **JSON, on_native_session=told.append)

    assert verdict(result) == (Outcome.COMPLETED, None, "")
    assert (result.reply.text, result.reply.native_session, told) == ("done", "n-1", ["n-1"])
    assert result.reply.usage == Usage(usd=0.25, usd_total=3.0, tokens=115, tokens_total=7)
    assert result.reply.warnings == ()


@pytest.mark.parametrize(
    "text", ["", "\n", "not json", '{"result": "cut', '{"a": 1} {"b": 2}', "[" * 200_000]
)
def test_exit_0_with_bad_json_is_no_success(run, text):
    result = (
        run(*printing(text), **JSON)
        if len(text) < 1000
        else run("python3", "-c", "print('[' * 200_000)", **JSON)
    )

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.BAD_OUTPUT)


def test_failure_that_the_agent_declares_is_a_failure_despite_exit_0(run):
    event = {"is_error": True, "subtype": "success", "result": "Invalid key.\nPlease log in."}

    result = run(*printing(event), **JSON)

    assert verdict(result) == (Outcome.FAILED, Reason.AGENT, "Invalid key. Please log in.")
    assert result.reply.failed == "Invalid key. Please log in."


def test_declared_failure_beside_another_exit_gives_its_words(run):
    event = {"is_error": True, "result": "Please log in"}

    result = run(*printing(event, exit_code=1), **JSON)

    assert verdict(result) == (Outcome.FAILED, Reason.EXIT, "exit 1: Please log in")


@pytest.mark.parametrize(
    ("denied", "warning"),
    [
        (
            [{"tool_name": "Bash"}, {"tool_name": "Edit"}, {"tool_name": "Edit"}],
            "denied: Bash, Edit x2",
        ),
        (["Web\x1b[2J", 7, {"x": 1}], "denied: Web\\x1b[2J, a tool x2"),
        (
            [{"name": f"t{n}"} for n in range(22)],
            "denied: " + ", ".join(f"t{n}" for n in range(20)) + " and 2 more",
        ),
        ("Bash", "denied: Bash"),
        (3, "denied"),
        ({"a": 1}, "denied"),
    ],
)
def test_denied_tools_are_a_warning(run, denied, warning):
    result = run(*printing({"result": "x", "permission_denials": denied}), **JSON)

    assert result.outcome is Outcome.COMPLETED
    assert result.reply.warnings == (warning,)


@pytest.mark.parametrize("value", [[], 0, "", None, False, {}])
def test_nothing_denied_is_no_warning(run, value):
    assert run(*printing({"result": "x", "permission_denials": value}), **JSON).reply.warnings == ()


@pytest.mark.parametrize(
    "value", ["12", True, -1, 1e300, "NaN", [1], {}, {"input_tokens": "9"}, None]
)
def test_cost_and_tokens_that_are_no_plausible_number_are_as_if_not_said(run, value):
    event = json.dumps({"result": "x", "usd": value, "total_cost_usd": value, "usage": value})

    result = run(*printing(event.replace('"NaN"', "NaN")), **JSON)

    assert result.outcome is Outcome.COMPLETED
    assert result.reply.usage is None


@pytest.mark.parametrize(
    "value", ["", "-x", "a\nb", " a", "x" * 257, ["a"], True, 1.5, {"a": 1}, None]
)
def test_session_id_that_could_not_be_given_back_is_not_taken(run, value):
    told = []

    result = run(
        *printing({"result": "x", "session_id": value}), **JSON, on_native_session=told.append
    )

    assert (result.outcome, result.reply.native_session, told) == (Outcome.COMPLETED, None, [])


@pytest.mark.parametrize(
    ("value", "text"),
    [("text", "text"), ({"a": "ä"}, '{"a": "ä"}'), (7, "7"), (None, ""), (True, ""), ("", "")],
)
def test_reply_is_text_whatever_its_type(run, value, text):
    result = run(*printing({"result": value}), **JSON)

    assert result.reply.text == text
    assert result.reply.warnings == (() if text else ("empty-reply",))


def test_paths_lead_through_lists_from_either_end(run):
    event = [{"type": "start"}, {"type": "result", "text": "last"}]
    read = {"reply": "-1.text", "native_session": "5.x", "cost": "0.type.x"}

    assert run(*printing(event), output=OutputFormat.JSON, read=read).reply.text == "last"


def test_of_json_lines_the_last_that_carries_a_path_wins(run):
    events = [
        {"session_id": "n-1"},
        {"result": "draft", "usage": 5},
        "a notice that is no JSON",
        "[1, 2]",
        {"result": "final"},
        {"result": None, "usage": 9},
        {"other": {"result": "deeper"}},
    ]

    result = run(*printing(*events), **JSONL)

    assert verdict(result) == (Outcome.COMPLETED, None, "")
    assert (result.reply.text, result.reply.native_session) == ("final", "n-1")
    assert result.reply.usage == Usage(tokens=9)


def test_native_session_is_told_while_the_agent_still_works(run, stub, tmp_path):
    agent = stub(
        'print(\'{"session_id": "n-1"}\')\n'
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        'print(\'{"session_id": "n-1", "result": "done"}\')'
    )
    told = []

    def tell(native):
        told.append(native)
        (tmp_path / "go").write_text("")

    result = run(agent, **JSONL, on_native_session=tell)

    assert (result.reply.text, told) == ("done", ["n-1"])


@pytest.mark.parametrize("text", ["", "no json at all\nnone\n", "7\n"])
def test_json_lines_without_an_event_are_bad_output(run, text):
    assert run("printf", "%s", text, **JSONL).reason is Reason.BAD_OUTPUT


def test_a_torn_last_event_that_held_the_reply_is_bad_output(run):
    assert (
        run(*printing({"session_id": "n"}, '{"result": "cu'), **JSONL).reason is Reason.BAD_OUTPUT
    )


def test_one_event_of_50_mb_is_passed_over_and_said(run, stub):
    agent = stub(
        'print(\'{"result": "before"}\')\n'
        "sys.stdout.write('{\"result\": \"' + 'x' * 50_000_000 + '\"}\\n')\n"
        'print(\'{"session_id": "n-1"}\')'
    )

    result = run(agent, **JSONL)

    assert (result.reply.text, result.reply.native_session) == ("before", "n-1")
    assert result.reply.warnings == ("truncated",)


def test_json_document_that_is_too_large_is_bad_output(run, stub):
    result = run(stub("print('[' + '1,' * 6_000_000 + '1]')"), **JSON)

    assert verdict(result) == (
        Outcome.FAILED,
        Reason.BAD_OUTPUT,
        "stdout is more than 8 MiB of JSON",
    )


def test_answer_from_another_conversation_is_never_adopted(run, turn):
    told = []
    later = make_turn(key=turn.key, first=False, native_session="mine")
    words = [*printing({"session_id": "other", "result": "x"}), "{native_session}"]

    result = run(*words, turn=later, **JSON, on_native_session=told.append)

    assert verdict(result) == (
        Outcome.FAILED,
        Reason.SESSION_CHANGED,
        "asked for session mine, and it answered in other",
    )
    assert told == []


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ("--evil", "it named an id that can't be used: --evil"),
        ("a\x1b[2J", r"it named an id that can't be used: a\x1b[2J"),
        (["a"], 'it named an id that can\'t be used: ["a"]'),
        ("n-1", ""),
        (None, ""),
    ],
)
def test_first_turn_says_that_it_named_an_id_that_cannot_be_used(run, value, detail):
    result = run(*printing({"session_id": value, "result": "x"}), **JSON)

    assert verdict(result) == (Outcome.COMPLETED, None, detail)


@pytest.mark.parametrize("continuations", [False, True])
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("--dangerously-skip-permissions", "--dangerously-skip-permissions"),
        ("a\nb\x1b[2J", r"a\nb\x1b[2J"),
        (["a"], '["a"]'),
        ({"a": 1}, '{"a": 1}'),
        (True, "true"),
        (1.5, "1.5"),
        (" ", "blanks"),
        ("x" * 100_000, "x" * 77 + "..."),
    ],
)
def test_answer_from_a_conversation_that_could_not_be_given_back_is_another_one(
    run, turn, value, shown, continuations
):
    told = []
    later = make_turn(key=turn.key, first=False, native_session="mine")
    words = [*printing({"session_id": value, "result": "x"}), "{native_session}"]

    result = run(
        *words, turn=later, **JSON, continuations=continuations, on_native_session=told.append
    )

    assert verdict(result) == (
        Outcome.FAILED,
        Reason.SESSION_CHANGED,
        f"asked for session mine, and it answered in {shown}, an id that can't be used",
    )
    assert told == []


@pytest.mark.parametrize("value", [None, "", False])
def test_answer_that_names_no_conversation_is_of_the_one_that_was_asked_for(run, turn, value):
    later = make_turn(key=turn.key, first=False, native_session="mine")
    words = [*printing({"session_id": value, "result": "x"}), "{native_session}"]

    assert run(*words, turn=later, **JSON).outcome is Outcome.COMPLETED


def test_answer_from_the_conversation_that_was_asked_for_is_fine(run, turn):
    later = make_turn(key=turn.key, first=False, native_session="mine")
    words = [*printing({"session_id": "mine", "result": "x"}), "{native_session}"]

    assert run(*words, turn=later, **JSON).outcome is Outcome.COMPLETED


# The end of the leader, and of the tree -----------------------------------------------------------


def test_background_child_that_holds_stdout_does_not_hold_the_turn(run, state, turn):
    result = run("sh", "-c", "sleep 300 & echo line; exit 0")

    assert verdict(result) == (Outcome.COMPLETED, None, "")
    assert result.reply.text == "line\n"
    assert leftovers(state, turn.key) == []


def test_what_a_child_says_after_the_end_of_the_leader_is_no_part_of_the_reply(run):
    child = "trap 'echo late; exit' TERM; touch ready; while :; do sleep 0.05; done"

    result = run("sh", "-c", f"({child}) & while [ ! -e ready ]; do sleep 0.01; done; echo line")

    assert result.reply.text == "line\n"


def test_background_child_that_goes_on_printing_does_not_hold_the_turn(run):
    result = run("sh", "-c", "yes & echo line; exit 3")

    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 3)


@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM; touch ready; echo ready; while :; do sleep 1; done",
        "(trap '' TERM INT HUP; touch ready; echo ready; sleep 300) & wait; sleep 300",
        "setsid sh -c 'trap \"\" TERM; touch ready; echo ready; sleep 300' & sleep 300",
    ],
)
def test_at_the_limit_the_whole_tree_ends_also_what_ignores_term(run, limit, state, turn, script):
    result = run("sh", "-c", script, **limit | {"grace": timedelta(seconds=0.2)})

    assert (result.outcome, result.reason) == (Outcome.TIMED_OUT, Reason.TIMEOUT)
    assert result.reply.text == "ready\n"
    assert leftovers(state, turn.key) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it can't be found: docs say so")
def test_child_in_a_session_of_its_own_ends_with_the_turn(run, tmp_path):
    script = "import os; os.setsid(); open('pid', 'w').write(str(os.getpid())); import time; time.sleep(300)"
    agent = f'{sys.executable} -c "{script}" & while [ ! -s pid ]; do sleep 0.01; done; echo ok'

    assert run("sh", "-c", agent).reply.text == "ok\n"

    assert process_identity(int((tmp_path / "pid").read_text())) is None


def test_a_stopped_agent_is_ended_too(run):
    result = run("sh", "-c", "kill -STOP $$", timeout=timedelta(seconds=0.3))

    assert result.outcome is Outcome.TIMED_OUT
    assert result.signal == signal.SIGTERM


def test_stop_sequence_of_the_entry_is_followed(run, limit, stub, tmp_path):
    agent = stub(
        "def note(number, frame):\n    open('got', 'a').write(f'{number} ')\n"
        "for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, note)\n"
        "open('ready', 'w'); print('ready')\nwhile True: time.sleep(0.01)\n"
    )

    result = run(agent, stop=("INT", "TERM"), **limit | {"grace": timedelta(seconds=0.5)})

    assert (tmp_path / "got").read_text() == "2 15 "
    assert result.signal == signal.SIGKILL  # always last, also where the entry does not name it


def test_what_the_agent_says_at_its_end_is_kept_and_blocks_nothing(run, limit, stub):
    agent = stub(
        "def bye(*_):\n    sys.stdout.write('b' * 500_000 + 'bye'); sys.stdout.flush(); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, bye)\nopen('ready', 'w'); print('ready')\nwhile True: time.sleep(1)\n"
    )

    result = run(agent, **limit)

    assert (result.outcome, result.exit_code) == (Outcome.TIMED_OUT, 0)
    assert result.reply.text.endswith("bye")


def test_timed_out_turn_says_what_it_last_said(run, limit):
    result = run("sh", "-c", "echo 'retrying in 30 s' >&2; touch ready; sleep 300", **limit)

    assert result.detail == "ended at its limit of 30m: retrying in 30 s"


def test_limit_is_shown_whole_although_a_moment_of_it_went_by_before_the_start(run, limit):
    left = HALF_AN_HOUR - timedelta(milliseconds=1)
    result = run("sh", "-c", "touch ready; sleep 300", **limit | {"timeout": left})

    assert result.detail == "ended at its limit of 30m"


class WordOnce:
    """Answers *word* once the agent is ready, and then what comes after."""

    def __init__(self, ready, *words):
        self.ready, self.words, self.asked = ready, list(words), 0

    def __call__(self):
        self.asked += 1
        if not self.words or not self.ready():
            return None
        return self.words.pop(0) if len(self.words) > 1 else self.words[0]


@pytest.mark.parametrize(
    ("word", "outcome", "reason"),
    [
        ("cancel", Outcome.CANCELLED, Reason.PERSON),
        ("turn", Outcome.CANCELLED, Reason.TURN),
        ("purge", Outcome.CANCELLED, Reason.PURGE),
        ("supersede", Outcome.SUPERSEDED, None),
        ("stop", Outcome.INTERRUPTED, Reason.STOPPED),
        ("now", Outcome.INTERRUPTED, Reason.STOPPED),
    ],
)
def test_request_to_stop_ends_the_tree_and_says_so(
    run, tmp_path, state, turn, word, outcome, reason
):
    ask = WordOnce((tmp_path / "ready").exists, word)

    result = run("sh", "-c", "touch ready; sleep 300 & sleep 300", stop_requested=ask)

    assert (result.outcome, result.reason) == (outcome, reason)
    assert result.detail == "ended on request"
    assert leftovers(state, turn.key) == []


def test_second_request_does_not_wait_for_the_grace(run, stub, tmp_path):
    agent = stub(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('ready', 'w')\nwhile True: time.sleep(1)"
    )
    ask = WordOnce((tmp_path / "ready").exists, "stop", "now")

    # Twenty minutes: the test ends only if they are not waited for.
    result = run(agent, stop_requested=ask, grace=timedelta(minutes=20))

    assert (result.outcome, result.signal) == (Outcome.INTERRUPTED, signal.SIGKILL)


def test_agent_that_ended_by_itself_before_is_judged_by_how_it_did(run):
    def ask():
        # The request comes just as the agent ends.
        own = os.getpid()
        eventually(lambda: any(p.zombie for p in process_table().values() if p.parent == own))
        return "cancel"

    result = run("sh", "-c", "echo done", stop_requested=ask)

    assert verdict(result) == (Outcome.COMPLETED, None, "")
    assert result.reply.text == "done\n"


def test_limit_counts_the_time_that_the_machine_is_awake(run, clock):
    class Asleep:
        """The wall clock jumps by hours; the time awake does not."""

        now = staticmethod(lambda: clock.now() + timedelta(hours=9))
        awake = staticmethod(clock.awake)
        sleep = staticmethod(clock.sleep)

    assert run("sh", "-c", "sleep 0.05; echo ok", clock=Asleep()).outcome is Outcome.COMPLETED


def test_a_fault_of_ours_leaves_no_agent_behind(run, state, turn, tmp_path):
    def ask():
        if (tmp_path / "ready").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("sh", "-c", "touch ready; sleep 300", stop_requested=ask)

    assert leftovers(state, turn.key) == []


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="can't be told apart there")
def test_an_exit_code_that_got_lost_is_never_taken_for_success(run):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        result = run("sh", "-c", "exit 3")
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert (result.outcome, result.reason) == (Outcome.INTERRUPTED, Reason.OUTCOME_UNKNOWN)
    assert result.exit_code is None


def test_no_descriptor_is_left_open(run):
    run("true")
    before = sorted(os.listdir("/dev/fd"))

    for script in ("echo x", "exit 1", "sleep 300 & exit 0"):
        run("sh", "-c", script)
    run("no-such-agent")

    assert sorted(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("""echo '{"result": "half done"}'; exit 3""", "exit 3: half done"),
        ("""echo '{"result": "half"}'; echo 'no network' >&2; exit 3""", "exit 3: no network"),
        ("""echo '{"other": 1}'; exit 3""", "exit 3"),
        ("""echo '{"result": '; exit 3""", "exit 3"),
    ],
)
def test_what_failed_with_json_on_stdout_is_told_in_words(run, script, detail):
    """The braces are for programs: a person wants the reply in it, or what stderr says."""
    result = run("sh", "-c", script, output=OutputFormat.JSON, read={"reply": "result"})

    assert verdict(result) == (Outcome.FAILED, Reason.EXIT, detail)


# What an entry may say besides -------------------------------------------------------------------


LATER = {"first": False, "native_session": "n-1"}
RESUMING = ("--resume", "{native_session}")


def later(turn):
    return make_turn(key=turn.key, **LATER)


@pytest.mark.parametrize(
    ("script", "signs", "reason"),
    [
        # Exact, on stderr, beside a failure, and nothing was printed.
        ("echo 'x: gone for good' >&2; exit 1", {"lost": Signs(stderr=("gone",))}, "session-lost"),
        ("exit 9", {"lost": Signs(exit=(9,))}, "session-lost"),
        (
            "echo 'no network' >&2; exit 1",
            {"not_started": Signs(stderr=("no net",))},
            "not-started",
        ),
        ("echo 'in use' >&2; exit 1", {"busy": Signs(stderr=("in use",))}, "busy"),
        # Of several the conversation that is gone comes first: waiting would not help.
        (
            "echo 'gone, in use' >&2; exit 1",
            {"busy": Signs(stderr=("in use",)), "lost": Signs(stderr=("gone",))},
            "session-lost",
        ),
    ],
)
def test_a_sign_says_that_nothing_was_done(run, turn, script, signs, reason):
    result = run("sh", "-c", script, "sh", *RESUMING, first=("x", "y"), turn=later(turn), **signs)

    assert (result.outcome, result.reason) == (None, Reason(reason))
    assert result.detail.startswith("exit ")


@pytest.mark.parametrize(
    "script",
    [
        "echo gone; exit 1",
        "echo 'I am gone' ; echo gone >&2; exit 1",
        "echo gone >&2; exit 0",
        "echo Gone >&2; exit 1",
    ],
)
def test_what_only_looks_like_a_sign_is_none(run, turn, script):
    signs = {"lost": Signs(stderr=("gone",)), "not_started": Signs(stderr=("gone",))}
    result = run("sh", "-c", script, "sh", *RESUMING, first=("x", "y"), turn=later(turn), **signs)

    assert result.outcome is not None


def test_the_first_turn_of_a_conversation_can_not_lose_it(run, turn):
    lost = Signs(stderr=("gone",), exit=(9,))
    result = run("sh", "-c", "echo gone >&2; exit 9", lost=lost, turn=make_turn(key=turn.key))

    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.EXIT)


@pytest.mark.parametrize(
    ("event", "code", "never"),
    [
        ({"is_error": True, "why": "server is down"}, 0, True),
        ({"is_error": True, "why": "server is down"}, 1, True),
        ({"why": "server is down"}, 1, True),
        # Declared nothing, and exit 0; or said by the model.
        ({"why": "server is down"}, 0, False),
        ({"is_error": True, "why": "other", "result": "server is down"}, 1, False),
        ({"is_error": False, "result": "server is down"}, 0, False),
    ],
)
def test_a_sign_in_a_declared_failure_counts_and_in_a_reply_it_never_does(run, event, code, never):
    result = run(
        *printing(event, exit_code=code),
        output=OutputFormat.JSON,
        read={"reply": "result", "failed": "is_error", "error": "why"},
        not_started=Signs(error=("server is down",)),
    )

    assert (result.outcome is None) == never
    if never:
        assert result.detail == f"exit {code}: server is down"


@pytest.mark.parametrize(
    ("printed", "read", "usage", "native"),
    [
        ("Token usage: 1,204 input, 33 output", {"tokens": "usage:"}, {"tokens": 1237}, None),
        ('Token usage: 5 input, {"cached": 9}', {"tokens": "usage:"}, {"tokens": 5}, None),
        ("cost: $0.25 in all", {"cost": "cost:"}, {"usd": 0.25}, None),
        ("session_id: a-1\nsession_id: b-2\nbye", {"native_session": "session_id:"}, None, "b-2"),
        ("nothing of it", {"tokens": "usage:", "native_session": "id:"}, None, None),
        ("session_id: --evil", {"native_session": "session_id:"}, None, None),
        ("Token usage: none", {"tokens": "usage:"}, None, None),
    ],
)
def test_what_stands_on_stderr_is_read_from_its_last_line(run, printed, read, usage, native):
    result = run("sh", "-c", 'printf "%s\\n" "$1" >&2; echo hi', "sh", printed, read_stderr=read)
    said = result.reply

    assert (None if said.usage is None else said.usage.to_json()) == usage
    assert (said.native_session, said.text) == (native, "hi\n")


def test_an_id_on_stderr_is_told_and_compared_like_any_other(run, turn):
    told = []
    read = {"native_session": "id:"}
    words = ("sh", "-c", "echo id: $1 >&2", "sh")
    run(*words, "n-1", read_stderr=read, on_native_session=told.append)
    other = run(*words, "n-2", *RESUMING, first=("x",), read_stderr=read, turn=later(turn))

    assert told == ["n-1"]
    assert other.reason is Reason.SESSION_CHANGED


def test_events_are_added_up_where_the_entry_says_so(run):
    events = [{"type": "step", "cost": 0.1, "n": {"input": 2, "output": 1}}] * 3
    result = run(
        *printing(*events, {"type": "other", "cost": 9}, {"type": "text", "text": "done"}),
        output=OutputFormat.JSONL,
        read={
            "reply": "text",
            "cost": "sum of cost where type = step",
            "tokens": "sum of n where type = step",
        },
    )

    assert result.reply.usage.to_json() == {"usd": pytest.approx(0.3), "tokens": 9}


def test_options_stand_where_the_command_has_a_place_for_them():
    spec = spec_of(
        "codex",
        "exec",
        "{options}",
        "resume",
        "{session}",
        "-",
        model=("--model", "{model}"),
        args=("--all",),
    )
    words = command_words(spec, make_turn(), args=["--mine", "{session}"], model="m")

    # The routine's words come last, and are taken as they are.
    expected = ["codex", "exec", "--model", "m", "--all", "--mine", "{session}", "resume"]
    assert words == [*expected, "routine:digest", "-"]


def test_a_conversation_in_a_file_is_looked_for_before_anything_is_started(run, turn, tmp_path):
    file = tmp_path / "talk"
    words = (
        "sh",
        "-c",
        "echo ran > ran; cat $1 2>/dev/null; echo more >> $1",
        "sh",
        "{session_file}",
    )
    first = run(*words, turn=make_turn(key=turn.key, session_file=str(file)))
    again = run(*words, turn=make_turn(key=turn.key, session_file=str(file), first=False))
    file.unlink()
    (tmp_path / "ran").unlink()
    gone = run(*words, turn=make_turn(key=turn.key, session_file=str(file), first=False))

    assert (first.outcome, again.reply.text) == (Outcome.COMPLETED, "more\n")
    assert (gone.outcome, gone.reason) == (None, Reason.SESSION_LOST)
    assert not (tmp_path / "ran").exists()
