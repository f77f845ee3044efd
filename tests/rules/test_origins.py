"""A real Prometheus with the series of several clusters, or with each series several times."""

from __future__ import annotations

import contextlib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from support import gen, ports
from support.api import eventually
from support.prometheus_process import running, serving
from triton_operator.api.monitoring import Origins
from triton_operator.api.names import METRICS_JOB
from triton_operator.probe.prometheus import Client
from triton_operator.runtime.metrics import Metrics, gauges_of

pytestmark = pytest.mark.rules


def page(uid: str, *names: str) -> str:
    """Returns the metrics of an operator with these TritonModels, of a cluster in which their UIDs begin with `uid`."""
    created = gen.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z")
    models = {name: gauges_of(gen.raw(created, name=name, uid=f"{uid}-0000-{name}")) for name in names}
    metrics = Metrics(CollectorRegistry())
    metrics.count_models(lambda: [(f"{gen.NAMESPACE}/{name}", g) for name, g in models.items()], dict, dict)
    return generate_latest(metrics.registry).decode()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def test_counts_the_clusters_and_the_copies_of_series(tmp_path: Path) -> None:
    ours, theirs = page("0a1b2c3d", "alone", "twice", "old"), page("4e5f6a7b", "twice", "theirs")
    older = page("", "old").replace('uid="-0000-ol",', "").replace(',uid="-0000-ol"', "")
    assert "uid" not in older
    targets: list[tuple[str, str, str]] = [
        # job, cluster, page
        (METRICS_JOB, "a", ours),
        (METRICS_JOB, "a", ours),  # the second replica of the operator
        (METRICS_JOB, "a", older),  # one of a version before the label
        (METRICS_JOB, "b", theirs),
        ("of-a-tenant", "b", page("8c9d0e1f", "alone")),
    ]
    copied = page("2a3b4c5d", "copied")
    with contextlib.ExitStack() as stack:

        def config(name: str, job: str, address: str, **labels: str) -> dict[str, Any]:
            static = {"targets": [address], "labels": {"job": job, **labels}}
            return {"job_name": name, "honor_labels": True, "static_configs": [static]}

        def served(text: str) -> str:
            return stack.enter_context(serving({"/metrics": lambda: text}))

        configs = [
            config(f"target-{number}", job, served(text), cluster=cluster)
            for number, (job, cluster, text) in enumerate(targets)
        ]
        address = served(copied)
        configs += [config(f"replica-{name}", METRICS_JOB, address, replica=name) for name in "abc"]
        at = f"127.0.0.1:{ports.free()[0]}"
        prometheus = stack.enter_context(running(tmp_path, configs, [], address=at))
        eventually(lambda: prometheus.value("sum(up)") == len(configs), 60, lambda: prometheus.ask("query", query="up"))
        client = Client(f"http://{at}", get, [gen.NAMESPACE])
        assert client.origins() == {
            f"{gen.NAMESPACE}/twice": Origins(clusters=2),
            f"{gen.NAMESPACE}/copied": Origins(copies=3),
        }
        assert Client(f"http://{at}", get, ["elsewhere"]).origins() == {}
