"""A scheduler with a fake clock and a real server, and what a monitor reads from it."""

import contextlib
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from routines.operations.context import Context
from routines.operations.vital_signs import anew
from routines.web.address import parse_address
from routines.web.server import Companion, listen


def context_of(stage, **environ):
    """The context of the stage's folder: its clock, and no other environment."""
    Path(stage.root, "routines.yaml").touch()
    return anew(
        Context(
            explicit_root=stage.root,
            environ={"HOME": stage.root, **environ},
            cwd=stage.root,
            clock=stage.clock,
        )
    )


@contextlib.asynccontextmanager
async def companion_of(stage, http="127.0.0.1:0", **options):
    """A companion that answers for the block, and a client that knows where it is."""
    address = parse_address(http)
    context = context_of(stage)
    listening = listen(address)
    companion = Companion(context, address=address, listening=listening, **options)
    async with (
        companion.alongside(),
        httpx.AsyncClient(base_url=companion.url, trust_env=False) as client,
    ):
        yield companion, client


@contextlib.asynccontextmanager
async def scheduler_of(stage, *routines, definitions=None, **options):
    """An engine, a companion that it tells, and a client."""
    async with companion_of(stage, **options) as (companion, client):
        hooks = {"on_event": companion.on_event, "on_pass": companion.on_pass}
        if definitions is not None:
            hooks["routines"] = definitions
        async with stage.running(*routines, **hooks) as engine:
            yield engine, companion, client


def samples(text):
    """`{name: {labels as sorted pairs: value}}` of what was scraped."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


async def numbers(client):
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    return samples(answer.text)


def labels(**known):
    return tuple(sorted(known.items()))
