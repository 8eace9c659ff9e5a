"""What a slot that is due waits for: list, history and explain name it in the same words."""

import json
import os
import subprocess
import sys

from tests.surfaces.world import World, berlin

EARLIER = berlin("16:10")


def said(ws: World, name: str) -> list[str]:
    rows = {one["name"]: one for one in json.loads(ws.ask("list", "--json").out)["routines"]}
    (record,) = json.loads(ws.ask("history", name, "--json").out)
    found = json.loads(ws.ask("explain", name, "--json").out)
    assert (rows[name]["state"], record["state"], found["verdict"]) == ("waiting",) * 3
    return [rows[name]["note"], record["detail"], found["why"]]


def test_turn_of_its_group_is_named(ws):
    ws.scheduler()
    ws.cron("long", "15 * * * *", "exclusive: g\n", since=EARLIER)
    ws.cron("late", "16 * * * *", "exclusive: g\n", since=EARLIER)
    ws.cron("other", "16 * * * *", "exclusive: h\n", since=EARLIER)
    ws.started(ws.claim("long", berlin("16:15")))

    assert said(ws, "late") == ["a turn of the group g runs: long@2026-11-29T15:15:00Z"] * 3
    assert said(ws, "other") == ["about to start"] * 3


def test_group_that_something_unknown_has_is_said_to_be_in_use(ws):
    """What runs may belong to a file that says something else by now."""
    ws.scheduler()
    ws.cron("late", "16 * * * *", "exclusive: g\n", since=EARLIER)
    # Held by another process: what this one holds it would not call held.
    code = (
        "import sys\n"
        "from routines.store.places import PlaceStore\n"
        "from routines.store.state import open_for_reading\n"
        "room = PlaceStore(open_for_reading(sys.argv[1])).take(places=None, group='g')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, ws.state.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert said(ws, "late") == ["a turn of the group g runs"] * 3
    finally:
        holder.communicate()
    assert said(ws, "late") == ["about to start"] * 3


def test_what_the_store_refuses_does_not_start_soon(ws):
    ws.cron("daily", "0 16 * * *", since=berlin("2026-11-29 08:00"))
    ws.scheduler(faults={"daily": "can't link it: No space left on device"})

    says = "the store refuses: can't link it: No space left on device"
    assert f"waiting: {says}." in ws.ask("explain", "daily", width=200).out
    assert "the store refuses" in ws.ask("list").out
    # Another that is not refused starts it.
    ws.scheduler(scheduler_id="another")
    assert "waiting: about to start." in ws.ask("explain", "daily").out


def test_a_full_disk_says_so_itself_for_no_heartbeat_can_be_written(ws, monkeypatch):
    ws.cron("daily", "0 16 * * *", since=berlin("2026-11-29 08:00"))
    ws.scheduler()
    free = os.statvfs(ws.root)
    full = os.statvfs_result((*free[:3], 0, 0, *free[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)

    said = "waiting: the store refuses: No space left on device."
    assert said in ws.ask("explain", "daily", width=200).out
