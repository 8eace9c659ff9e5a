"""Coroutines as tests, and a stage to play on."""

import asyncio
import inspect

import pytest

from tests.engine.stage import Stage

# A test that hangs is a failure that says where; none comes near this.
_LIMIT_S = 120.0
# A day, minute by minute, on a machine that does other things too.
_LIMIT_OF_SLOW_S = 600.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    limit = _LIMIT_S if pyfuncitem.get_closest_marker("slow") is None else _LIMIT_OF_SLOW_S
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def limited():
        async with asyncio.timeout(limit):
            await pyfuncitem.obj(**arguments)

    asyncio.run(limited())
    return True


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)
