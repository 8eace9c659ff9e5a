"""The numbers of one scheduler for Prometheus: the one module that names its library.

Events are counted as they happen, the rest is read from the files when somebody asks. Labels are
closed lists, but for routines, of which so many are told apart; no text of a person or a model is
in any of them.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from routines.domain.outcome import Outcome, Reason, one_line
from routines.operations.vital_signs import VitalSigns
from routines.version import VERSION

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
# Each costs some fifty series; a workspace has a few dozen, and a mistake that makes thousands
# must not fill the memory of the scheduler and of the monitor.
MOST_ROUTINES = 100
# In parentheses: no routine can have such a name.
OTHER, NONE = "(other)", "(none)"
# A name has at most 100 characters; what escaping adds is cut.
_LONGEST_LABEL = 120

# 10 ms to 5 min: below is noise, above is what alerts are for.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
# Turns of an hour are usual.
_TURN_SECONDS = (*_SECONDS, 900, 3600)

_OUTCOMES = frozenset(outcome.value for outcome in Outcome)
_REASONS = frozenset(reason.value for reason in Reason)
_PUT_OFF = ("retrying", "parked")


class Happening(Protocol):
    """An event of the engine."""

    @property
    def name(self) -> str:
        """A stable word."""

    @property
    def ref(self) -> str:
        """The occurrence or routine."""

    @property
    def data(self) -> Mapping[str, Any]:
        """Facts about it."""


class Names:
    """Routines as labels: escaped, and no more than so many of them."""

    def __init__(self, most: int = MOST_ROUTINES) -> None:
        self._most = most
        self._known: dict[str | None, str] = {None: NONE}

    def label(self, name: object) -> str:
        """Return the label of a routine; `(other)` for those that came too late."""
        key = None if name is None else str(name)
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) > self._most:
            return OTHER
        # A surrogate, as of a file name that is no UTF-8, can't be sent; one_line escapes it.
        return self._known.setdefault(key, one_line(str(name), most=_LONGEST_LABEL))


class _FromFiles(Collector):
    """What was read from the files for this scrape; nothing where they did not answer."""

    def __init__(self) -> None:
        self.signs: VitalSigns | None = None

    def collect(self) -> Iterator[Metric]:
        signs = self.signs
        yield GaugeMetricFamily(
            "routines_files_read",
            "Whether the state folder could be read for this scrape: 1 or 0.",
            value=float(signs is not None),
        )
        if signs is None:
            return
        claims = GaugeMetricFamily(
            "routines_open_claims", "Claims without an outcome.", labels=["state"]
        )
        for state, count in signs.open_claims.items():
            claims.add_metric([state], count)
        yield claims
        yield GaugeMetricFamily(
            "routines_pending_wakeups", "Wake-ups that have not fired.", value=signs.wakeups
        )
        yield GaugeMetricFamily(
            "routines_schedulers", "Schedulers alive on the state folder.", value=signs.schedulers
        )
        if signs.beat_age_s is not None:
            yield GaugeMetricFamily(
                "routines_heartbeat_age_seconds",
                "How old the last heartbeat of this scheduler is.",
                value=signs.beat_age_s,
            )


class Metrics:
    """The numbers of one scheduler, in a registry of their own.

    Args:
        pass_age_s: Returns how long ago the last pass ended; None before the first.
        most_routines: How many routines are told apart.
    """

    def __init__(
        self, *, pass_age_s: Callable[[], float | None], most_routines: int = MOST_ROUTINES
    ) -> None:
        self._names = Names(most_routines)
        registry = self._registry = CollectorRegistry()
        self._fires = Counter(
            "routines_fires",
            "Occurrences that this scheduler settled.",
            ["routine", "outcome"],
            registry=registry,
        )
        self._missed = Counter(
            "routines_missed",
            "Records of slots that were given up; one may stand for many slots.",
            ["routine", "reason"],
            registry=registry,
        )
        self._put_off = Counter(
            "routines_put_off",
            "Turns that wait to be tried again, or for a person.",
            ["routine", "state"],
            registry=registry,
        )
        self._faults = Counter(
            "routines_faults",
            "Times that the store refused a routine.",
            ["routine"],
            registry=registry,
        )
        self._lateness = Histogram(
            "routines_lateness_seconds",
            "From when it was due until it started.",
            ["routine"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._turns = Histogram(
            "routines_turn_seconds",
            "From its start until its end.",
            ["routine"],
            buckets=_TURN_SECONDS,
            registry=registry,
        )
        self._starts = Histogram(
            "routines_turn_start_seconds",
            "From when a turn was taken up until it started.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._passes = Histogram(
            "routines_pass_seconds",
            "How long one look at everything took.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._scheduler_start = Gauge(
            "routines_scheduler_start_seconds",
            "From the start of this scheduler until the end of its first pass.",
            registry=registry,
        )
        Gauge(
            "routines_build_info", "The version of routines.", ["version"], registry=registry
        ).labels(VERSION).set(1)
        self._telling = threading.Lock()
        self._files = _FromFiles()
        registry.register(_PassAge(pass_age_s))
        registry.register(self._files)

    # Counting -----------------------------------------------------------------------------------

    def happened(self, event: Happening) -> None:
        """Count an event."""
        data = event.data
        if event.name == "settled":
            self._settled(data)
        elif event.name == "missed":
            reason = _of(_REASONS, data.get("reason"))
            self._missed.labels(self._names.label(event.ref), reason).inc()
        elif event.name in _PUT_OFF:
            self._put_off.labels(self._names.label(data.get("routine")), event.name).inc()
        elif event.name == "fault":
            self._faults.labels(self._names.label(event.ref)).inc()

    def _settled(self, data: Mapping[str, Any]) -> None:
        routine = self._names.label(data.get("routine"))
        self._fires.labels(routine, _of(_OUTCOMES, data.get("outcome"))).inc()
        for histogram, seconds in (
            (self._lateness.labels(routine), data.get("late_s")),
            (self._turns.labels(routine), data.get("duration_s")),
            (self._starts, data.get("start_s")),
        ):
            if isinstance(seconds, int | float):
                histogram.observe(seconds)

    def passed(self, seconds: float) -> None:
        """Count a look at everything."""
        self._passes.observe(seconds)

    def started(self, seconds: float) -> None:
        """Note how long the scheduler took to start."""
        self._scheduler_start.set(seconds)

    # Telling ------------------------------------------------------------------------------------

    def text(self, signs: VitalSigns | None) -> bytes:
        """Return everything in the text format; without what is in files if *signs* is None."""
        with self._telling:
            self._files.signs = signs
            return generate_latest(self._registry)


class _PassAge(Collector):
    """How long ago the last pass ended, asked at each scrape."""

    def __init__(self, seconds: Callable[[], float | None]) -> None:
        self._seconds = seconds

    def collect(self) -> Iterator[Metric]:
        seconds = self._seconds()
        if seconds is not None:
            yield GaugeMetricFamily(
                "routines_last_pass_age_seconds", "How long ago the last pass ended.", value=seconds
            )


def _of(known: frozenset[str], word: object) -> str:
    return str(word) if word in known else OTHER
