"""The model's own counter, gauge and histogram in Triton's metrics."""

from typing import Any

import triton_python_backend_utils as pb_utils

# Upper bounds in seconds. Above the last one there is +Inf.
BUCKETS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05]


class Measures:
    """The three metrics. Instances of the model share them: Triton adds up the increments of families with one name."""

    def __init__(self, labels: dict[str, str]) -> None:
        """Creates the metrics at 0. Use the labels of Triton's own series."""
        # Keep the families: a metric raises at its next use after its family was garbage-collected.
        self._families: list[Any] = []
        self._values = self._make("values_total", "COUNTER", "Numbers added up since the start", labels)
        self._rows = self._make("last_batch_rows", "GAUGE", "Rows of the last batch", labels)
        self._seconds = None
        # Older servers don't have histograms.
        if hasattr(pb_utils.MetricFamily, "HISTOGRAM"):
            self._seconds = self._make("seconds", "HISTOGRAM", "Seconds that a batch took", labels, buckets=BUCKETS)

    def _make(self, name: str, kind: str, description: str, labels: dict[str, str], **options: Any) -> Any:
        family = pb_utils.MetricFamily
        metric_family = family(name=f"custom_metrics_{name}", description=description, kind=getattr(family, kind))
        self._families.append(metric_family)
        return metric_family.Metric(labels=labels, **options)

    def batch(self, rows: int, values: int, seconds: float) -> None:
        """Reports a batch. Each metric costs a message to the server process, so report once per batch, not per row."""
        self._values.increment(values)
        self._rows.set(rows)
        if self._seconds is not None:
            self._seconds.observe(seconds)
