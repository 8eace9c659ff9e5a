"""Files that hold JSON which routines never writes: nothing is decoded from it, and nothing breaks."""

import json
from pathlib import Path
from typing import Any

import pytest

from routines.domain.alerting import Told
from routines.domain.job import Job
from routines.domain.record import Owner, fold
from routines.domain.wakeup import Wakeup
from routines.store import objects
from routines.store.alerts import _decode as alerts
from routines.store.cursors import _decode_cursor as cursor
from routines.store.cursors import _decode_missed as missed
from routines.store.job_files import _decode as job
from routines.store.job_purges import _decode as purge
from routines.store.schedulers import _scheduler
from routines.store.sessions import decode_ledger
from routines.store.switches import _switch
from routines.store.wake_entries import _decode as wakeup
from tests.builders import owner, scheduler, slot

DEEP = "[" * 10_000 + "]" * 10_000
HOSTILE = ["1e400", "-1e400", "NaN", "5", "true", '""', "[]", "{}", DEEP, '"../../x"', "1" * 5000]
hostile = pytest.mark.parametrize("value", HOSTILE, ids=lambda value: value[:9])

DECODERS = {
    "ledger": decode_ledger,
    "cursor": cursor,
    "missed": lambda data: missed(data, "x"),
    "job": lambda data: job(data, "x"),
    "purge": lambda data: purge(data, "x"),
    "alerts": alerts,
    "wakeup": lambda data: wakeup(data, "x", "x"),
}
# An instant in each that is read before the numbers.
AT = "2026-07-01T09:00:00Z"
MISSED = {"routine": "a", "after": AT, "from": AT, "to": AT, "count": 1, "reason": "downtime"}
MISSED |= {"detail": "", "schedule": None, "at": AT, "by": "ana"}
TOLD = dict.fromkeys(("at", "recovered_at", "sending_at", "again_at"), AT)
TOLD |= {"open": True, "kind": "", "word": "", "title": "", "body": "", "unsent": [], "tries": 1}
TOLD |= {"results": []}
PURGE = {"queue": "q", "until": 1, "by": "ana", "at": AT, "meant": None}


@hostile
@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
def test_a_file_that_is_some_other_json_is_none_of_ours(decode: Any, value: str) -> None:
    assert not decode(value.encode())


@hostile
@pytest.mark.parametrize(
    ("decode", "content", "key"),
    [
        (DECODERS["missed"], MISSED, "count"),
        (DECODERS["purge"], PURGE, "until"),
        (lambda data: alerts(b'{"routine": "a", "turns": %s}' % data), TOLD, "tries"),
    ],
    ids=["missed", "purge", "alerts"],
)
def test_a_number_that_is_none_breaks_no_decoder(
    decode: Any, content: dict[str, Any], key: str, value: str
) -> None:
    text = json.dumps(content | {key: "HERE"}).replace('"HERE"', value)
    decode(text.encode())


@hostile
def test_an_object_is_read_from_nothing_else(tmp_path: Path, value: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(value)
    found = objects.read(str(path))
    assert found in (None, {})
    assert (_switch(found), _scheduler(found)) == (None, None)


SHALLOW = [float("inf"), float("-inf"), float("nan"), 5, True, "", [], {}, "../../x", None]


@pytest.mark.parametrize("value", SHALLOW, ids=repr)
def test_no_field_of_an_object_breaks_who_reads_it(value: Any) -> None:
    for name in owner().to_json():
        Owner.from_json(owner().to_json() | {name: value})
    for name in scheduler().to_json():
        _scheduler(scheduler().to_json() | {name: value})
    for read in (Job.from_json, Wakeup.from_json, Owner.from_json):
        assert read(value) is None
    with pytest.raises((ValueError, KeyError, TypeError)):
        Told.from_json(value)


@pytest.mark.parametrize("pid", [float("inf"), True, 0, -1, 2**40, "7", None])
def test_what_is_no_process_owns_nothing(pid: Any) -> None:
    assert Owner.from_json(owner().to_json() | {"pid": pid}) is None


@hostile
def test_what_a_claim_says_of_its_cost_is_a_number_or_nothing(value: str) -> None:
    line = '{"event":"outcome","outcome":"completed","usage":{"tokens":HERE,"usd":HERE}}'
    record = fold([line.replace("HERE", value).encode()], occurrence=slot())
    assert record.usage in ({}, {"tokens": 5, "usd": 5})
