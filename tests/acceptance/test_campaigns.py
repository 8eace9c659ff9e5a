"""Bounded versions of the campaigns; the long ones are run by hand (`python -m tests.campaigns.X`)."""

import pytest

from tests.acceptance.helpers import Workspace, end_of, eventually, stamp
from tests.campaigns import clocks, flood, jobs, kill9, mixed, races, stops


def show(result):
    return "\n".join(result.lines())


@pytest.mark.slow
def test_sixteen_processes_at_one_slot_make_one_turn():
    result = races.campaign(slots=60, processes=16, seed=1)
    assert not result.wrong, show(result)
    assert (result.turns, result.settled) == (60, 60), show(result)


@pytest.mark.slow
@pytest.mark.parametrize("way", [*races.WAYS, "store"])
def test_one_turn_a_slot_whichever_way_it_is_claimed(way):
    result = races.campaign(slots=15, processes=8, way=way, seed=2)
    assert not result.wrong, show(result)
    assert (result.turns, result.settled) == (15, 15), show(result)


@pytest.mark.slow
def test_processes_killed_at_random_lose_and_repeat_nothing():
    result = kill9.campaign(routines=6, schedulers=3, slots=60, kills=25, limit_s=25, seed=3)
    assert not result.wrong, show(result)
    assert result.turns > 5, show(result)


@pytest.mark.slow
def test_a_stopped_process_keeps_what_it_holds_and_repeats_nothing():
    result = stops.campaign(seconds=3, each=2, steps=(0, 3, 7, 11, 18, None))
    assert not result.wrong, show(result)


@pytest.mark.slow
def test_two_schedulers_ticks_and_deliveries_at_once_make_one_turn_a_slot(workspace: Workspace):
    workspace.agent('echo "$ROUTINES_TURN" >> $LOG; sleep 0.2')
    names = [f"r{number:02d}" for number in range(8)]
    slots = {name: workspace.due(name, ago=-6) for name in names}
    schedulers = [workspace.start() for _ in range(2)]
    ticks = [workspace.begin("tick") for _ in range(2)]
    deliveries = [
        workspace.begin("fire", name, "--slot", stamp(slots[name]))
        for name in names[:4]
        for _ in range(2)
    ]
    for name in names:
        assert end_of(workspace.settled(name)) == ("completed", None)
    for process in deliveries:
        # Delivered twice it runs once and exits 0.
        assert workspace.ended(process) == 0, workspace.said(process)
    for process in ticks:
        assert workspace.ended(process) == 0, workspace.said(process)
    assert sorted(line.partition("/")[2] for line in workspace.log()) == sorted(
        f"{name}@{stamp(slots[name])}" for name in names
    )
    for scheduler in schedulers:
        scheduler.terminate()
        assert workspace.ended(scheduler) == 0
    eventually(lambda: workspace.open() == [], "the end of all claims")


@pytest.mark.slow
@pytest.mark.skipif(clocks.LIBRARY is None, reason="libfaketime is not installed")
def test_a_living_scheduler_bears_each_step_of_the_clock():
    result = clocks.campaign()
    assert not result.wrong, show(result)


@pytest.mark.slow
def test_every_policy_under_schedulers_passes_deliveries_and_hands_that_are_killed_adds_up():
    result = mixed.campaign(seconds=40, seed=4)
    assert not result.wrong, show(result)
    assert result.turns > 20, show(result)
    assert result.kills.get("schedulers"), show(result)


@pytest.mark.slow
@pytest.mark.parametrize("way", flood.WAYS)
def test_what_an_agent_prints_without_end_fills_neither_memory_nor_disk(way, tmp_path):
    found = flood.flood(way, 48, tmp_path / "ws")
    assert not found.wrong, found.line()


@pytest.mark.slow
def test_producers_and_workers_of_a_queue_that_are_killed_add_up():
    result = jobs.campaign(seconds=20, producers=4, every=0.5, seed=5, pace=0.3, least=20)
    assert not result.wrong, show(result)
    assert result.accepted >= 20, show(result)
    assert result.kills, show(result)


@pytest.mark.slow
def test_four_processes_drain_a_queue_and_each_job_is_done_once():
    result = jobs.drain(200)
    assert not result.wrong, show(result)
