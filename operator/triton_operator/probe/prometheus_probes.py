"""Polls each Prometheus.

Asks for the thresholds often while a TritonModel waits for a change, and seldom otherwise. Asks which
alerts about models fire (some answer nothing, or aren't counted) at a constant interval.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from triton_operator.api.monitoring import Origins, PrometheusAnswer
from triton_operator.api.names import METRICS_JOB
from triton_operator.api.status import timestamp

from .credentials import Headers
from .fetch import Get, HttpClient, blocking
from .prometheus import LIMITS, Alerts, Client, Key, Measured, QueryError, Values
from .schedule import Schedule, jittered, wait

_log = logging.getLogger(__name__)

SHORTEST_SECONDS = 1.0
"""Minimum interval between two polls of one Prometheus."""
WAITING_SECONDS = 2.0
"""Interval while a TritonModel waits for its thresholds to be live."""
REST_SECONDS = 60.0
"""Interval while none waits."""
ALERTS_SECONDS = 15.0
"""Interval of the query about alerts. Half of it while a TritonModel waits."""
FAILED_SECONDS = 10.0
"""Shortest interval between two polls of a Prometheus that doesn't answer."""
OUTAGE_SECONDS = 120.0
"""How long a Prometheus may fail before TritonModels that don't wait get the error. A restart takes about as long.

Otherwise each restart would cost two writes of the status of every TritonModel that is reconciled meanwhile.
"""
ASK_SECONDS = 15.0
"""Time limit for all queries of one poll."""
_THREADS, _THREADS_OF_FAILED = 3, 1


@dataclass
class _Reader:
    """A TritonModel that reads the answers of a Prometheus.

    - `metrics`: the metrics that its thresholds need.
    - `reported`: the answer that it read last; None if the next answer must be reported in any case.
    - `waits`: whether it waits for a change; None before it has said so.
    """

    metrics: frozenset[str]
    reported: PrometheusAnswer | None = None
    waits: bool | None = None

    @property
    def may_wait(self) -> bool:
        return self.waits is not False


@dataclass
class _Source:
    """One Prometheus and its last answer.

    `at`, `failed_at`: when the query for that answer began, and the last one that failed.
    `polled_at`, `failing_since`: when it was polled, and since when it has failed. `rest_due`: when to ask for the
    thresholds although no TritonModel waits. `alerts_due`: when to ask about alerts. All in seconds of the
    event loop's clock. `outage`: whether it has failed for longer than OUTAGE_SECONDS. `alerts`: None before the first
    answer about them. `alerts_since`: when the first query about them began.
    """

    url: str
    readers: dict[Key, _Reader] = field(default_factory=dict)
    values: Mapping[Key, Values] = field(default_factory=dict)
    measured: frozenset[Measured] = frozenset()
    origins: Mapping[Key, Origins] = field(default_factory=dict)
    alerts: Mapping[Key, Alerts] | None = None
    error: str = ""
    at: str = ""
    failed_at: str = ""
    polled_at: float = float("-inf")
    rest_due: float = float("-inf")
    alerts_due: float = float("-inf")
    failing_since: float | None = None
    alerts_since: float | None = None
    outage: bool = False
    asking: bool = False

    def earliest(self) -> float:
        """Returns the time from which on it may be polled again."""
        return self.polled_at + (FAILED_SECONDS if self.error else SHORTEST_SECONDS)


class PrometheusProbes:
    """The answers of all Prometheuses.

    `track`, `set_waiting` and `forget` are for the reconcile's threads and never wait; `run` belongs to the prober's
    event loop.

    - `on_change(key)`: called in that loop when there is an answer that the last `track` of `key` didn't return.
    - `namespaces`: limits the queries to these; empty means all.
    - `on_answer(answered)`: called after each poll of the thresholds.
    - `credentials`: the credentials for a Prometheus.
    - `job`: the label of the operator's metrics.
    - `now`: the clock for the time of answers.
    """

    def __init__(
        self,
        on_change: Callable[[str], None],
        namespaces: Collection[str] = (),
        on_answer: Callable[[bool], None] = lambda _: None,
        credentials: Headers = lambda _: {},
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        job: str = METRICS_JOB,
    ) -> None:
        self._on_change, self._namespaces, self._on_answer, self._now = on_change, namespaces, on_answer, now
        self._credentials, self._job = credentials, job
        self._lock = threading.Lock()
        self._sources: dict[str, _Source] = {}
        self._source_of: dict[Key, str] = {}
        self._due_now: deque[str] = deque()
        self._wake: Callable[[], None] = lambda: None

    def track(self, key: Key, url: str, metrics: frozenset[str] = frozenset()) -> PrometheusAnswer:
        """Returns the last answer of the Prometheus at `url` about the TritonModel `key` and these metrics.

        If it fails, returns the error; for OUTAGE_SECONDS its last answer instead, if the TritonModel doesn't wait.
        Without any answer returns one that is missing.
        From now on polls this Prometheus for `key`, and no other.
        """
        with self._lock:
            if self._source_of.get(key) != url:
                self._forget(key)
            self._source_of[key] = url
            source = self._sources.get(url)
            if source is None:
                source = self._sources[url] = _Source(url)
            reader = source.readers.get(key)
            if reader is None or reader.metrics != metrics:
                reader = source.readers[key] = _Reader(metrics)
                self._due_now.append(url)
            answer = _answer(source, key, reader)
            reader.reported = answer if answer.at else None
            wake = bool(self._due_now)
        if wake:
            self._wake()
        return answer

    def set_waiting(self, key: Key, *, waits: bool, outdated: bool = False) -> None:
        """Sets whether the TritonModel `key` waits for a different answer.

        `outdated`: report the next answer even if it is equal to the last one.
        """
        with self._lock:
            source = self._sources.get(self._source_of.get(key, ""))
            reader = source.readers.get(key) if source else None
            if source is None or reader is None:
                return
            begins = waits and (outdated or not reader.may_wait)
            reader.waits = waits
            if outdated:
                reader.reported = None
            if begins:
                self._due_now.append(source.url)
        if begins:
            self._wake()

    def forget(self, key: Key) -> None:
        """Stops polling for `key`."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        url = self._source_of.pop(key, "")
        source = self._sources.get(url)
        if source is not None:
            source.readers.pop(key, None)
            if not source.readers:
                del self._sources[url]

    async def run(self, http: HttpClient) -> None:
        """Polls until it is cancelled."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self._wake = wake
        schedule: Schedule[str] = Schedule()
        with self._lock:
            for source in self._sources.values():
                source.asking = False
                self._due_now.append(source.url)
        good = ThreadPoolExecutor(_THREADS, thread_name_prefix="prometheus")
        failed = ThreadPoolExecutor(_THREADS_OF_FAILED, thread_name_prefix="prometheus-failed")
        try:
            async with asyncio.TaskGroup() as tasks:
                get = blocking(http, LIMITS)
                while True:
                    woken.clear()
                    self._schedule_due(schedule)
                    for source in self._begin(schedule.due(loop.time()), loop.time()):
                        pool = failed if source.error else good
                        tasks.create_task(self._probe(source, get, pool, schedule, woken))
                    await wait(woken, schedule.next())
        finally:
            good.shutdown(wait=False, cancel_futures=True)
            failed.shutdown(wait=False, cancel_futures=True)

    def _schedule_due(self, schedule: Schedule[str]) -> None:
        while self._due_now:
            with self._lock:
                source = self._sources.get(self._due_now.popleft())
            if source is not None and not source.asking:
                schedule.put(source.url, source.earliest())

    def _begin(self, urls: Iterable[str], now: float) -> list[_Source]:
        """Marks the Prometheuses at these URLs as being polled, and returns them."""
        with self._lock:
            sources = [source for url in urls if (source := self._sources.get(url)) and not source.asking]
            for source in sources:
                source.asking, source.polled_at = True, now
        return sources

    async def _probe(
        self,
        source: _Source,
        get: Get,
        pool: ThreadPoolExecutor,
        schedule: Schedule[str],
        woken: asyncio.Event,
    ) -> None:
        """Polls one Prometheus once, and schedules the next poll. Never raises."""
        loop = asyncio.get_running_loop()
        client = Client(source.url, lambda url: get(url, self._credentials(source.url)), self._namespaces, self._job)
        with self._lock:
            waits = any(reader.may_wait for reader in source.readers.values())
        if waits or loop.time() >= source.rest_due:
            await self._ask_thresholds(source, client, pool)
        if not source.error:
            await self._ask_alerts(source, client, pool)
        with self._lock:
            source.asking = False
            since = source.failing_since
            source.outage = since is not None and loop.time() - since >= OUTAGE_SECONDS
            answers = {key: _answer(source, key, reader) for key, reader in source.readers.items()}
            changed = [key for key, a in answers.items() if not a.is_missing and a != source.readers[key].reported]
            waits = any(reader.may_wait for reader in source.readers.values())
            tracked = self._sources.get(source.url) is source
        if tracked:
            seconds = (FAILED_SECONDS if source.error else WAITING_SECONDS) if waits else ALERTS_SECONDS
            schedule.put(source.url, loop.time() + jittered(seconds))
            woken.set()
        for key in changed:
            self._on_change(key)

    async def _ask_thresholds(self, source: _Source, client: Client, pool: ThreadPoolExecutor) -> None:
        """Queries the thresholds and the metrics. Never raises."""
        loop = asyncio.get_running_loop()
        with self._lock:
            metrics = frozenset[str]().union(*(reader.metrics for reader in source.readers.values()))
        began = timestamp(self._now(), "milliseconds")
        error = ""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                answer = await loop.run_in_executor(pool, _ask, client, metrics)
            with self._lock:
                source.values, source.measured, source.origins = answer
        except QueryError as failure:
            error = str(failure)
        except TimeoutError:
            error = f"no usable answer from Prometheus at {source.url}: no answer within {ASK_SECONDS:g} s"
        except Exception:
            _log.exception("polling %s failed", source.url)
            error = f"the answer of {source.url} can't be read"
        self._on_answer(not error)
        with self._lock:
            source.error = error
            source.rest_due = loop.time() + jittered(FAILED_SECONDS if error else REST_SECONDS)
            if not error:
                source.at, source.failing_since = began, None
                return
            source.failed_at = began
            if source.failing_since is None:
                source.failing_since = loop.time()

    async def _ask_alerts(self, source: _Source, client: Client, pool: ThreadPoolExecutor) -> None:
        """Queries the alerts. Keeps the last answer if there is no new one. Never raises."""
        loop = asyncio.get_running_loop()
        if loop.time() < source.alerts_due:
            return
        source.alerts_due = loop.time() + ALERTS_SECONDS / 2
        if source.alerts_since is None:
            source.alerts_since = loop.time()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                source.alerts = await loop.run_in_executor(pool, client.alerts)
        except (QueryError, TimeoutError) as failure:
            _log.debug("no new answer about alerts: %s", failure)
        except Exception:
            _log.exception("polling %s failed", source.url)
        if source.alerts is None and loop.time() - source.alerts_since >= OUTAGE_SECONDS:
            source.alerts = {}


def _ask(
    client: Client, metrics: Collection[str]
) -> tuple[Mapping[Key, Values], frozenset[Measured], Mapping[Key, Origins]]:
    return client.thresholds(), client.metrics(metrics), client.origins()


def _answer(source: _Source, key: Key, reader: _Reader) -> PrometheusAnswer:
    """Returns what a TritonModel reads. One that doesn't wait reads nothing of a short outage."""
    if source.error and (reader.waits or source.outage):
        return PrometheusAnswer(error=source.error, at=source.failed_at)
    # Without the first alerts, a condition that they caused would end, and begin again.
    if not source.at or (source.alerts is None and not reader.waits):
        return PrometheusAnswer()
    alerts = (source.alerts or {}).get(key, Alerts())
    return PrometheusAnswer(
        source.values.get(key, {}),
        metrics=frozenset(metric for metric in reader.metrics if (key, metric) in source.measured),
        uncounted=alerts.uncounted,
        at_limit=alerts.at_limit,
        faults=alerts.faults,
        origins=source.origins.get(key, Origins()),
        at=source.at,
    )
