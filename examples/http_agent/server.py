"""A small server that answers turns: `python server.py [--port 8765]`.

It keeps one conversation for each session, in memory, works on one turn of a session at a time,
and gives a key that it has seen the answer that it gave before. In the place of `answer` stands
your agent. Needs starlette and uvicorn.
"""

import argparse
import asyncio

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

conversations: dict[str, list[str]] = {}
working: set[str] = set()
answered: dict[str, dict[str, str]] = {}


async def answer(prompt: str, before: list[str]) -> str:
    """The agent: what it says to *prompt*, with all that was said *before* in mind."""
    await asyncio.sleep(0)
    return f"I have been asked {len(before)} times before. Now: {prompt}"


async def turn(request: Request) -> JSONResponse:
    """POST /turn: a session and a prompt in, a reply out."""
    asked = await request.json()
    session, key = asked["session"], request.headers["idempotency-key"]
    if key in answered:
        return JSONResponse(answered[key])
    if session in working:
        return JSONResponse({"code": "session_busy"}, status_code=409)
    working.add(session)
    try:
        before = conversations.setdefault(session, [])
        reply = await answer(asked["prompt"], before)
        before.append(asked["prompt"])
        answered[key] = {"reply": reply}
        return JSONResponse(answered[key])
    finally:
        working.discard(session)


# Runs that outlive whoever asked for them ---------------------------------------------------------

runs: dict[str, dict[str, str]] = {}
# The loop itself keeps only weak references to tasks.
tasks: dict[str, asyncio.Task[None]] = {}


async def work(run: dict[str, str]) -> None:
    """The agent, at something that takes its time."""
    await asyncio.sleep(3)
    run.update(status="succeeded", reply=f"Done: {run['prompt']}")


async def start(request: Request) -> JSONResponse:
    """POST /runs: the same key is the same run, always."""
    key = request.headers["idempotency-key"]
    if key not in runs:
        asked = await request.json()
        runs[key] = {"id": f"run-{len(runs) + 1}", "status": "working", "prompt": asked["prompt"]}
        tasks[runs[key]["id"]] = asyncio.create_task(work(runs[key]))
    return JSONResponse(runs[key], status_code=202)


async def inspect(request: Request) -> JSONResponse:
    """GET /runs/ID: where it stands."""
    for run in runs.values():
        if run["id"] == request.path_params["id"]:
            return JSONResponse(run)
    return JSONResponse({"error": "there is no such run"}, status_code=404)


async def cancel(request: Request) -> JSONResponse:
    """POST /runs/ID/cancel: end it; twice is once."""
    for run in runs.values():
        if run["id"] == request.path_params["id"] and run["status"] == "working":
            tasks[run["id"]].cancel()
            run["status"] = "cancelled"
    return JSONResponse({}, status_code=202)


app = Starlette(
    routes=[
        Route("/turn", turn, methods=["POST"]),
        Route("/runs", start, methods=["POST"]),
        Route("/runs/{id}", inspect),
        Route("/runs/{id}/cancel", cancel, methods=["POST"]),
    ]
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8765)
    # On this machine alone: whoever can post here can make your agent work.
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning")
