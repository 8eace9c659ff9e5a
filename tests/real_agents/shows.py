"""What is shown for each program, each by commands and processes as a person has them.

A show returns one sentence on what was seen, raises `Unmet` with what was found where something
does not hold, and `NotHere` where the program has no such thing.
"""

import json
import time

from tests.real_agents.place import Unmet, need, told

# So long a turn would take if nothing ended it: longer than any of the shows.
_FOREVER_S = 600
# As early as an agent may be woken, and then some for a start on a busy machine.
_WAKE_IN = "1m"
_WOKEN_WITHIN_S = 60 + 90
_WRITTEN_BY_THEN_S = 3


class NotHere(Exception):
    """The program has nothing by which this could be shown; the message says what."""


def _runs(file, then):
    """Return a command that leaves one letter in *file* each time it runs, and then goes on."""
    return f"""python3 -c "open('{file}','a').write('x'); {then}" """.rstrip()


def _texts(request):
    return "\n".join(request["texts"])


def two_turns(place):
    """Two turns in one session: the second request carries the first prompt."""
    place.routine("talk-1", "talk-one-note", "standin: plain", session="named:talk")
    place.routine("talk-2", "talk-two-note", "standin: plain", session="named:talk")
    first = place.turn("talk-1")
    second = place.turn("talk-2")
    request = place.asked("talk-two-note")[0]
    need("talk-one-note" in _texts(request), "the second request does not carry the first prompt")
    need(second["reply"].startswith("I was given"), f"the reply was read as {second['reply']!r}")
    need(
        first["native_session"] == second["native_session"],
        f"the first turn was in {first['native_session']}, the second in"
        f" {second['native_session']}",
    )
    need(second["turn"] == 2, f"it counts as turn {second['turn']}")
    known = second["native_session"] or "a session without an id"
    return f"the second request carried the first prompt; both in {known}"


def used(place):
    """What a turn used is in the record, of that turn alone."""
    records = [place.newest("talk-1"), place.newest("talk-2")]
    usages = [record["usage"] or {} for record in records]
    tokens = [usage.get("tokens") for usage in usages]
    costs = [usage.get("usd") for usage in usages]
    need(any(tokens) or any(costs), f"nothing is recorded: {usages}")
    # Two equal turns: a running total would show as about twice as much.
    for what, (first, second) in (("tokens", tokens), ("cost", costs)):
        if first is None and second is None:
            continue
        need(first and second, f"{what} of only one of two turns: {first}, {second}")
        need(second < 1.6 * first, f"{what} of two equal turns: {first}, then {second}")
    said = [f"{tokens[0]} and {tokens[1]} tokens" if any(tokens) else "no tokens"]
    said.append(f"${costs[0]:.6f} and ${costs[1]:.6f}" if any(costs) else "no cost")
    return f"two equal turns: {', '.join(said)}"


def killed_first_turn(place):
    """A first turn that was killed, and everything with it: the next turn of the session works."""
    slow = f"standin: slow {_FOREVER_S}"
    place.routine("killed", "killed-note", slow, session="named:killed")
    place.routine("after", "after-note", "standin: plain", session="named:killed")
    running = place.start("run", "killed")
    place.wait_asked("killed-note")
    # Long enough for a program that writes down what it asks, soon after it has asked.
    time.sleep(_WRITTEN_BY_THEN_S)
    place.kill_all_of(running)
    record = place.turn("after")
    killed = place.newest("killed")
    need(killed["outcome"] == "interrupted", f"the killed turn reads {told(killed)}")
    carried = "killed-note" in _texts(place.asked("after-note")[-1])
    session = place.json("session", "show", "named:killed")
    if record["epoch"] == killed["epoch"]:
        how = "in the same conversation, which holds the killed prompt"
        if not carried:
            how = "in the same session, which knows nothing of the killed prompt"
        return f"interrupted: {killed['reason']}; the next turn ran {how}"
    need(not carried, "a new epoch, and yet the killed prompt was in it")
    why = session.get("epoch_reason") or session.get("reason") or ""
    return f"interrupted: {killed['reason']}; the next turn ran in epoch {record['epoch']} ({why})"


def killed_at_once(place):
    """A first turn killed before its program had done anything: the next turn works as well."""
    place.routine("early", "early-note", "standin: plain", session="named:early")
    place.routine("late", "late-note", "standin: plain", session="named:early")
    running = place.start("run", "early")
    place.wait("start of the turn", lambda: place.has_started("early"), place.program.slow_s)
    place.kill_all_of(running)
    record = place.turn("late")
    killed = place.newest("early")
    need(killed["outcome"] == "interrupted", f"the killed turn reads {told(killed)}")
    session = place.json("session", "show", "named:early")
    why = session.get("epoch_reason")
    return f"the next turn ran in epoch {record['epoch']}" + (f" ({why})" if why else "")


def prompt_whole(place):
    """A prompt of 150 KiB with marks of all kinds reaches the model as it was written."""
    marks = (
        "whole-note: \"quoted\" 'too' $(echo no) `no` {session} %s \\n <b> & Zürich 日本 \u00a0."
    )
    filler = "".join(f"{number:07} is a line of the filler\n" for number in range(4600))
    prompt = f"{marks}\n{filler}The end of it."
    place.routine("whole", prompt, "standin: plain", session="fresh")
    place.turn("whole")
    sent = _texts(place.asked("whole-note")[0])
    need(marks in sent, f"the marks arrived as {_around(sent, 'whole-note')}")
    need(prompt in sent, f"of {len(prompt)} characters {len(sent)} arrived, and not the same")
    return f"{len(prompt.encode()):,} bytes arrived as they were"


def _around(text, word):
    at = text.find(word)
    return text[max(at - 20, 0) : at + 150]


def at_once(place):
    """Two turns at once in one session: the second is refused, and its program never started."""
    place.routine("long", "long-note", "standin: slow 12", session="named:busy")
    place.routine("other", "other-note", "standin: plain", session="named:busy")
    running = place.start("run", "long")
    place.wait_asked("long-note")
    begun = time.monotonic()
    refused = place.run("run", "other")
    took = time.monotonic() - begun
    need(refused.returncode == 75, f"exit {refused.returncode}: {refused.stderr}")
    need(not place.asked("other-note"), "the refused turn reached the model")
    out, _ = running.communicate(timeout=120)
    need(running.returncode == 0, f"the turn that had the session: {out[-300:]}")
    # And now that it is free again the same turn runs.
    place.turn("other")
    return f"exit 75 after {took:.1f} s; the turn under way ended well, then the other one ran"


def _woken(place, name, *prompt, args=()):
    """Run a turn that sets a wake-up, wait for it, and return record and request of it."""
    note = f"{name}-later-note"
    place.routine(name, f"{name}-note", *prompt, session=f"named:{name}", args=list(args))
    first = place.turn(name)
    if "I was not offered wake" in first["reply"]:
        raise NotHere("no tool named wake was handed over")
    pending = [w for w in place.json("wakeups", "list") if note in json.dumps(w)]
    need(pending, f"nothing is pending; the program answered: {first['reply']}")
    request = place.wait(
        "request of the wake-up", lambda: place.asked(note, "[wake-up w-"), _WOKEN_WITHIN_S
    )[-1]
    need(f"{name}-note" in _texts(request), "it fired into another conversation")

    def settled():
        found = place.json("history", "--session", f"named:{name}", "-n", "5")
        return [r for r in found if r["trigger"] == "wake-up" and r["outcome"]]

    record = place.wait("outcome of the wake-up", settled, 60)[0]
    need(record["outcome"] == "completed", f"the woken turn: {told(record)}")
    need(
        record["native_session"] == first["native_session"],
        f"set in {first['native_session']}, fired in {record['native_session']}",
    )
    return record


def wake_by_command(place):
    """A wake-up set by `routines wake` in the program's shell comes back into the conversation."""
    if not place.program.has_shell:
        raise NotHere("it offers its model no shell")
    scheduler = place.start("start")
    try:
        command = f'standin: shell routines wake --in {_WAKE_IN} "by-command-later-note"'
        record = _woken(place, "by-command", command, args=place.program.wake_args)
    finally:
        _end(scheduler)
    return f"it fired into the same conversation, {_late(record)}"


def wake_by_tool(place):
    """A wake-up set by the tool `wake` that the launcher handed over comes back as well."""
    arguments = json.dumps({"prompt": "by-tool-later-note", "in": _WAKE_IN})
    scheduler = place.start("start")
    try:
        record = _woken(place, "by-tool", f"standin: call wake {arguments}")
    finally:
        _end(scheduler)
    return f"it fired into the same conversation, {_late(record)}"


def _late(record):
    return f"{record['late_s']:.0f} s after its time"


def _end(scheduler):
    scheduler.terminate()
    out, _ = scheduler.communicate(timeout=60)
    need(scheduler.returncode == 0, f"the scheduler ended with {scheduler.returncode}: {out}")


def limit(place):
    """A turn ended at its limit leaves no process, and the next turn does not go on with it."""
    said = _limited(place, "limit")
    return f"timed-out; no process is left; the next turn {said}"


def _limited(place, name):
    """Let a turn run into its limit, look for what is left, and run the next; say what that did."""
    work = f"standin: slow {_FOREVER_S}"
    ran = f"ran-{name}"
    if place.program.has_shell:
        command = _runs(ran, f"import time; time.sleep({_FOREVER_S})")
        work = f"standin: work {_FOREVER_S} {command}"
    place.routine(
        name,
        f"{name}-note",
        work,
        session=f"named:{name}",
        args=list(place.program.shell_args),
        timeout=f"{place.program.slow_s}s",
    )
    place.routine(
        f"{name}-next",
        f"{name}-next-note",
        "standin: plain",
        session=f"named:{name}",
        args=list(place.program.shell_args),
    )
    done = place.run("run", name)
    record = place.newest(name)
    need(record["outcome"] == "timed-out", f"the turn reads {told(record, done)}")
    need(place.asked(f"{name}-note"), "it reached its limit before it reached the model")
    left = place.agent_processes()
    need(not left, f"processes are left: {left}")
    if place.program.has_shell:
        need(place.count(ran) == 1, f"its command ran {place.count(ran)} times")
    before = len(place.standin.requests())
    # Should it go on with the work, then it is not to take as long again.
    place.standin.waits = False
    try:
        following = place.run("run", f"{name}-next")
    finally:
        place.standin.waits = True
    for request in place.standin.requests()[before:]:
        said = _texts(request) if "texts" in request else ""
        mine = f"{name}-note" in said
        # Once more by itself, before it was given the next prompt; or its tool once more.
        if mine and (request["called"] or f"{name}-next-note" not in said):
            raise Unmet("the next turn went on with the one that was ended")
    need(place.count(ran) <= 1, "the next turn did the work of the one that was ended again")
    need(
        following.returncode == 0, f"the next turn: {told(place.newest(f'{name}-next'), following)}"
    )
    request = place.asked(f"{name}-next-note")[-1]
    if f"{name}-note" not in _texts(request):
        return "knows nothing of it"
    marks = [text for text in request["texts"] if _marks_the_end(text)]
    return f"sees that it was ended ({_short(marks[0])})" if marks else "sees only its prompt"


def _marks_the_end(text):
    return "interrupted by user" in text or "<turn_aborted>" in text


def _short(text):
    return json.dumps(" ".join(text.split())[:60])


def interrupted_first(place):
    """Why the preset of Claude Code ends a turn by INT before TERM, seen by leaving it out."""
    if place.program.preset != "claude-code":
        raise NotHere("only for Claude Code")
    going_on = {"CLAUDE_CODE_RESUME_INTERRUPTED_TURN": "1"}
    seen = {}
    for name, stop in (("by-int", ["INT", "TERM", "KILL"]), ("by-term", ["TERM", "KILL"])):
        agent = {"preset": "claude-code", "stop": stop, "env": going_on}
        place.workspace(agent="other", agents={"other": agent})
        try:
            _limited(place, name)
            seen[name] = "not continued"
        except Unmet as error:
            need("went on" in str(error), str(error))
            seen[name] = "continued"
        finally:
            place.workspace()
    expected = {"by-int": "not continued", "by-term": "continued"}
    need(seen == expected, f"with resuming switched on: {seen}")
    return "with resuming switched on, a turn ended by TERM is taken up by the next one, a turn ended by INT is not"


SHOWS = (
    ("two turns", two_turns),
    ("used", used),
    ("killed first turn", killed_first_turn),
    ("killed at once", killed_at_once),
    ("prompt whole", prompt_whole),
    ("two at once", at_once),
    ("wake by command", wake_by_command),
    ("wake by tool", wake_by_tool),
    ("limit", limit),
    ("INT before TERM", interrupted_first),
)
