"""What a turn is to do, decided once and handed over whole.

The scheduler writes it as one file; the turn process reads nothing else of the definition, unless
the file has been edited since.
"""

import json
import os
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from routines.domain.agent import AgentSpec
from routines.domain.limits import DayLimit
from routines.domain.retry import USUAL, Retry
from routines.domain.routine import DEFAULT_TIMEOUT, Routine, schedule_key
from routines.domain.targets import Target

# Path, time, size and inode of a file: another of them means that it was written since.
Signature = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One turn's instructions.

    Attributes:
        root: The workspace.
        routine: Whose definition this is; None for a session without one.
        agent: How the agent is driven; None for one that lives in the engine's own process.
        agent_name: The agent as the ledger knows it: another name begins a new epoch.
        prompt: Exactly what the agent gets.
        args: Words added to its command.
        model: Handed over as the agent's entry says.
        cwd: Where it runs; absolute.
        env: Added to its environment.
        env_file: Absolute path of KEY=VALUE lines, or None.
        timeout: How long the turn may take with its gates, awake.
        start_within: How late it may start; None for no limit.
        only_if: The gate, or None.
        retry: What is tried again, and how often.
        rerun_interrupted: How often an interrupted turn may be run again.
        schedule: The spec of its schedule, whose next slot ends all retries; None without one.
        verify: The command that judges a completed turn, or None.
        exclusive: The group in which one turn runs at a time, or None.
        limits: Of this routine and of the workspace, as far as there are any.
        session_turns: After so many turns a new epoch; None for no limit.
        deliver: Where the reply goes.
        quiet: A reply that is exactly this goes nowhere, or None.
        wake_tools: Whether the wake tools are handed to an agent whose program takes them.
        digest: The definition's name, noted in `started`.
        files: What the definition was read from, as it was then.
    """

    root: str
    routine: str | None
    agent: AgentSpec | None
    agent_name: str
    prompt: str
    args: tuple[str, ...] = ()
    model: str | None = None
    cwd: str = ""
    env: tuple[tuple[str, str], ...] = ()
    env_file: str | None = None
    timeout: timedelta = DEFAULT_TIMEOUT
    start_within: timedelta | None = None
    only_if: tuple[str, ...] | None = None
    retry: Retry = USUAL
    rerun_interrupted: int = 0
    schedule: dict[str, Any] | None = None
    verify: tuple[str, ...] | None = None
    exclusive: str | None = None
    limits: tuple[DayLimit, ...] = ()
    session_turns: int | None = None
    deliver: tuple[Target, ...] = ()
    quiet: str | None = None
    wake_tools: bool = True
    digest: str | None = None
    files: tuple[Signature, ...] = ()

    def with_prompt(self, prompt: str) -> "Work":
        """Return the same work with another prompt."""
        return replace(self, prompt=prompt)

    def is_edited(self) -> bool:
        """Return whether a file of the definition has been written since it was read."""
        return any(signature(path) != (path, *rest) for path, *rest in self.files)

    def encode(self) -> bytes:
        """Return the content of the file that is handed to a turn process."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        data["agent"] = None if self.agent is None else self.agent.to_json()
        data["deliver"] = [target.to_json() for target in self.deliver]
        data["timeout"] = self.timeout.total_seconds()
        data["start_within"] = (
            None if self.start_within is None else self.start_within.total_seconds()
        )
        data["retry"] = self.retry.to_json()
        data["limits"] = [limit.to_json() for limit in self.limits]
        return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_work(data: bytes) -> Work:
    """Return what `Work.encode` wrote."""
    found: dict[str, Any] = json.loads(data.decode("utf-8", "surrogatepass"))
    within, gate, verify = found["start_within"], found["only_if"], found["verify"]
    found |= {
        "agent": None if found["agent"] is None else AgentSpec.from_json(found["agent"]),
        "args": tuple(found["args"]),
        "env": tuple((key, value) for key, value in found["env"]),
        "timeout": timedelta(seconds=found["timeout"]),
        "start_within": None if within is None else timedelta(seconds=within),
        "only_if": None if gate is None else tuple(gate),
        "verify": None if verify is None else tuple(verify),
        "retry": Retry.from_json(found["retry"]),
        "limits": tuple(DayLimit(**limit) for limit in found["limits"]),
        "deliver": tuple(Target.from_json(one) for one in found["deliver"]),
        "files": tuple((path, at, size, inode) for path, at, size, inode in found["files"]),
    }
    return Work(**found)


def signature(path: str) -> Signature:
    """Return what tells whether *path* has been written; zeros if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return (path, 0, 0, 0)
    return (path, found.st_mtime_ns, found.st_size, found.st_ino)


def work_of(
    routine: Routine,
    *,
    root: str,
    agent: AgentSpec | None,
    agent_name: str,
    files: tuple[Signature, ...] = (),
    limits: tuple[DayLimit, ...] = (),
) -> Work:
    """Return the work that a routine's definition asks for.

    Args:
        routine: The definition.
        root: The workspace.
        agent: How its agent is driven.
        agent_name: The agent's name.
        files: What it was read from.
        limits: The workspace's.
    """
    if routine.limits is not None:
        limits = (replace(routine.limits, routine=routine.name, zone=routine.zone), *limits)
    return Work(
        root=root,
        routine=routine.name,
        agent=agent,
        agent_name=agent_name,
        prompt=routine.prompt,
        args=routine.args,
        model=routine.model,
        cwd=routine.cwd or root,
        env=routine.env,
        env_file=routine.env_file,
        timeout=routine.timeout,
        start_within=routine.start_within,
        only_if=routine.only_if,
        retry=routine.retry,
        rerun_interrupted=routine.rerun_interrupted,
        schedule=schedule_key(routine),
        verify=routine.verify,
        exclusive=routine.exclusive,
        limits=limits,
        session_turns=routine.session_turns,
        deliver=routine.deliver,
        quiet=routine.quiet,
        wake_tools=routine.wake_tools,
        digest=routine.digest(),
        files=files,
    )
