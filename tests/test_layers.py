"""Folders are layers, and imports go one way."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "routines"
MAY_IMPORT = {
    "errors": set(),
    "version": set(),
    "domain": {"errors"},
    "store": {"errors", "domain"},
    "config": {"errors", "domain", "store"},
    "agents": {"errors", "domain", "store"},
    "engine": {"errors", "version", "domain", "store", "config", "agents"},
    "operations": {"errors", "version", "domain", "store", "config", "agents", "engine"},
    "testing": {"errors", "domain", "store", "agents", "engine"},
    "web": {"errors", "version", "domain", "operations"},
    "mcp_server": {"errors", "version", "domain", "operations"},
    # Beside a scheduler, for `start --http`; in its place, for `mcp`.
    "cli": {"errors", "version", "domain", "operations", "web", "mcp_server"},
    "__main__": {"cli"},
    # The public face names everything, when it is asked.
    "__init__": {"errors", "version", "domain", "agents", "engine", "operations"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))
# Each is named by one module alone: what it is trusted with is decided in one place.
ONE_HOME = {
    "filelock": {"store/files.py"},
    "subprocess": {"agents/processes.py"},
    "click": {"cli"},
    "yaml": {"config/reader.py"},
    "prometheus_client": {"web/metrics.py"},
    "starlette": {"web/app.py"},
    "uvicorn": {"web/server.py"},
    "opentelemetry": {"web/spans.py"},
    "mcp": {"mcp_server/server.py"},
    "mcp_types": {"mcp_server/server.py"},
    "anyio": {"mcp_server/server.py"},
    "httpx": {"agents/http_connection.py"},
}
WRITERS = {
    "os.open",
    "os.write",
    "os.link",
    "os.rename",
    "os.replace",
    "os.unlink",
    "os.remove",
    "os.mkdir",
    "os.makedirs",
    "os.rmdir",
    "os.fsync",
    "os.utime",
    "os.truncate",
    "os.symlink",
}


# The type of what `agents/processes.py` starts; called, it would start one itself.
CHILD = {"Child", "processes.Child"}
STARTERS = (
    "os.exec",
    "os.fork",
    "os.popen",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
)


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_the_layers_below_it(path):
    layer = layer_of(path)
    used = {name.split(".")[1] for name in imports(path) if name.startswith("routines.")}

    assert used <= MAY_IMPORT[layer] | {layer}


@pytest.mark.parametrize(("library", "homes"), ONE_HOME.items())
def test_library_is_named_by_the_modules_that_answer_for_it(library, homes):
    named_by = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if library in {name.split(".")[0] for name in imports(path)}
    }

    assert named_by, f"nothing uses {library}: drop the dependency"
    assert {
        name for name in named_by if name not in homes and name.split("/")[0] not in homes
    } == set()


def test_one_module_writes_files():
    found = {}
    for path in MODULES:
        name = str(path.relative_to(PACKAGE))
        if name == "store/files.py":
            continue
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        bad = calls & WRITERS
        if bad:
            found[name] = bad

    assert found == NOT_STATE


def test_one_module_starts_processes():
    found = {}
    for path in MODULES:
        name = str(path.relative_to(PACKAGE))
        if name == "agents/processes.py":
            continue
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        bad = {call for call in calls if call in CHILD or call.startswith(STARTERS)}
        if bad:
            found[name] = bad

    # Two processes try its locks; it is one that `processes.run_probe` has started.
    assert found == {"store/probe.py": {"os.fork"}}


# Writes that are none of the state folder: asking about a lock, the agent's stdin, reading YAML
# without hanging on a pipe, and stdout that goes nowhere once its reader has left.
NOT_STATE = {
    "agents/pump.py": {"os.write"},
    "cli/call.py": {"os.open"},
    "cli/main.py": {"os.open"},
    "config/files.py": {"os.open"},
    "store/locks.py": {"os.open"},
}
