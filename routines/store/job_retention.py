"""What of the queue is kept and what goes: ids for 30 days after their job has ended, and the feed.

Never removed: what is queued or has no outcome, and the newest part of the feed, whose numbers go
on from it.
"""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta

from routines.domain.clock import Clock
from routines.domain.job import REMEMBERED
from routines.store import files
from routines.store.job_feed import JobFeed
from routines.store.jobs import JobStore
from routines.store.state import State

# A part of the ids each hour: of 100,000 that takes 0.03 s where none is old enough, and 0.6 s
# where the whole part goes. All at once they would hold a look up for 0.4 s, and for 17 s.
_PARTS = 16


@dataclass(slots=True)
class PrunedJobs:
    """What was removed.

    Attributes:
        ids: Ids that were forgotten.
        settled: Entries of the feed.
    """

    ids: int = 0
    settled: int = 0


class JobRetention:
    """Removes what need not be kept of one queue."""

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._state = state
        self._jobs = JobStore(state, clock=clock)
        self._feed = JobFeed(state)

    def prune(self, *, days: int, now: datetime, everything: bool) -> PrunedJobs:
        """Remove what is old enough. OSError if something can't be removed.

        Args:
            days: How long entries of the feed are kept.
            now: The present.
            everything: Whether all ids are looked at, and not a part of them.
        """
        pruned = PrunedJobs()
        self._prune_feed(now - timedelta(days=days), pruned)
        part = int(now.timestamp() // 3600) % _PARTS
        root = self._state.at("jobs", "ids")
        for shard in files.names(root):
            if everything or (shard[:2].isalnum() and int(shard[:2], 16) % _PARTS == part):
                self._prune_ids(os.path.join(root, shard), now, pruned)
        return pruned

    def _prune_feed(self, before: datetime, pruned: PrunedJobs) -> None:
        # The newest bucket says which number comes next.
        for bucket in self._feed.buckets()[:-1]:
            if files.changed_names(bucket, before.timestamp()):
                break
            pruned.settled += self._feed.drop_bucket(bucket)

    def _prune_ids(self, folder: str, now: datetime, pruned: PrunedJobs) -> None:
        young = set(files.changed_names(folder, (now - REMEMBERED).timestamp()))
        for name in files.names(folder):
            if name in young or not name.endswith(".json"):
                continue
            if self._may_go(name.removesuffix(".json"), now):
                pruned.ids += files.remove(os.path.join(folder, name))

    def _may_go(self, key: str, now: datetime) -> bool:
        known = self._jobs.find_by_key(key)
        if known is None or known.is_queued:
            return False
        ended = None if known.record is None else known.record.ended_at
        # A record that is gone was older than that, or its owner keeps them for less.
        return known.record is None or (ended is not None and now - ended > REMEMBERED)
