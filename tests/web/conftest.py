"""Coroutines as tests, a stage for the engine, and a workspace for the command line."""

from tests.engine.conftest import pytest_pyfunc_call, stage
from tests.surfaces.conftest import ws

__all__ = ["pytest_pyfunc_call", "stage", "ws"]
