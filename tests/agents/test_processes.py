"""Who a process is, whether it lives, and that nothing of a turn outlives it."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from routines.agents import identity, process_table, processes, trees
from routines.agents.identity import is_alive, process_identity
from routines.agents.process_table import find_process, leftovers
from routines.agents.trees import Tree, end_tree
from tests.agents.stubs import eventually

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prctl")


@contextmanager
def started(*words, **keys):
    """A process that is gone, and reaped, when the block has ended."""
    process = subprocess.Popen(words or ["sleep", "300"], stdin=subprocess.DEVNULL, **keys)
    try:
        yield process
    finally:
        # Once it was waited for, its number and its group's may be anybody's.
        if process.poll() is None:
            if keys.get("start_new_session"):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()


def marked(turn, state):
    return {**os.environ, "ROUTINES_STATE": state, "ROUTINES_TURN": turn.key}


# Identity ---------------------------------------------------------------------------------------


def test_a_process_is_named_by_pid_start_boot_and_namespace():
    own = process_identity()

    assert own.keys() == {"pid", "start", "boot", "pidns"}
    assert own["pid"] == os.getpid()
    assert own == process_identity(os.getpid())
    assert json.loads(json.dumps(own)) == own


def test_a_live_process_is_alive_and_a_dead_one_is_not():
    with started() as process:
        named = process_identity(process.pid)
        assert is_alive(named) is True

    assert is_alive(named) is False
    assert process_identity(process.pid) is None


def test_a_zombie_is_dead():
    with started() as process:
        named = process_identity(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: find_process(process.pid).zombie)

        assert is_alive(named) is False
        assert process_identity(process.pid) is None


def test_a_stopped_process_is_alive():
    with started() as process:
        named = process_identity(process.pid)
        os.kill(process.pid, signal.SIGSTOP)

        assert is_alive(named) is True


def test_another_process_with_the_same_number_is_not_the_one():
    assert is_alive({**process_identity(), "start": "1"}) is False


@pytest.mark.parametrize(
    ("changes", "alive"),
    [
        ({"pidns": "pid:[1]"}, None),
        ({"boot": "another"}, None),
        ({"boot": "another", "host": "another"}, None),
        ({"boot": ""}, None),
        ({"boot": None}, None),
        ({"pid": "12"}, None),
        ({"pid": -1}, None),
        ({"pid": None}, None),
        ({"pid": 1 << 30}, False),
    ],
)
def test_what_cannot_be_told_from_here_is_not_guessed(changes, alive):
    assert is_alive({**process_identity(), **changes}) is alive


def test_another_boot_of_this_very_host_is_proof_of_death(monkeypatch):
    monkeypatch.setattr(identity, "host_id", lambda: "this-host")
    before = {**process_identity(), "boot": "before"}

    assert is_alive({**before, "host": "this-host"}) is False
    assert is_alive({**before, "host": "other-host"}) is None
    monkeypatch.setattr(identity, "host_id", lambda: None)
    assert is_alive({**before, "host": None}) is None


def test_names_with_brackets_and_spaces_do_not_shift_the_fields():
    stat = b"42 (a) S 1 (b c) Z 7 42 43 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0"

    assert process_table._parse_stat(42, stat) == process_table.Process(42, 7, 42, 43, "99", True)


@pytest.mark.parametrize("stat", [b"", b"42 (x", b"42 (x) S", b"42 (x) S a b c"])
def test_a_row_that_cannot_be_read_is_no_process(stat):
    assert process_table._parse_stat(42, stat) is None


def test_boot_id_is_the_same_for_every_process_of_this_boot():
    code = "from routines.agents.identity import boot_id; print(boot_id())"

    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout

    assert other.strip() == identity.boot_id() != ""


@linux
def test_a_container_has_no_host_id(monkeypatch, tmp_path):
    machine = tmp_path / "machine-id"
    machine.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(identity, "_MACHINE_ID_FILES", (str(tmp_path / "none"), str(machine)))
    monkeypatch.setattr(identity, "_CONTAINER_MARKS", (str(tmp_path / "mark"),))
    monkeypatch.setattr(identity, "_CONTAINER_VARIABLES", ("IN_A_TEST_CONTAINER",))
    monkeypatch.setattr(identity, "_FIRST_PID_NAMESPACE", process_table.pid_namespace())
    ask = identity.host_id.__wrapped__

    assert ask() == "0123456789abcdef0123456789abcdef"
    monkeypatch.setenv("IN_A_TEST_CONTAINER", "1")
    assert ask() is None
    monkeypatch.delenv("IN_A_TEST_CONTAINER")
    (tmp_path / "mark").write_text("")
    assert ask() is None
    (tmp_path / "mark").unlink()
    monkeypatch.setattr(identity, "_FIRST_PID_NAMESPACE", "pid:[1]")
    assert ask() is None


@linux
@pytest.mark.parametrize("content", ["", "uninitialized\n", "x" * 32, "\u00e4" * 16])
def test_a_machine_id_that_is_none_names_no_host(monkeypatch, tmp_path, content):
    machine = tmp_path / "machine-id"
    machine.write_text(content)
    monkeypatch.setattr(identity, "_MACHINE_ID_FILES", (str(machine),))
    monkeypatch.setattr(identity, "in_container", lambda env: False)

    assert identity.host_id.__wrapped__() is None


# Without /proc ------------------------------------------------------------------------------------


@pytest.fixture
def only_ps(monkeypatch):
    """As on macOS: what can be known comes from `ps`."""
    monkeypatch.setattr(process_table, "_has_proc", lambda: False)


def test_ps_tells_parent_group_and_start(only_ps):
    with started(start_new_session=True) as process:
        row = find_process(process.pid)

        assert (row.parent, row.group, row.zombie) == (os.getpid(), process.pid, False)
        assert process_table.process_table()[process.pid] == row
        assert is_alive(process_identity(process.pid)) is True

    assert find_process(process.pid) is None


def test_a_group_is_ended_also_by_ps_alone(only_ps, clock):
    with started("sh", "-c", "sleep 300 & sleep 300", start_new_session=True) as process:
        tree = Tree(state="", turn_key="", leader=process.pid)
        eventually(lambda: len(tree.members()) > 1)

        assert end_tree(tree, stop=("TERM",), clock=clock) == []

        assert process.wait() == -signal.SIGTERM


def test_ps_finds_a_turn_by_its_environment(only_ps, monkeypatch):
    # Above any real number: nothing here may ever be sent a signal.
    mine, other = 1 << 30, (1 << 30) + 1

    def ps(*words):
        if "-axEww" not in words:
            return "".join(
                f" {pid} 1 7 S Mon Nov 30 10:00:00 2026\n" for pid in (mine, os.getpid())
            )
        mark = "ROUTINES_STATE=/w/my state ROUTINES_TURN=w/r@2026-07-01T09:00:00Z"
        return f" {mine} agent -p HOME=/x {mark} Z=1\n {other} agent {mark}#2\n{os.getpid()} me {mark}\n"

    monkeypatch.setattr(process_table, "_ps", ps)

    assert leftovers("/w/my state", "w/r@2026-07-01T09:00:00Z") == [mine]


@pytest.mark.parametrize(
    "line", ["", "PID PPID", "a b c S Mon Nov 30 10:00:00 2026", "1 2 3 S Mon"]
)
def test_a_line_of_ps_that_is_none_is_no_process(line):
    assert process_table._parse_ps(line) is None


def test_a_ps_that_is_missing_or_hangs_tells_nothing():
    assert processes.ask_system("no-such-program-at-all") == ""


# Leftovers ----------------------------------------------------------------------------------------


@linux
def test_leftovers_are_those_that_name_this_state_folder_and_this_turn(turn, state):
    mine = marked(turn, state)
    others = [
        {**mine, "ROUTINES_STATE": state + "2"},
        {**mine, "ROUTINES_TURN": turn.key + "#2"},
        {**mine, "ROUTINES_TURN": turn.key[:-1]},
        {key: value for key, value in mine.items() if key != "ROUTINES_STATE"},
        {**mine, "ROUTINES_TURN": "x", "OTHER": f"ROUTINES_TURN={turn.key}"},
    ]
    with started(env=mine) as process:
        rest = [subprocess.Popen(["sleep", "300"], env=env) for env in others]
        try:
            assert eventually(lambda: leftovers(state, turn.key)) == [process.pid]
        finally:
            for other in rest:
                other.kill()
                other.wait()


@linux
@pytest.mark.parametrize("linked", ["workspace", ".routines"])
def test_leftovers_are_found_by_whatever_name_the_state_folder_is_known(
    turn, state, tmp_path, linked
):
    folder = tmp_path / ("real/.routines" if linked == "workspace" else "store")
    folder.mkdir(parents=True)
    link = tmp_path / ("link" if linked == "workspace" else ".routines")
    link.symlink_to(folder.parent if linked == "workspace" else folder)
    name = str(link / ".routines" if linked == "workspace" else link)
    for spelled, asked in ((name, str(folder)), (str(folder), name), (f"{name}/", name)):
        with started(env=marked(turn, spelled)) as process:
            assert eventually(lambda: leftovers(asked, turn.key)) == [process.pid]  # noqa: B023


@linux
def test_a_process_that_is_just_being_started_is_not_missed(turn, state, monkeypatch):
    read, early = process_table._proc_file, iter(range(20))
    with started(env=marked(turn, state)) as process:

        def empty_at_first(pid, name):
            in_exec = pid == process.pid and name != "stat" and next(early, None) is not None
            return b"" if in_exec else read(pid, name)

        monkeypatch.setattr(process_table, "_proc_file", empty_at_first)

        assert leftovers(state, turn.key) == [process.pid]


@linux
def test_looking_for_leftovers_waits_for_no_kernel_thread_and_no_zombie():
    with started("true") as process:
        eventually(lambda: find_process(process.pid).zombie)
        kernel = [p.pid for p in process_table.process_table().values() if p.parent == 2]

        assert not any(process_table._is_in_exec(pid) for pid in [process.pid, *kernel, 1 << 30])


@linux
def test_zombies_and_the_asker_itself_are_no_leftovers(turn, state):
    code = (
        "import os, subprocess, sys\n"
        "from routines.agents.process_table import find_process, leftovers\n"
        "child = subprocess.Popen(['true'])\n"
        "while not find_process(child.pid).zombie: pass\n"
        "print(leftovers(os.environ['ROUTINES_STATE'], os.environ['ROUTINES_TURN']))\n"
        "child.wait()\n"
    )

    asked = subprocess.run(
        [sys.executable, "-c", code], env=marked(turn, state), capture_output=True, text=True
    )

    assert asked.stdout == "[]\n", asked.stderr


@linux
def test_cleaning_up_after_a_dead_turn_process_touches_nothing_of_its_own(turn, state, clock):
    # As a scheduler does it: the other child is a turn that goes on.
    with started(env=marked(turn, state)) as left, started() as other:
        eventually(lambda: leftovers(state, turn.key))

        assert end_tree(Tree(state=state, turn_key=turn.key), stop=("TERM",), clock=clock) == []

        assert left.wait() == -signal.SIGTERM
        assert other.poll() is None


# Says at ^C whether the tool that it runs, in a session of its own, still lives.
LOOKS_AT_ITS_TOOL = """
import os, signal, subprocess, sys, time
tool = subprocess.Popen(["sleep", "300"], start_new_session=True)
def end(*_):
    time.sleep(0.3)
    os.write(1, b"running" if tool.poll() is None else b"ended")
    os._exit(0)
signal.signal(signal.SIGINT, end)
os.write(1, b"%d " % tool.pid)
while True:
    time.sleep(1)
"""


@linux
def test_agent_is_told_to_end_before_its_tools_that_have_a_group_of_their_own(turn, state, clock):
    with subprocess.Popen(
        [sys.executable, "-c", LOOKS_AT_ITS_TOOL],
        env=marked(turn, state),
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as agent:
        tool = int(agent.stdout.read1().split()[0])
        tree = Tree(state=state, turn_key=turn.key, leader=agent.pid)

        assert end_tree(tree, stop=("INT", "TERM"), clock=clock) == []

        # An agent that sees its tool end first takes that for the answer of the tool.
        assert agent.stdout.read() == b"running"
        assert find_process(tool) is None or find_process(tool).zombie


def test_ending_nothing_sends_nothing(turn, state, clock, monkeypatch):
    monkeypatch.setattr(trees, "_send", lambda *_: pytest.fail("sent a signal"))

    assert end_tree(Tree(state=state, turn_key=turn.key), stop=("KILL",), clock=clock) == []


@linux
def test_a_signal_never_reaches_another_process_with_the_same_number():
    with started() as process:
        row = find_process(process.pid)
        stranger = process_table.Process(row.pid, row.parent, row.group, row.session, "1", False)

        trees._send(stranger, signal.SIGKILL)
        assert find_process(process.pid).zombie is False
        trees._send(row, signal.SIGTERM)

        assert process.wait() == -signal.SIGTERM


def test_what_cannot_be_ended_is_named_and_not_waited_for_for_ever(clock, monkeypatch):
    monkeypatch.setattr(trees, "_send", lambda *_: None)
    monkeypatch.setattr(trees, "GIVE_UP_S", 0.05)
    with started(start_new_session=True) as process:
        tree = Tree(state="", turn_key="", leader=process.pid)

        remain = end_tree(tree, stop=("TERM", "KILL"), clock=clock, interval=0.05)

        assert remain == [process.pid]


@pytest.mark.parametrize(
    ("stop", "sent"),
    [((), ["KILL"]), (("KILL",), ["KILL"]), (("INT", "TERM"), ["INT", "TERM", "KILL"])],
)
def test_kill_is_always_the_last_signal(stop, sent):
    assert [number.name for number in trees._sequence(stop)] == [f"SIG{word}" for word in sent]


# The turn process -----------------------------------------------------------------------------------


TURN_PROCESS = """
import os, sys
from datetime import timedelta
from routines.agents.command import run_command
from routines.agents.process_table import process_table
from routines.agents.trees import become_subreaper
from tests.agents.stubs import RealClock, make_turn, spec_of
assert become_subreaper()
turn = make_turn(key=os.environ["ROUTINES_TURN"])
result = run_command(spec_of(*sys.argv[1:]), turn, cwd=os.getcwd(), env=dict(os.environ),
    folder=None, clock=RealClock(), timeout=timedelta(seconds=60), grace=timedelta(seconds=5))
print(result.outcome, result.detail)
left = [row.pid for row in process_table().values() if row.parent == os.getpid()]
print("children", left)
"""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


def turn_process(turn, state, *words):
    return [sys.executable, "-c", TURN_PROCESS, *words], {**marked(turn, state), "PYTHONPATH": ROOT}


DAEMON = """
import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvpe({python!r}, ["python", "-c", "import os, time; open('pid.new', 'w').write(str(os.getpid()));"
    "os.rename('pid.new', 'pid'); time.sleep(300)"], {{"PATH": "/usr/bin:/bin"}})
"""


@linux
def test_a_daemon_without_our_environment_ends_with_the_turn(turn, state, tmp_path):
    (tmp_path / "daemon.py").write_text(DAEMON.format(python=sys.executable))
    script = f"{sys.executable} daemon.py; while [ ! -e pid ]; do sleep 0.01; done; echo ok"
    argv, env = turn_process(turn, state, "sh", "-c", script)

    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True)

    assert done.stdout == "completed \nchildren []\n", done.stderr
    assert process_identity(int((tmp_path / "pid").read_text())) is None


@linux
def test_a_turn_process_sees_exit_codes_also_under_a_careless_parent(turn, state, tmp_path):
    argv, env = turn_process(turn, state, "sh", "-c", "exit 3")
    ignoring = ["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh", *argv]
    code = "import os, signal, sys; signal.signal(17, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"

    for wrapped in (ignoring, [sys.executable, "-c", code, *argv]):
        done = subprocess.run(wrapped, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.startswith("failed exit 3\n"), done.stderr


@linux
def test_an_agent_dies_with_its_turn_process_also_when_it_ignores_everything(turn, state, tmp_path):
    script = "trap '' TERM INT HUP; echo $$ > pid.new; mv pid.new pid; while :; do sleep 1; done"
    argv, env = turn_process(turn, state, "sh", "-c", script)
    process = subprocess.Popen(argv, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL)
    eventually((tmp_path / "pid").exists)
    named = process_identity(int((tmp_path / "pid").read_text()))

    process.kill()
    process.wait()

    eventually(lambda: is_alive(named) is False)
    eventually(lambda: not leftovers(state, turn.key))  # the second of sleep that it had begun


@linux
def test_what_a_killed_turn_process_left_is_found_and_ended(turn, state, tmp_path, clock):
    script = "setsid sleep 300 & echo > ready; wait; sleep 300"
    argv, env = turn_process(turn, state, "sh", "-c", script)
    process = subprocess.Popen(argv, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL)
    eventually((tmp_path / "ready").exists)
    eventually(lambda: len(leftovers(state, turn.key)) >= 3)  # turn process, agent, its child
    process.kill()
    process.wait()
    eventually(lambda: leftovers(state, turn.key))

    assert end_tree(Tree(state=state, turn_key=turn.key), stop=("TERM",), clock=clock) == []

    assert leftovers(state, turn.key) == []


UNMARKED = """
env -i PATH=/usr/bin:/bin /bin/sh -c '
    trap "" TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.05; done' &
wait
"""


@linux
@pytest.mark.parametrize("mark", ["", "ROUTINES_HELD_x"], ids=["turn", "opened"])
def test_what_has_thrown_its_environment_away_is_ended_with_its_parent(
    turn, state, tmp_path, clock, mark
):
    env = os.environ | {mark: state} if mark else marked(turn, state)
    tree = Tree(state=state, turn_key="" if mark else turn.key, mark=mark)
    with started("sh", "-c", UNMARKED, env=env, cwd=tmp_path) as process:
        eventually((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())

        # It is deaf: by the time of KILL its parent has ended, and is known no more.
        assert end_tree(tree, stop=("TERM",), clock=clock, interval=0.3) == []

        assert process.wait() == -signal.SIGTERM
        left = find_process(pid)
        if left is not None and not left.zombie:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("it lives on")


CLEANS_UP = """
import os, subprocess, sys
from routines.agents.trees import Tree, end_tree
from tests.agents.stubs import RealClock
state, turn = os.environ["ROUTINES_STATE"], os.environ["ROUTINES_TURN"]
own = subprocess.Popen(["sleep", "300"], env={"PATH": os.environ["PATH"]})
remain = end_tree(Tree(state=state, turn_key=turn), stop=("TERM",), clock=RealClock())
print(remain, own.poll(), flush=True)
own.kill()
own.wait()
"""


@linux
def test_who_cleans_up_below_what_it_ends_keeps_its_own(turn, state):
    script = f"\"{sys.executable}\" -c '{CLEANS_UP}'; exit 0"
    env = {**marked(turn, state), "PYTHONPATH": ROOT}
    with started("sh", "-c", script, env=env, stdout=subprocess.PIPE, text=True) as above:
        with above.stdout:
            assert above.stdout.read() == "[] None\n"
        assert above.wait() == -signal.SIGTERM


def test_turn_process_is_detached_and_inherits_only_what_is_passed(tmp_path, turn, state):
    passed, kept = os.pipe(), os.pipe()
    os.set_inheritable(kept[1], True)
    code = (
        "import os, sys\n"
        f"for fd in ({passed[1]}, {kept[1]}):\n"
        "    try: os.fstat(fd); print(fd, 'open', file=sys.stderr)\n"
        "    except OSError: print(fd, 'closed', file=sys.stderr)\n"
        "print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), os.getcwd(), file=sys.stderr)\n"
        "print('nowhere')\n"
    )
    errors = tmp_path / "crash.log"
    errors.write_text("before\n")
    try:
        process = processes.start_turn_process(
            [sys.executable, "-c", code],
            pass_fds=[passed[1]],
            env={"PATH": "/usr/bin:/bin"},
            cwd=str(tmp_path),
            stderr_path=str(errors),
        )
        assert process.wait() == 0
    finally:
        for fd in (*passed, *kept):
            os.close(fd)

    assert errors.read_text() == (
        f"before\n{passed[1]} open\n{kept[1]} closed\nTrue '' {tmp_path}\n"
    )


def test_a_turn_process_that_cannot_be_started_leaves_no_descriptor_open(tmp_path):
    before = sorted(os.listdir("/dev/fd"))

    with pytest.raises(FileNotFoundError):
        processes.start_turn_process(
            ["/no/such/python"], pass_fds=[], env={}, cwd="/", stderr_path=str(tmp_path / "e")
        )

    assert sorted(os.listdir("/dev/fd")) == before


def test_a_command_needs_neither_asyncio_nor_the_command_line():
    code = (
        "import sys, routines.agents.command, routines.agents.echo\n"
        "print(sorted({'asyncio', 'click', 'yaml', 'ctypes', 'croniter'} & set(sys.modules)))"
    )

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "[]\n"
    )


def test_the_python_agent_needs_asyncio_only_for_a_coroutine():
    code = "import sys, routines.agents.python_agent; print('asyncio' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "False\n"
    )
