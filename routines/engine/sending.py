"""A process that hands over one text and ends: what hangs in it can be ended, and harms nobody.

A file on a dead file server, a name server that does not answer and a library of others all may
block for ever; none of them may hold up a turn or a scheduler. It gets one JSON object on stdin
(a command line would show the tokens in a URL to everybody on the machine), exits with 0 when the
text was handed over, and says in one line on stderr why not.
"""

import json
import re
import sys
from typing import Any

from routines.domain.outcome import one_line
from routines.errors import RoutinesError
from routines.version import VERSION

EXTRA_MISSING = "apprise is not installed: pip install 'agent-routines[alerts]'"
# A web server that answers later than this is down; the whole has its own limit.
_WEB_TIMEOUT_S = 10
# Parts of a URL that are as long as this may be a key.
_SECRET = re.compile(r"[^/:@?&=#]{6,}")


class NotSent(Exception):
    """The text was not handed over; the message says why."""


def main() -> int:
    """Send what stdin says."""
    task = json.loads(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    try:
        _SENDERS[task["kind"]](task)
    except (NotSent, RoutinesError, OSError) as error:
        sys.stderr.write(_without_secrets(one_line(str(error)), task["where"]) + "\n")
        return 1
    return 0


def _without_secrets(text: str, url: str) -> str:
    """Return *text* without the parts of *url* that may be keys."""
    _, web, rest = url.partition("://")
    if web:
        for part in sorted(_SECRET.findall(rest), key=len, reverse=True):
            text = text.replace(part, "***")
    return text


def _to_file(task: dict[str, Any]) -> None:
    from routines.store import replies

    if replies.is_folder(task["where"]):
        replies.put(task["where"], task["name"], task["body"].rstrip("\n") + "\n")
    else:
        body = task["body"].strip("\n")
        replies.add(task["where"], f"## {task['title']}\n\n{body}\n")


def _to_url(task: dict[str, Any]) -> None:
    try:
        import apprise  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise NotSent(EXTRA_MISSING) from None
    import logging

    # What the library says about a failure is the only reason there is.
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("apprise").addHandler(handler)
    sender = apprise.Apprise()
    if not sender.add(task["where"]):
        raise NotSent(f"apprise can't use this URL{_because(said)}")
    if not sender.notify(title=task["title"], body=task["body"], body_format="text"):
        raise NotSent(f"apprise could not send it{_because(said)}")


def _because(said: list[str]) -> str:
    return f": {said[-1]}" if said else ""


def _ping(task: dict[str, Any]) -> None:
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    request = Request(task["where"], headers={"User-Agent": f"routines/{VERSION}"})  # noqa: S310 - http and https alone are let through by the reader of the file
    try:
        with urlopen(request, timeout=_WEB_TIMEOUT_S):  # noqa: S310 - the same
            pass
    except URLError as error:
        raise NotSent(str(error.reason if not hasattr(error, "code") else error)) from None


_SENDERS = {"file": _to_file, "url": _to_url, "ping": _ping}
