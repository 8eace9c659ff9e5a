"""One process of the mixed campaign: a scheduler, a pass, a delivery, a run by hand, an act.

    python -m tests.campaigns.hands STATE ACTION [WORD ...] -- sh words

Each does what the command of its name does, with routines that are due every few seconds, which no
file may ask for, and with bounds of wake-ups that a minute is enough to see fire.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta

from routines.domain.limits import DayLimit
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy, OverlapPolicy, Routine
from routines.domain.wakeup import Bounds
from routines.engine.engine import Engine
from routines.engine.lifecycle import Limits
from routines.errors import RoutinesError, SessionBusyError, StoreBusy
from routines.operations.log_lines import log_to
from routines.operations.running import serve
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore
from routines.store.state import open_for_writing
from tests.campaigns.scheduler import Each, stub

SECOND = timedelta(seconds=1)
EACH_S = 3
# So few that they are used up within the campaign.
TURNS_A_DAY = 5
BOUNDS = Bounds(ahead=SECOND, apart=4 * SECOND, pending=5, firings=10_000)
SKIP, BUFFER, SUPERSEDE = OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ONE, OverlapPolicy.SUPERSEDE


def routines():
    """Return one routine for each policy, and some that share a session or a group."""
    again = Retry(attempts=3, first=SECOND, most=2 * SECOND)
    policies = {
        "skip": {},
        "buffer": {"overlap": BUFFER},
        "supersede": {"overlap": SUPERSEDE},
        "supersede-fresh": {"overlap": SUPERSEDE, "session": "fresh"},
        "all": {"catch_up": CatchUpPolicy.ALL, "max_catch_up": 5, "overlap": BUFFER},
        "none": {"catch_up": CatchUpPolicy.NONE},
        "group-a": {"exclusive": "shop", "overlap": BUFFER},
        "group-b": {"exclusive": "shop", "overlap": SUPERSEDE},
        "team-a": {"session": "named:team"},
        "team-b": {"session": "named:team", "overlap": SUPERSEDE},
        "jitter": {"jitter": 2 * SECOND, "start_within": 20 * SECOND, "overlap": BUFFER},
        "rerun": {"rerun_interrupted": 1},
        "limited": {"limits": DayLimit(turns=TURNS_A_DAY)},
        "late": {"start_within": 2 * SECOND},
    }
    return [
        Routine(
            **{
                "name": name,
                "prompt": "say hello",
                "agent": "stub",
                "schedule": Each(EACH_S),
                "retry": again,
                "timeout": timedelta(seconds=60),
                **keys,
            }
        )
        for name, keys in policies.items()
    ]


NAMES = tuple(sorted(one.name for one in routines()))
GROUPED = ("group-a", "group-b")


def engine_of(state, words, *, is_scheduler):
    return Engine(
        state,
        routines=routines(),
        agents=stub(words),
        limits=Limits(concurrency=12, wakeups=BOUNDS),
        is_scheduler=is_scheduler,
    )


async def act(engine, state, action, words):
    """Do *action* once, as its command does."""
    async with engine.opened():
        match action, words:
            case "tick", []:
                await engine.tick()
            case "fire", [name, back]:
                newest = Each(EACH_S).newest_at_or_before(datetime.now(UTC))
                await engine.fire(name, newest - int(back) * EACH_S * SECOND)
            case "run", [name]:
                await engine.run(name)
            case "detach", [name]:
                await engine.detach_run(name)
            case "wake", [session, span]:
                engine.tools(session).wake(f"look <{os.getpid()}>", in_=f"{span}s")
            case "every", [session, span]:
                engine.tools(session).wake(f"look <{os.getpid()}>", every=f"{span}s")
            case "unwake", [session]:
                for one in engine.tools(session).wakeups().data["wakeups"][:2]:
                    engine.tools(session).unwake(one["id"])
            case "pause", [name, span]:
                until = datetime.now(UTC) + int(span) * SECOND
                await engine.pause(name, until=until, reason="campaign")
            case "resume", [name]:
                await engine.resume(name)
            case "cancel", [name]:
                _cancel(state, name)
            case _:
                raise SystemExit(f"{action} {words}: no such act")


def _cancel(path, name):
    state = open_for_writing(path)
    claims = ClaimStore(state)
    for entry in claims.open_entries(routine=name):
        record = claims.read_path(entry.claim_path)
        if record is not None and record.end is None:
            CancelStore(state).ask(
                record.ref, by="ana@campaign", person=True, at=datetime.now(UTC), reason="campaign"
            )


def main(argv):
    at = argv.index("--")
    (state, action, *words), agent = argv[:at], argv[at + 1 :]
    log_to(sys.stderr, "text")
    engine = engine_of(state, agent, is_scheduler=action == "start")
    if action == "start":
        return asyncio.run(serve(engine, grace=10 * SECOND, leave_turns=False))
    try:
        asyncio.run(act(engine, state, action, words))
    except (SessionBusyError, StoreBusy):
        return 75
    except RoutinesError as error:
        sys.stderr.write(f"refused: {error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
