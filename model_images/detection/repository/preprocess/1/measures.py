"""This model's own metrics, besides Triton's."""

from collections.abc import Mapping

import triton_python_backend_utils as pb_utils

# Upper bounds in nanoseconds. Above the last one there is +Inf.
BUCKETS = [2.5e6, 5e6, 1e7, 2.5e7, 5e7, 1e8, 2.5e8, 5e8, 1e9, 5e9]
RESULTS = ("decoded", "refused", "cancelled", "failed")


class Measures:
    """The metrics preprocess_latency_ns, a histogram over batches, and preprocess_images_total by result."""

    def __init__(self, labels: dict[str, str]) -> None:
        """Creates the metrics at 0."""
        family = pb_utils.MetricFamily
        # Keep the families: a metric raises at its next use after its family was garbage-collected.
        self._families = [
            family(name="preprocess_images_total", description="Images by result", kind=family.COUNTER),
            family(name="preprocess_latency_ns", description="Nanoseconds for a batch", kind=family.HISTOGRAM),
        ]
        images, latency = self._families
        self._images = {result: images.Metric(labels={**labels, "result": result}) for result in RESULTS}
        self._latency = latency.Metric(labels=labels, buckets=BUCKETS)

    def batch(self, nanoseconds: int, results: Mapping[str, int]) -> None:
        """Reports a batch. It usually sends two messages to the server process, which take less than 0.2 ms."""
        self._latency.observe(nanoseconds)
        for result, count in results.items():
            self._images[result].increment(count)
