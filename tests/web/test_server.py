"""The server beside a scheduler: who is answered, with what, and what it never disturbs."""

import asyncio
import os
import signal
import threading

import httpx
import pytest

from routines.errors import AddressUnusable, StateUnusable
from routines.operations import vital_signs as vital_signs_module
from routines.web import server as server_module
from routines.web.address import parse_address
from routines.web.server import listen
from tests.engine.stage import MINUTE, Refusing, at, every, once, routine
from tests.web.scraping import companion_of, numbers, scheduler_of

TOKEN = "0123456789abcdef-secret"


# Who is answered --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/metrics", "/health", "/", "/nothing"])
async def test_host_that_is_not_its_own_is_refused(stage, path):
    async with scheduler_of(stage, routine()) as (_, _, client):
        answer = await client.get(path, headers={"Host": "evil.example:9464"})

    assert answer.status_code == 403
    assert "routines" not in answer.text


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /metrics HTTP/1.0\r\n",
        b"GET /metrics HTTP/1.1\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n",
        b"GET http://127.0.0.1/metrics HTTP/1.1\r\nHost: evil.example\r\n",
    ],
    ids=["no host", "no host in 1.1", "two hosts", "in the target alone"],
)
async def test_host_that_is_missing_or_twofold_is_refused(stage, lines):
    async with companion_of(stage) as (companion, _):
        answer = await raw(companion, lines + b"Connection: close\r\n\r\n")

    assert answer.split()[1] in (b"400", b"403")
    assert b"routines_" not in answer


async def raw(companion, data):
    url = httpx.URL(companion.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(data)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \xff",
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/health", "/nothing"])
async def test_wrong_token_is_refused(stage, path, header):
    headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
    async with companion_of(stage, token=TOKEN) as (_, client):
        answer = await client.get(path, headers=headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_token_is_asked_for_after_the_host(stage):
    async with companion_of(stage, token=TOKEN) as (_, client):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        right = await client.get("/metrics", headers=headers)
        wrong = await client.get("/metrics", headers=headers | {"Host": "evil.example"})

    assert (right.status_code, wrong.status_code) == (200, 403)


async def test_every_address_answers_to_the_one_that_it_was_reached_at(stage):
    async with companion_of(stage, http="0.0.0.0:0", token=TOKEN) as (companion, _):
        port = httpx.URL(companion.url).port
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
            here = await client.get(f"http://127.0.0.1:{port}/metrics")
            named = await client.get(
                f"http://127.0.0.1:{port}/metrics", headers={"Host": "evil.example"}
            )

    assert (here.status_code, named.status_code) == (200, 403)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_can_be_changed(stage, method):
    async with companion_of(stage) as (_, client):
        assert (await client.request(method, "/metrics")).status_code == 405


async def test_other_pages_are_not_there(stage):
    async with companion_of(stage) as (_, client):
        codes = {(await client.get(path)).status_code for path in ("/", "/docs", "/metrics/x")}

    assert codes == {404}


async def test_answers_are_kept_by_nobody(stage):
    async with scheduler_of(stage, routine()) as (_, _, client):
        answers = [await client.get(path) for path in ("/metrics", "/health")]

    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
    assert [answer.headers["content-type"] for answer in answers] == [
        "text/plain; version=0.0.4; charset=utf-8",
        "application/json",
    ]


# What is told -----------------------------------------------------------------------------------


async def test_no_text_of_a_turn_is_told(stage):
    def answer(turn):
        if turn.prompt == "FAIL":
            raise ValueError("SECRET error")
        return "SECRET reply"

    stage.agent._answer = answer
    good = routine(schedule=once("08:05"), prompt="SECRET prompt")
    bad = routine("bad", once("08:05"), prompt="FAIL")
    async with scheduler_of(stage, good, bad) as (_, _, client):
        await stage.clock.advance_to(at("08:06"))
        texts = [(await client.get(path)).text for path in ("/metrics", "/health")]

    assert 'outcome="failed",routine="bad"' in texts[0]
    assert not [text for text in texts if "SECRET" in text or "FAIL" in text]


async def health(client):
    answer = await client.get("/health")
    return answer.status_code, answer.json()


async def test_scheduler_that_is_well_says_so(stage):
    async with scheduler_of(stage, routine()) as (_, _, client):
        await stage.clock.advance(MINUTE)
        code, said = await health(client)

    assert (code, said["ok"], said["why"], said["faults"]) == (200, True, [], [])
    assert (said["beat_age_s"], said["last_pass_age_s"]) == (0.0, 0.0)


async def test_scheduler_that_has_not_begun_is_not_well(stage):
    async with companion_of(stage) as (_, client):
        code, said = await health(client)

    assert (code, said["ok"], said["last_pass_age_s"]) == (503, False, None)
    assert [line.partition(":")[0] for line in said["why"]] == ["scheduler", "scheduler"]


async def test_scheduler_whose_loop_hangs_is_not_well(stage):
    async with scheduler_of(stage, routine()) as (_, _, client):
        stage.clock.sleep_machine(MINUTE * 5)
        stage.clock._awake += 300
        code, said = await health(client)

    assert code == 503
    beat, last_pass = said["why"]
    assert beat.startswith("scheduler: on ")
    assert beat.endswith("lives and gives no sign: no beat for 5 m")
    assert last_pass == "scheduler: its last pass ended 300 s ago"


async def test_routine_that_the_store_refuses_is_a_fault_until_it_is_not(stage):
    digest = Refusing([routine(schedule=every(60))], root=stage.root, concurrency=1)
    async with scheduler_of(stage, definitions=digest) as (_, _, client):
        await stage.clock.advance_to(at("09:01"))
        code, said = await health(client)
        assert (code, said["faults"]) == (503, ["digest"])
        assert said["why"] == ["fault: the store refuses digest"]

        digest.mended = True
        await stage.clock.advance_to(at("09:05"))
        assert (await health(client))[0] == 200


async def test_state_folder_that_is_gone_is_not_well(stage):
    async with scheduler_of(stage, routine()) as (_, _, client):
        os.rename(stage.path, stage.path + ".moved")
        code, said = await health(client)
        found = await numbers(client)
        os.rename(stage.path + ".moved", stage.path)

    assert code == 503
    assert said["why"][0].startswith("scheduler: none is alive")
    assert found["routines_schedulers"] == {(): 0.0}


# What it never disturbs -------------------------------------------------------------------------


@pytest.fixture
def stuck(monkeypatch):
    """Reading the state folder does not come back until this is set."""
    let_go = threading.Event()
    looks = []

    def hang(context):
        looks.append(context)
        let_go.wait(60)
        raise StateUnusable("it never answered")

    monkeypatch.setattr(server_module, "vital_signs", hang)
    monkeypatch.setattr(server_module, "complaints", hang)
    yield looks
    let_go.set()


async def test_files_that_do_not_answer_hold_up_no_scrape(stage, stuck):
    async with scheduler_of(stage, routine(schedule=once("08:05")), patience_s=0.01) as found:
        _, _, client = found
        await stage.clock.advance_to(at("08:06"))
        scrapes = await asyncio.gather(*(numbers(client) for _ in range(5)))
        code, said = await health(client)

    assert {scrape["routines_files_read"][()] for scrape in scrapes} == {0.0}
    assert len(scrapes[0]["routines_fires_total"]) == 1
    assert (code, said["why"]) == (503, ["state: the files did not answer within 0.01 s"])
    # One for the numbers and one for the health, however many ask.
    assert len(stuck) == 2


async def test_files_that_cannot_be_read_leave_the_other_numbers(stage, monkeypatch, caplog):
    def refuse(context):
        raise StateUnusable("permission denied")

    monkeypatch.setattr(server_module, "vital_signs", refuse)
    async with companion_of(stage) as (_, client):
        found = await numbers(client)

    assert found["routines_files_read"] == {(): 0.0}
    assert "vital-signs-not-read" in caplog.messages


async def test_fault_of_ours_tells_nothing_of_our_insides(stage, monkeypatch, caplog):
    def broken(context):
        raise ZeroDivisionError("SECRET")

    monkeypatch.setattr(server_module, "complaints", broken)
    async with companion_of(stage) as (_, client):
        answer = await client.get("/health")

    assert (answer.status_code, answer.text) == (500, "failed; the log says why\n")
    assert "http-failed" in caplog.messages


async def test_looking_at_the_files_happens_off_the_loop(stage, monkeypatch):
    threads = []

    def note(context):
        threads.append(threading.current_thread())
        return vital_signs_module.vital_signs(context)

    monkeypatch.setattr(server_module, "vital_signs", note)
    async with companion_of(stage) as (_, client):
        await numbers(client)

    assert threads
    assert threading.main_thread() not in threads


async def test_asking_writes_nothing(stage):
    async with scheduler_of(stage, routine()) as (_, _, client):
        before = {path: os.stat(path).st_mtime_ns for path in files_below(stage.path)}
        await numbers(client)
        await health(client)
        after = {path: os.stat(path).st_mtime_ns for path in files_below(stage.path)}

    assert before == after


def files_below(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


async def test_signals_are_left_to_the_scheduler(stage):
    loop = asyncio.get_running_loop()
    told = []
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.append, number)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with companion_of(stage) as (_, client):
        await numbers(client)
        assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
        os.kill(os.getpid(), signal.SIGTERM)
        await numbers(client)
        assert told == [signal.SIGTERM]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)


async def test_rubbish_is_refused_and_not_logged(stage, caplog):
    async with companion_of(stage) as (companion, client):
        answer = await raw(companion, b"\x16\x03\x01 rubbish\r\n\r\n")
        await numbers(client)

    assert answer.startswith(b"HTTP/1.1 400")
    assert caplog.messages == []


async def test_server_that_fails_ends_no_slot(stage, monkeypatch, caplog):
    async def broken(self, sockets=None):
        raise SystemExit(3)

    monkeypatch.setattr(server_module._Server, "serve", broken)
    async with scheduler_of(stage, routine(schedule=once("08:05"))):
        await stage.clock.advance_to(at("08:06"))

    assert stage.history() == ["08:05 completed"]
    assert "http-failed" in caplog.messages


async def test_open_connections_hold_up_no_stop(stage):
    async with companion_of(stage) as (companion, client):
        await numbers(client)
        url = httpx.URL(companion.url)
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"GET /metrics HT")
        await writer.drain()

    writer.close()


async def test_port_is_free_again_after_the_stop(stage):
    async with companion_of(stage) as (companion, client):
        await numbers(client)
        port = httpx.URL(companion.url).port
        with pytest.raises(AddressUnusable):
            listen(parse_address(f"127.0.0.1:{port}"))
    listen(parse_address(f"127.0.0.1:{port}")).close()
