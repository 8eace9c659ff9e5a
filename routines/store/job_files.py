"""Which job was accepted under an id: `jobs/ids/<ab>/<key>.json`, a job whole.

The name is the acceptance. One that can't be read is no job, and nothing else may take its place:
it is kept aside only by whoever holds what keeps a job from being added there.
"""

import json
import logging

from routines.domain.job import Job
from routines.domain.names import key_of
from routines.errors import StoreError
from routines.store import files
from routines.store.state import State

log = logging.getLogger("routines")


class JobFiles:
    """The accepted jobs of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def path(self, key: str) -> str:
        """Return the name that is the acceptance of the job with that key."""
        return self._state.at("jobs", "ids", key[:2], f"{key}.json")

    def read(self, key: str) -> Job | None:
        """Return the job that was accepted under a key; None if none was, or it can't be read."""
        data = files.read(self.path(key))
        return None if data is None else _decode(data, key)

    def set_aside(self, key: str) -> None:
        """Keep what can't be read under a key as `.corrupt`, if there is something.

        Whoever calls has found that it can't, and holds what keeps a job from being added there.
        """
        path = self.path(key)
        if files.exists(path):
            aside = files.set_aside(path)
            log.error("job-unreadable", extra={"path": path, "kept": aside})


def in_the_way(path: str) -> StoreError:
    """Return the error of an id under which something is that can't be read."""
    return StoreError(
        f"{path} is in the way, and can't be read",
        hint="nothing was added; look into it, and remove it if its id may be used again",
        path=path,
    )


def encode_job(job: Job) -> bytes:
    """Return the content of the file of a job."""
    text = json.dumps(job.to_json(), ensure_ascii=False)
    # Half a surrogate pair has no UTF-8; its escape means the same to a reader of JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _decode(data: bytes, key: str) -> Job | None:
    try:
        found = Job.from_json(json.loads(data))
    except (ValueError, RecursionError):
        return None
    # A copy that was put under another name is not what that name means.
    return found if found is not None and key_of(found.id) == key else None
