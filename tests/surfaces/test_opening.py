"""`session open`: the agent's own program on a conversation, while slots wait and say so."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from routines.agents.handover import is_installed
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome
from routines.domain.record import Event
from routines.engine import host
from routines.operations.busy import busy_in
from routines.operations.context import Context
from routines.operations.jobs import Jobs
from routines.operations.waking import ToolDesk
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.sessions import SessionStore
from routines.store.wakeups import WakeupStore
from tests.surfaces.world import berlin

INTERACTIVE = """
echo "$@" > "$OUT/words"
env > "$OUT/env"
pwd > "$OUT/cwd.new"
# Awaited by its name: whole from the moment that it is there.
mv "$OUT/cwd.new" "$OUT/cwd"
cat > /dev/null
exit 7
"""


@pytest.fixture
def claude(ws):
    """A workspace whose claude has had a turn, in a routine that is due."""
    ws.program("claude", INTERACTIVE)
    ws.settings("tz: Europe/Berlin\nagent: claude-code\n")
    ws.scheduler()
    ws.cron("daily", "0,30 16 * * *", f"cwd: {ws.home}\nenv: {{OUT: '{ws.home}', MINE: '1'}}\n")
    ws.done("daily", berlin("2026-11-28 16:30"))
    sessions = SessionStore(ws.state)
    lease = sessions.take("routine:daily", clock=ws.clock)
    lease.write(lease.ledger.with_(agent="claude-code", native_session="n-1", turns=1))
    lease.let_go()
    return ws


def wait_for(path):
    limit = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < limit, f"{path.name} never came to be"
        time.sleep(0.02)
    return path


def opened(ws, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "routines", "session", *(words or ("open", "daily"))],
        cwd=ws.root,
        env=os.environ
        | ws.environ
        | {
            "PYTHONPATH": os.getcwd(),
            "LOGNAME": "ana",
            "CLAUDECODE": "1",
            "PATH": f"{ws.home}/bin:/usr/bin:/bin",
        },
        stdin=subprocess.PIPE,
    )


def test_the_program_is_opened_where_its_turns_run_and_slots_wait_and_say_so(claude):
    person = opened(claude)
    try:
        wait_for(claude.home / "cwd")
        assert (claude.home / "words").read_text().startswith("--resume n-1")
        assert (claude.home / "cwd").read_text() == f"{claude.home}\n"
        env = dict(line.split("=", 1) for line in (claude.home / "env").read_text().splitlines())
        # As in a turn: the routine's own, the preset's, and nothing of an agent around us.
        assert (env["MINE"], env["CLAUDE_CODE_DISABLE_CRON"]) == ("1", "1")
        assert "CLAUDECODE" not in env
        # An alarm that is set in there fires in this conversation.
        assert env["ROUTINES_SESSION"] == "routine:daily"
        assert "ROUTINES_TURN" not in env

        assert "waiting" in claude.ask("list").out
        busy = "its session is busy: ana@"
        listed = claude.ask("list", width=200).out
        assert busy in listed
        assert "(session open: claude --resume n-1)" in listed
        assert busy in claude.ask("explain", "daily").out
        refused = claude.ask("run", "daily")
        assert (refused.code, "(session open: claude" in refused.err) == (75, True)
    finally:
        person.communicate()
    assert person.returncode == 7
    assert SessionStore(claude.state).is_busy("routine:daily") is None
    assert "session open" not in claude.ask("list", width=200).out


def server_handed_over(ws):
    """What the program was told of the server of the wake tools."""
    person = opened(ws)
    try:
        wait_for(ws.home / "cwd")
    finally:
        person.communicate()
    words = (ws.home / "words").read_text()
    head, found, rest = words.partition(" --mcp-config=")
    assert head.strip() == "--resume n-1"
    if not found:
        return None, ""
    server, end = json.JSONDecoder().raw_decode(rest)
    return server["mcpServers"]["routines"], rest[end:].strip()


@pytest.mark.skipif(not is_installed(), reason="the extra mcp is not installed")
def test_the_program_is_handed_the_wake_tools_and_what_it_sets_fires_in_this_conversation(claude):
    server, leave = server_handed_over(claude)

    assert (
        leave == "--allowedTools=mcp__routines__wake,mcp__routines__unwake,mcp__routines__wakeups"
    )
    environ = {"HOME": str(claude.home), **server["env"]}
    desk = ToolDesk(lambda: Context(environ=environ, cwd="/", clock=claude.clock))
    assert "routine:daily" in desk.instructions()
    said = desk.call("wake", {"prompt": "Look again.", "in": "10m"})
    assert "in this conversation" in said.text
    assert [one.session for one in WakeupStore(claude.state).pending_all(9)] == ["routine:daily"]


def test_a_routine_without_wake_tools_hands_none_over_to_the_program_either(claude):
    with (claude.root / "routines" / "daily.yaml").open("a") as file:
        file.write("wake_tools: false\n")

    assert server_handed_over(claude) == (None, "")


def test_next_says_what_a_coming_slot_waits_for(claude):
    person = opened(claude)
    try:
        wait_for(claude.home / "cwd")
        answer = claude.ask("next", "daily", "--decide", width=200).out
    finally:
        person.communicate()
    coming = answer.splitlines()[1]
    assert coming.startswith("  today 16:30"), answer
    assert "waits if its session is busy: ana@" in coming
    assert coming.endswith("(session open: claude --resume n-1) still")


def test_a_conversation_that_has_not_begun_is_not_opened_and_says_how_it_begins(claude):
    claude.cron("dailies", "0 9 * * *")

    answer = claude.ask("session", "open", "dailies")

    assert answer.code == 1
    assert "session 'routine:dailies' has had no turn yet" in answer.err
    assert "routines run dailies" in answer.err


def test_a_conversation_whose_id_is_not_known_yet_is_not_opened(ws):
    ws.program("codex", "touch opened")
    ws.settings("agent: codex\n")
    ws.routine("daily", "every: 1d\n")
    lease = SessionStore(ws.state).take("routine:daily", clock=ws.clock)
    lease.write(lease.ledger.with_(agent="codex"))
    lease.let_go()

    answer = ws.ask("session", "open", "daily")

    assert answer.code in (1, 2)
    assert "has not said yet by which id" in answer.err
    assert not (ws.root / "opened").exists()


def gone(path):
    """Whether the process whose number is in a file has ended."""
    try:
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def held(ws):
    return busy_in(ws.state, "routine:daily") is not None


def test_a_killed_command_takes_the_program_along_that_it_opened(claude):
    (claude.home / "bin" / "claude").write_text(
        f"#!/bin/sh\ntrap '' TERM HUP INT\necho $$ > {claude.home}/pid.new\n"
        f"mv {claude.home}/pid.new {claude.home}/pid\nwhile :; do sleep 1; done\n"
    )
    person = opened(claude)
    pid = wait_for(claude.home / "pid")
    assert held(claude)
    person.kill()
    person.communicate()
    until(lambda: gone(pid))
    until(lambda: not held(claude))


def test_a_command_that_is_told_to_end_holds_the_session_until_the_program_has_ended(claude):
    (claude.home / "bin" / "claude").write_text(
        f"#!/bin/sh\ntrap 'touch {claude.home}/told' TERM\n"
        f"echo $$ > {claude.home}/pid.new; mv {claude.home}/pid.new {claude.home}/pid\n"
        f"while [ ! -e {claude.home}/let-go ]; do sleep 0.1; done\nexit 5\n"
    )
    person = opened(claude)
    wait_for(claude.home / "pid")
    person.terminate()
    wait_for(claude.home / "told")
    assert held(claude)
    (claude.home / "let-go").touch()
    person.communicate(timeout=60)
    assert person.returncode == 5
    assert not held(claude)


# As npm's wrappers and nvm's are: what talks is started by what was started. That one keeps no
# descriptor of ours, as node does not, and the signal at our death does not reach it.
WRAPPED = """#!/bin/sh
(
    exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
    trap '' HUP INT
    {more}
    sh -c 'echo $PPID' > {home}/pid.new
    mv {home}/pid.new {home}/pid
    while :; do sleep 0.1; done
)
echo never
"""


@pytest.fixture
def orphan(claude):
    """Open a program by a wrapper, kill who opened it, and return the file with its number."""
    left = []

    def make(*words, more=":"):
        script = claude.home / "bin" / "claude"
        script.write_text(WRAPPED.format(home=claude.home, more=more))
        person = opened(claude, *words)
        left.append(wait_for(claude.home / "pid"))
        assert held(claude)
        person.kill()
        person.communicate()
        return left[-1]

    yield make
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGKILL)


OPENED = ("open", "daily")
HELD = ("hold", "daily", "--", "claude")
NESTED = ("hold", "daily", "--", sys.executable, "-m", "routines", "session", "open", "weekly")


@pytest.mark.skipif(sys.platform != "linux", reason="there the shell hides its environment")
@pytest.mark.parametrize("words", [OPENED, HELD], ids=["open", "hold"])
def test_a_program_that_outlives_a_killed_command_keeps_the_session_and_is_ended(
    claude, orphan, words
):
    pid = orphan(*words)

    assert not gone(pid)
    assert "free now" not in claude.ask("session", "show", "daily").out
    assert f"session {words[0]}: claude" in claude.ask("session", "list", width=200).out
    # Who wants it is refused while it lives, and has it ended.
    refused = claude.ask("run", "daily")
    assert (refused.code, f"(session {words[0]}: claude" in refused.err) == (75, True)
    assert gone(pid)
    assert "free now" in claude.ask("session", "show", "daily").out
    assert SessionStore(claude.state).is_busy("routine:daily") is None


@pytest.mark.skipif(sys.platform != "linux", reason="there the shell hides its environment")
@pytest.mark.parametrize("more", [":", "trap '' TERM"], ids=["ends", "stubborn"])
def test_whoever_opens_the_session_next_by_hand_first_ends_what_was_left(claude, orphan, more):
    pid = orphan(more=more)

    answer = claude.ask("session", "reset", "daily")

    assert (answer.code, gone(pid)) == (0, True)


@pytest.mark.skipif(sys.platform != "linux", reason="there the shell hides its environment")
def test_a_program_opened_within_another_one_is_part_of_both(claude, orphan):
    claude.cron("weekly", "0 16 * * 1", f"cwd: {claude.home}\n")
    lease = SessionStore(claude.state).take("routine:weekly", clock=claude.clock)
    lease.write(lease.ledger.with_(agent="claude-code", native_session="n-2", turns=1))
    lease.let_go()
    pid = orphan(*NESTED)

    assert not gone(pid)
    assert claude.ask("session", "reset", "daily").code == 0
    assert gone(pid)


def test_who_wants_a_session_by_hand_first_settles_the_turn_that_was_killed_in_it(claude):
    path = killed_turn(claude)

    assert claude.ask("session", "reset", "daily").code == 0
    assert ClaimStore(claude.state).read_path(path).outcome is Outcome.INTERRUPTED
    ledger = SessionStore(claude.state).peek("routine:daily")
    assert (ledger.claim, ledger.epoch, ledger.turns) == (None, 2, 2)


def test_a_turn_that_may_live_on_another_host_keeps_its_session_from_who_wants_it_by_hand(claude):
    other = replace(host.owner(), host="another-machine", boot="another-boot")
    path = killed_turn(claude, of=other)

    assert claude.ask("session", "reset", "daily").code == 75
    assert ClaimStore(claude.state).read_path(path).end is None


def test_a_job_whose_worker_is_gone_is_taken_back_for_who_wants_its_session_by_hand(claude):
    jobs = Jobs(claude.state.path, clock=claude.clock, by="ci@studio")
    jobs.add("look", id="a", session="routine:daily")
    assert jobs.claim().job.id == "a"
    assert claude.ask("session", "reset", "daily").code == 75

    claude.clock.advance(minutes=10)
    assert claude.ask("session", "reset", "daily").code == 0


def killed_turn(ws, of=None):
    """Leave the claim of a turn whose process was killed, and its stamp; return its path."""
    of = host.owner() if of is None else of
    occurrence = Occurrence(Kind.SLOT, "daily", ws.clock.now().replace(microsecond=0))
    line = {"routine": "daily", "session": "routine:daily", "owner": of.to_json()}
    line["due_at"] = occurrence.instant
    claim = ClaimStore(ws.state).take(Draft(occurrence, line), at=ws.clock.now())
    claim.append(Event.STARTED, at=ws.clock.now(), owner=of.to_json())
    lease = SessionStore(ws.state).take("routine:daily", clock=ws.clock)
    lease.stamp(occurrence.claim_path)
    lease.let_go()
    claim.let_go()
    return occurrence.claim_path


def test_a_program_that_ends_by_itself_leaves_no_record_and_its_children_alone(claude):
    (claude.home / "bin" / "claude").write_text(
        f"#!/bin/sh\n(while [ ! -e {claude.home}/over ]; do sleep 0.1; done;"
        f" touch {claude.home}/lived) &\n"
    )
    person = opened(claude)
    person.communicate()

    assert SessionStore(claude.state).peek("routine:daily").opened is None
    assert claude.ask("session", "reset", "daily").code == 0
    (claude.home / "over").touch()
    wait_for(claude.home / "lived")


def until(condition):
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "it never came to be"
        time.sleep(0.05)
