"""`start --http` as it is typed: what is refused, and that nothing is armed then."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

import routines.web
from routines.operations import running
from routines.web.opening import opened
from tests.acceptance.helpers import environment, eventually
from tests.web.scraping import context_of, samples

TOKEN = "0123456789abcdef-secret"
SERVING = {f"routines.web.{name}" for name in ("server", "app", "metrics", "sharing", "spans")}


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def armed(ws):
    return os.path.exists(ws.root / ".routines" / "schedulers")


def test_taken_port_is_said_before_anything_is_armed(ws, taken):
    answer = ws.ask("start", "--http", f"127.0.0.1:{taken}")

    assert answer.code == 1
    assert answer.err.splitlines() == [
        f"Error: can't listen on 127.0.0.1:{taken}: address already in use; nothing was started",
        "Hint: another scheduler, or another program, has it: give another port",
    ]
    assert not armed(ws)


def test_taken_port_has_a_code(ws, taken):
    answer = ws.ask("--json", "start", "--http", f"127.0.0.1:{taken}")

    assert json.loads(answer.out)["error"]["code"] == "address-unusable"


def test_address_of_another_machine_is_refused(ws):
    ws.environ["ROUTINES_HTTP_TOKEN"] = TOKEN
    answer = ws.ask("start", "--http", "192.0.2.7:0")

    assert answer.code == 1
    assert "can't listen on 192.0.2.7:0" in answer.err
    assert not armed(ws)


@pytest.mark.parametrize("http", ["0.0.0.0:0", "[::]:0", "192.0.2.7:0"])
def test_address_that_others_reach_needs_a_token(ws, http):
    answer = ws.ask("start", "--http", http)

    assert answer.code == 2
    assert "there is no token" in answer.err
    assert "ROUTINES_HTTP_TOKEN" in answer.err
    assert not armed(ws)


@pytest.mark.parametrize("token", ["short", "with a space in the middle", "ünïcödé-ünïcödé-ü"])
def test_token_that_could_be_guessed_or_not_be_sent_is_refused(ws, token):
    ws.environ["ROUTINES_HTTP_TOKEN"] = token
    answer = ws.ask("start", "--http", "127.0.0.1:0")

    assert answer.code == 2
    assert token not in answer.err
    assert not armed(ws)


def test_address_without_a_port_is_called_wrongly(ws):
    answer = ws.ask("start", "--http", "9464")

    assert answer.code == 2
    assert "Hint: write it as 127.0.0.1:9464" in answer.err


@pytest.mark.parametrize("module", ["prometheus_client", "starlette", "uvicorn"])
def test_missing_extra_is_said_with_what_to_install(ws, monkeypatch, module):
    for name in [*sys.modules]:
        if name.split(".")[0] == module or name in SERVING:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(routines.web, "server", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    # Were it not missed, the scheduler would run until somebody stops it.
    monkeypatch.setattr(running, "start", lambda *_, **__: 99)
    answer = ws.ask("start", "--http", "127.0.0.1:0")

    assert answer.code == 1
    assert f"Error: --http needs {module}" in answer.err
    assert "Hint: pip install 'agent-routines[server]'" in answer.err
    assert not armed(ws)


def test_token_is_asked_for_on_this_machine_too(stage):
    with opened("127.0.0.1:0", context_of(stage, ROUTINES_HTTP_TOKEN=f" {TOKEN}\n")) as companion:
        assert companion._app._token == TOKEN.encode()


def test_scheduler_serves_until_it_is_stopped(ws):
    # Of another interpreter: the scheduler has its own signals and its own loop.
    words = [sys.executable, "-m", "routines", "start", "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        words,
        cwd=ws.root,
        env=environment(HOME=str(ws.root)),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as scheduler:
        try:
            line = next(line for line in scheduler.stderr if line.startswith("http "))
            url = line.split()[1]

            def look():
                with urllib.request.urlopen(url, timeout=30) as answer:
                    found = samples(answer.read().decode())
                return found if found["routines_schedulers"][()] else None

            found = eventually(look)
            assert found["routines_heartbeat_age_seconds"][()] < 60
        finally:
            scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(timeout=60) == 0
        assert "event=stopped" in scheduler.stderr.read()
