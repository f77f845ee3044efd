"""This model's own metrics, besides Triton's."""

import triton_python_backend_utils as pb_utils

# Upper bounds in nanoseconds. Above the last one there is +Inf.
BUCKETS = [1e6, 2.5e6, 5e6, 1e7, 2.5e7, 5e7, 1e8, 2.5e8, 1e9]


class Measures:
    """The metrics postprocess_latency_ns, a histogram over batches, and postprocess_detections_total."""

    def __init__(self, labels: dict[str, str]) -> None:
        """Creates the metrics at 0."""
        family = pb_utils.MetricFamily
        # Keep the families: a metric raises at its next use after its family was garbage-collected.
        self._families = [
            family(name="postprocess_detections_total", description="Boxes in responses", kind=family.COUNTER),
            family(name="postprocess_latency_ns", description="Nanoseconds for a batch", kind=family.HISTOGRAM),
        ]
        boxes, latency = self._families
        self._boxes = boxes.Metric(labels=labels)
        self._latency = latency.Metric(labels=labels, buckets=BUCKETS)

    def batch(self, nanoseconds: int, boxes: int) -> None:
        """Reports a batch. It sends two messages to the server process, which take less than 0.2 ms."""
        self._latency.observe(nanoseconds)
        self._boxes.increment(boxes)
