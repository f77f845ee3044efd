"""The PodMonitor lists the models that the servers report, within the budget of the namespace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.monitoring.steps import QUICK, SOON, serving, versions, wait_for_condition
from support import bad_servers, gen, operator_process
from support.api import Api, eventually
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make
from triton_operator.render import series

pytestmark = pytest.mark.integration
HONEST, GREEDY = "honest", "greedy"
ENTRY = "detection"
PIPELINE = [ENTRY, "preprocess", "yolov5s", "postprocess"]


def listed(api: Api, name: str) -> list[str]:
    return [model for model, version in series.listed(api.find("PodMonitor", name)) or [] if version == "1"]


def start(api: Api, operator: Operator, name: str, address: str) -> None:
    """Starts a server of `name` at the address."""
    serving(api, operator, name, f"{name}-abc-1")
    report = gen.checked(gen.report("pre", ENTRY, entrypoint=ENTRY))
    add_pod(api, report, gen.put("status.podIP", address), name=f"{name}-abc-1", model=name)


def answers(models: list[str]) -> bad_servers.Behaviour:
    return bad_servers.answers(json.dumps([{"name": m, "version": "1", "state": "READY"} for m in models]).encode())


def test_a_tritonmodel_with_too_many_models_does_not_take_the_series_of_others(
    kubeconfig: Path, own: Api, tmp_path: Path
) -> None:
    lies = answers([ENTRY, *(f"made-up-{number}" for number in range(1000))])
    for name in (HONEST, GREEDY):
        make(own, name, entrypoint=ENTRY, monitoring={"labels": {"release": "prometheus"}})
    with (
        bad_servers.server("127.0.10.1", answers(PIPELINE)),
        bad_servers.server("127.0.10.2", lies),
        operator_process.running(kubeconfig, tmp_path, SAMPLES_PER_NAMESPACE="600", **QUICK) as operator,
    ):
        start(own, operator, HONEST, "127.0.10.1")
        eventually(lambda: listed(own, HONEST) == sorted(PIPELINE), SOON, lambda: operator.log)
        wait_for_condition(own, "MonitoringAvailable", "True", "Selected", HONEST)

        start(own, operator, GREEDY, "127.0.10.2")
        message = wait_for_condition(own, "MonitoringAvailable", "False", "TooManySeries", GREEDY)
        assert "SAMPLES_PER_NAMESPACE" in message
        assert ENTRY in listed(own, GREEDY)
        greedy, honest = (own.get("PodMonitor", name)["spec"]["sampleLimit"] for name in (GREEDY, HONEST))
        assert greedy + honest <= 600
        assert listed(own, HONEST) == sorted(PIPELINE)
        written = versions(own, "PodMonitor", "TritonModel")
        assert operator.stop() == 0

    # A new leader keeps the lists, also before the servers have answered it.
    with operator_process.running(kubeconfig, tmp_path, SAMPLES_PER_NAMESPACE="600", **QUICK) as operator:
        eventually(lambda: operator.reconciles() >= 2, SOON, lambda: operator.log)
        assert listed(own, HONEST) == sorted(PIPELINE)
        monitors = {name: version for name, version in written.items() if name.startswith("PodMonitor")}
        assert versions(own, "PodMonitor") == monitors
        assert operator.stop() == 0
