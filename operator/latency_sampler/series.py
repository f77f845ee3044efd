"""The series of the sampler's page, and the bounds of its histograms. The operator's rules read them."""

from __future__ import annotations

REQUEST = "triton_sampled_request_seconds"
QUEUE = "triton_sampled_queue_seconds"
COMPUTE = "triton_sampled_compute_seconds"
SAMPLES = "triton_latency_samples"
UNREAD = "triton_latency_unread"
RATE = "triton_latency_rate"
WORKS = "triton_latency_works"
ALL = "triton_(latency|sampled)_.*"
"""A regular expression for all of them."""
LABELS = ("model", "version")

_R10 = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
"""Preferred numbers (ISO 3): each about a quarter larger than the one before, and round ones among them."""


def _bounds(steps: tuple[float, ...]) -> tuple[float, ...]:
    return (*(float(f"{step * 10**power:.6g}") for power in range(-4, 2) for step in steps), 100.0)


REQUEST_BOUNDS = _bounds(_R10)
"""Upper bounds of the buckets of a request's time, in seconds: 0.1 ms to 100 s."""
PART_BOUNDS = _bounds((1.0, 2.0, 5.0))
"""The same for the parts of a request."""


def label(bound: float) -> str:
    """Returns a bound as the label `le`. Prometheus 3 writes it in this form, Prometheus 2 leaves it as it is."""
    return repr(bound)


SAMPLES_OF_A_VERSION = sum(len(bounds) + 3 for bounds in (REQUEST_BOUNDS, PART_BOUNDS, PART_BOUNDS)) + 1
"""Samples on the page for each version of a model: all buckets, the sums and counts, and the traced requests."""
MAX_SERIES = 80
"""Maximum number of versions of models with histograms. By default the operator allows 10,000 samples in a scrape, and
Prometheus drops a larger page."""
