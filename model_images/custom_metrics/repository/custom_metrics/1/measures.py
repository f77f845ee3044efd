"""A counter, a gauge and a histogram of the model's own, in Triton's metrics."""

from typing import Any

import triton_python_backend_utils as pb_utils

# Upper bounds in seconds. Above the last one there is +Inf.
BUCKETS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05]


class Measures:
    """The three of them. Families of one name in several instances are one: their increments add up."""

    def __init__(self, labels: dict[str, str]) -> None:
        """Make them, at 0, with `labels`: best those that Triton gives its own series."""
        # A metric whose family has been collected raises at its next use: they are kept together.
        self._families: list[Any] = []
        self._values = self._make("values_total", "COUNTER", "Numbers added up since the start", labels)
        self._rows = self._make("last_batch_rows", "GAUGE", "Rows of the last batch", labels)
        self._seconds = None
        # Older servers have counters and gauges only.
        if hasattr(pb_utils.MetricFamily, "HISTOGRAM"):
            self._seconds = self._make("seconds", "HISTOGRAM", "Seconds that a batch took", labels, buckets=BUCKETS)

    def _make(self, name: str, kind: str, description: str, labels: dict[str, str], **options: Any) -> Any:
        family = pb_utils.MetricFamily
        made = family(name=f"custom_metrics_{name}", description=description, kind=getattr(family, kind))
        self._families.append(made)
        return made.Metric(labels=labels, **options)

    def batch(self, rows: int, values: int, seconds: float) -> None:
        """Report a batch. Each of the three is a message to the server's process: once a batch, not once a row."""
        self._values.increment(values)
        self._rows.set(rows)
        if self._seconds is not None:
            self._seconds.observe(seconds)
