"""Adds up times to histograms, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .series import (
    COMPUTE,
    LABELS,
    MAX_SERIES,
    PART_BOUNDS,
    QUEUE,
    RATE,
    REQUEST,
    REQUEST_BOUNDS,
    SAMPLES,
    UNREAD,
    WORKS,
    label,
)
from .traces import Times


class Histogram:
    """Counts by buckets. A value may count several times, for the requests that it stands for."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the cumulative buckets and the sum."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip([*map(label, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets, self._sum


class Series:
    """The histograms of one version of a model, and the number of its samples."""

    def __init__(self) -> None:
        self.parts = {
            REQUEST: Histogram(REQUEST_BOUNDS),
            QUEUE: Histogram(PART_BOUNDS),
            COMPUTE: Histogram(PART_BOUNDS),
        }
        self.samples = 0


_HELP = {
    REQUEST: "Time of a request, by a sample of the requests.",
    QUEUE: "Time of a request in the model's queue, by a sample.",
    COMPUTE: "Time of a request in the model's backend, by a sample.",
}


class Histograms(Collector):
    """The metrics page of the sampler. `rate` and `works` are gauges, set from outside."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max = max_series
        self._series: dict[tuple[str, str], Series] = {}
        self._left_out = 0
        self.unread = 0
        self.rate = 0
        self.works = False

    def add(self, times: Iterable[Times], weight: int) -> None:
        """Adds the times of sampled requests, each of which stands for `weight` requests."""
        for one in times:
            key = (one.model, one.version)
            if key not in self._series and len(self._series) >= self._max:
                self._left_out += 1
                continue
            series = self._series.setdefault(key, Series())
            series.samples += 1
            for name, value in ((REQUEST, one.request), (QUEUE, one.queue), (COMPUTE, one.compute)):
                if value is not None:
                    series.parts[name].add(value, weight)

    def collect(self) -> Iterator[Metric]:
        # Requests to this page come from another thread.
        series = sorted(self._series.items())
        for name, text in _HELP.items():
            family = HistogramMetricFamily(name, text, labels=LABELS)
            for labels, one in series:
                buckets, total = one.parts[name].read()
                family.add_metric(labels, buckets, total)
            yield family
        samples = CounterMetricFamily(SAMPLES, "Requests that were traced.", labels=LABELS)
        for labels, one in series:
            samples.add_metric(labels, one.samples)
        yield samples
        unread = CounterMetricFamily(UNREAD, "Traces that couldn't be read or kept.")
        unread.add_metric((), self.unread + self._left_out)
        yield unread
        yield GaugeMetricFamily(RATE, "One of so many requests is traced.", self.rate)
        yield GaugeMetricFamily(WORKS, "1 if Triton traces requests, else 0.", int(self.works))
