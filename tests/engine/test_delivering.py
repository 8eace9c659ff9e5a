"""Where replies go, and that nothing of it disturbs a turn (PROMISES O3)."""

import json
import os
import sys
import time
from datetime import timedelta

import pytest

from routines.agents.base import Reply
from routines.domain.outcome import Outcome
from routines.domain.targets import DESKTOP, Target, to_command, to_file, to_ping, to_url
from routines.engine.clock import SystemClock
from routines.engine.delivering import Message, deliver, desktop_words
from routines.engine.work import decode_work, work_of
from tests.engine.stage import HOUR, at, content, every, once, routine

MESSAGE = Message(title="digest, Wed 01 Jul", body="3 PRs merged", name="digest.x.md")
SHORT = timedelta(seconds=1)


def python(text):
    return to_command(sys.executable, "-c", text)


def hand_over(tmp_path, *targets, message=MESSAGE, **options):
    found = deliver(
        targets,
        message,
        env=dict(os.environ),
        cwd=str(tmp_path),
        clock=SystemClock(),
        **options,
    )
    return [(one.ok, one.detail) for one in found]


# One target --------------------------------------------------------------------------------------


def test_folder_gets_one_file_each(tmp_path):
    folder = to_file(f"{tmp_path}/new/digests/")

    assert hand_over(tmp_path, folder) == [(True, "")]
    assert content(f"{tmp_path}/new/digests/digest.x.md") == b"3 PRs merged\n"


def test_existing_folder_needs_no_slash(tmp_path):
    assert hand_over(tmp_path, to_file(str(tmp_path))) == [(True, "")]
    assert content(f"{tmp_path}/digest.x.md") == b"3 PRs merged\n"


def test_file_is_added_to(tmp_path):
    journal = to_file(f"{tmp_path}/journal.md")
    hand_over(tmp_path, journal, journal)

    entry = "## digest, Wed 01 Jul\n\n3 PRs merged\n"
    assert content(f"{tmp_path}/journal.md").decode() == entry * 2


def test_file_that_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    ((ok, detail),) = hand_over(tmp_path, to_file(f"{tmp_path}/pipe"))

    assert not ok
    assert "neither a file nor a folder" in detail


def test_command_gets_the_text_on_stdin_and_the_title_in_its_environment(tmp_path):
    script = (
        "import os, sys; open('got', 'w').write(os.environ['ROUTINES_TITLE'] + sys.stdin.read())"
    )

    assert hand_over(tmp_path, python(script)) == [(True, "")]
    assert content(tmp_path / "got").decode() == "digest, Wed 01 Jul" + "3 PRs merged"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (python("import sys; sys.exit('no such list')"), "exit 1: no such list"),
        (python("import sys; print('\\x1b[31mred\\n' * 999); sys.exit(3)"), "exit 3: \\x1b[31mred"),
        (to_command("no-such-program-here"), "command not found: no-such-program-here"),
        (to_url("nosuchscheme://secret-token-1/x"), ("apprise",)),
        (to_ping("http://127.0.0.1:9/secret-token-1"), "refused"),
        (to_file("/proc/nowhere/x.md"), "/proc/nowhere"),
    ],
)
def test_target_that_fails_says_why_in_one_line_without_secrets(tmp_path, target, why):
    ((ok, detail),) = hand_over(tmp_path, target)

    assert not ok
    assert all(part in detail for part in ([why] if isinstance(why, str) else why))
    assert "\n" not in detail
    assert "secret-token" not in detail
    assert len(detail) <= 200


def test_hanging_command_is_ended_with_what_it_started_and_the_next_one_gets_its_turn(tmp_path):
    hanging = python(
        "import subprocess, time\n"
        "open('child', 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)"
    )
    began = time.monotonic()
    found = hand_over(tmp_path, hanging, to_file(f"{tmp_path}/out.md"), each=SHORT)

    assert found == [(False, "not delivered within 1 s"), (True, "")]
    assert time.monotonic() - began < 15
    child = content(tmp_path / "child").decode()
    assert b") Z" in (content(f"/proc/{child}/stat") or b") Z")


def test_all_targets_together_have_a_limit_and_each_gets_its_share(tmp_path):
    hanging = python("import time; time.sleep(600)")
    began = time.monotonic()
    found = hand_over(tmp_path, hanging, hanging, hanging, together=timedelta(seconds=3))

    assert [(ok, detail[:20]) for ok, detail in found] == [(False, "not delivered within")] * 3
    assert time.monotonic() - began < 15


def test_stop_ends_what_is_under_way_and_begins_nothing_more(tmp_path):
    hanging = python("import time; open('begun', 'w'); time.sleep(600)")

    def stop():
        return "stop" if os.path.exists(tmp_path / "begun") else None

    assert hand_over(tmp_path, hanging, hanging, stop_requested=stop) == [
        (False, "ended: the scheduler stops"),
        (False, "not begun: the scheduler stops"),
    ]


def test_desktop_text_is_bounded_data_and_never_markup_or_an_option():
    message = Message(title="-i x\n", body="<b>a & b</b>\x1b[1m " + "x" * 999, name="x")

    linux = desktop_words(message, platform="linux")
    assert linux[:4] == ["notify-send", "--app-name=routines", "--", "-i x"]
    assert linux[4].startswith("&lt;b&gt;a &amp; b&lt;/b&gt;\\x1b[1m xxx")
    mac = desktop_words(message, platform="darwin")
    assert mac[0] == "osascript"
    assert mac[-3:-1] == ["--", "-i x"]
    assert len(mac[-1]) <= 300
    assert not any("<b>" in word for word in mac[:-1])


def test_target_survives_the_way_to_a_turn_process():
    targets = (DESKTOP, to_file("/x/", shown="x/"), to_command("a", "b"), to_url("x://y"))
    work = work_of(
        routine(deliver=targets, quiet="nothing"), root="/", agent=None, agent_name="host"
    )

    assert decode_work(work.encode()) == work
    assert [Target.from_json(json.loads(json.dumps(one.to_json()))) for one in targets] == [
        *targets
    ]


# A turn ------------------------------------------------------------------------------------------


def listed(path):
    return os.listdir(path) if os.path.isdir(path) else []


async def one_turn(stage, answer=None, **changes):
    stage.agent._answer = answer
    async with stage.running(routine(schedule=once("08:05"), **changes)):
        await stage.clock.advance_to(at("08:05"))
    return stage.records()[0]


async def test_reply_of_a_completed_turn_is_delivered_and_the_record_says_where(stage, tmp_path):
    out = to_file(f"{tmp_path}/out/", shown="out/")
    record = await one_turn(stage, lambda _: "3 PRs merged", deliver=(out,))

    assert content(f"{tmp_path}/out/digest.2026-06-01T08-05-00Z.md") == b"3 PRs merged\n"
    assert record.end["delivered"] == [{"to": "out/", "ok": True, "detail": ""}]
    assert record.end["warnings"] == []


async def test_command_of_a_turn_knows_whose_reply_it_gets(stage, tmp_path):
    script = "import json, os; json.dump(dict(os.environ), open('env', 'w'))"
    await one_turn(stage, deliver=(python(script),))

    env = json.loads(content(tmp_path / "env"))
    assert env["ROUTINES_ROUTINE"] == "digest"
    assert env["ROUTINES_SLOT"] == "2026-06-01T08:05:00Z"
    assert env["ROUTINES_DELIVERY"] == "reply"
    assert env["ROUTINES_TITLE"] == "digest, Mon 01 Jun 2026 08:05 +00:00"


async def test_delivery_that_fails_is_a_warning_of_a_turn_that_completed(stage, tmp_path):
    failing = python("import sys; sys.exit('the mail server is down')")
    out = to_file(f"{tmp_path}/out/", shown="out/")
    record = await one_turn(stage, deliver=(failing, out))

    assert (record.outcome, record.end["warnings"]) == (Outcome.COMPLETED, ["not-delivered"])
    assert [one["ok"] for one in record.end["delivered"]] == [False, True]
    assert "the mail server is down" in record.end["delivered"][0]["detail"]
    assert listed(tmp_path / "out") == ["digest.2026-06-01T08-05-00Z.md"]


async def test_secret_that_a_failing_target_prints_is_masked(stage):
    script = "import os, sys; sys.exit('login with ' + os.environ['MAIL_PASSWORD'])"
    env = (("MAIL_PASSWORD", "hunter2hunter2"),)
    record = await one_turn(stage, deliver=(python(script),), env=env)

    (result,) = record.end["delivered"]
    assert result["detail"].startswith("exit 1: login with ")
    assert "hunter2" not in result["detail"]


@pytest.mark.parametrize(
    ("answer", "quiet"),
    [("nothing new", True), (" nothing new\n", True), ("Nothing new", False), ("nothing", False)],
)
async def test_reply_that_is_exactly_quiet_is_kept_and_not_delivered(
    stage, tmp_path, answer, quiet
):
    out = to_file(f"{tmp_path}/out/")
    record = await one_turn(stage, lambda _: answer, deliver=(out,), quiet="nothing new")

    assert bool(listed(tmp_path / "out")) != quiet
    assert (record.end["delivered"][0]["to"] == "nobody") == quiet
    assert record.end["warnings"] == []
    assert content(f"{stage.state.at('output', record.occurrence.place)}/reply.md")


@pytest.mark.parametrize("answer", [Reply(text=" "), Reply(text="half", failed="red")])
async def test_empty_reply_and_failed_turn_deliver_nothing(stage, tmp_path, answer):
    await one_turn(stage, lambda _: answer, deliver=(to_file(f"{tmp_path}/out/"),))

    assert listed(tmp_path / "out") == []


async def test_routine_without_targets_says_nothing_of_delivery(stage):
    assert "delivered" not in (await one_turn(stage)).end


@pytest.mark.parametrize(
    ("answer", "failing", "pinged"),
    [("done", False, True), ("quiet", False, True), (" ", False, False), ("done", True, False)],
)
async def test_ping_is_for_slots_that_are_well(stage, monkeypatch, answer, failing, pinged):
    pings = []

    def fake(targets, message, **_):
        from routines.engine.delivering import Delivered

        pings.extend(one.where for one in targets if one.kind == "ping")
        return tuple(Delivered(one.label, one.kind == "ping" or not failing) for one in targets)

    monkeypatch.setattr("routines.engine.delivering.deliver", fake)
    targets = (to_ping("https://hc-ping.com/x"), python(""))
    await one_turn(stage, lambda _: answer, deliver=targets, quiet="quiet")

    assert pings == (["https://hc-ping.com/x"] if pinged else [])


@pytest.mark.parametrize(
    ("schedule", "seconds"), [(every(1), 55), (every(60), 60), (once("2026-06-01 08:05"), 60)]
)
async def test_deliveries_of_a_turn_end_before_its_next_slot(stage, monkeypatch, schedule, seconds):
    """What hangs would otherwise cost the next slot, and a delivery disturbs nothing."""
    limits = []

    def fake(targets, message, *, together, **_):
        from routines.engine.delivering import Delivered

        limits.append(together)
        stage.clock.move(7 * SHORT)
        return tuple(Delivered(one.label, ok=True) for one in targets)

    monkeypatch.setattr("routines.engine.delivering.deliver", fake)
    known = routine(schedule=schedule, deliver=(python(""), to_ping("https://hc-ping.com/x")))
    async with stage.running(known):
        await stage.clock.advance_to(schedule.next_after(stage.clock.now()))

    # The pings come last, and have what is left.
    assert limits[:2] == [timedelta(seconds=seconds), timedelta(seconds=seconds - 7)]


# Wake-ups ----------------------------------------------------------------------------------------


async def test_woken_turn_says_where_its_reply_goes_and_delivers_it_there(stage, tmp_path):
    out = to_file(f"{tmp_path}/out/", shown="out/")
    digest = routine(schedule=once("2026-07-02 08:05"), deliver=(out,))
    async with stage.running(digest) as engine:
        answer = engine.tools("routine:digest").wake("look at the build", in_="10m")
        await stage.clock.advance(HOUR)

    assert "Your reply then goes to out/" in answer
    assert "out/" in stage.told[0].splitlines()[0]
    (name,) = listed(tmp_path / "out")
    assert name.startswith("digest.2026-06-01T08-10-00Z.w-")
