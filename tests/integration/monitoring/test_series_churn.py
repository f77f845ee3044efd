"""The scraping of servers that replace their series is suspended, and begins again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from integration.monitoring.steps import QUICK, SOON, events, serving, wait_for_condition
from support import gen, operator_process
from support.api import Api, condition, eventually
from support.fake_prometheus import FakePrometheus
from support.people import make

pytestmark = pytest.mark.integration
OTHER = "other"


def until(api: Api) -> str:
    return str(api.get("TritonModel", gen.NAME)["status"].get("scrapingSuspendedUntil", ""))


def test_suspends_the_scraping_for_an_hour(kubeconfig: Path, own: Api, fake: FakePrometheus, tmp_path: Path) -> None:
    labels = {"monitoring": {"labels": {"release": "prometheus"}}}
    for name in (gen.NAME, OTHER):
        fake.set_thresholds(own.namespace, name)
        make(own, name, **labels)
    with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_URL=fake.url, **QUICK) as operator:
        for name in (gen.NAME, OTHER):
            serving(own, operator, name, f"{name}-abc-1")
            wait_for_condition(own, "ThresholdLive", "True", "Live", name)
        wait_for_condition(own, "MonitoringAvailable", "True", "Selected")
        rules = own.get("PrometheusRule", gen.NAME)["metadata"]["uid"]

        fake.set_churning((own.namespace, gen.NAME))
        message = wait_for_condition(own, "MonitoringAvailable", "False", "SeriesChurn")
        eventually(lambda: own.find("PodMonitor", gen.NAME) is None, SOON, lambda: operator.log)
        ends = datetime.fromisoformat(until(own))
        assert timedelta(minutes=58) < ends - datetime.now(UTC) <= timedelta(hours=1)
        assert f"creates it again at {until(own)}" in message
        assert own.find("PodMonitor", OTHER)
        wait_for_condition(own, "MonitoringAvailable", "True", "Selected", OTHER)
        eventually(lambda: events(own, "SeriesChurn"), SOON)
        fake.set_churning()
        assert operator.stop() == 0

    # Neither a change of the spec nor another leader ends it.
    own.patch("TritonModel", gen.NAME, {"spec": {"monitoring": {"scrapeSeconds": 15}}})
    with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_URL=fake.url, **QUICK) as operator:
        generation = own.get("TritonModel", gen.NAME)["metadata"]["generation"]
        eventually(
            lambda: condition(own.get("TritonModel", gen.NAME), "Ready")["observedGeneration"] == generation, SOON
        )
        assert wait_for_condition(own, "MonitoringAvailable", "False", "SeriesChurn") == message
        assert own.find("PodMonitor", gen.NAME) is None
        assert own.get("PrometheusRule", gen.NAME)["metadata"]["uid"] == rules
        assert events(own, "SeriesChurn") == [message]

        # An administrator ends it.
        own.patch("TritonModel", gen.NAME, {"status": {"scrapingSuspendedUntil": None}}, "status")
        wait_for_condition(own, "MonitoringAvailable", "True", "Selected")
        assert own.find("PodMonitor", gen.NAME)
        assert not until(own)

        # It ends by itself.
        fake.set_churning((own.namespace, gen.NAME))
        wait_for_condition(own, "MonitoringAvailable", "False", "SeriesChurn")
        fake.set_churning()
        # The operator deletes it after it writes the status.
        eventually(lambda: own.find("PodMonitor", gen.NAME) is None, SOON, lambda: operator.log)
        soon = (datetime.now(UTC) + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
        own.patch("TritonModel", gen.NAME, {"status": {"scrapingSuspendedUntil": soon}}, "status")
        eventually(lambda: own.find("PodMonitor", gen.NAME), 60, lambda: operator.log)
        assert datetime.now(UTC) >= datetime.fromisoformat(soon)
        wait_for_condition(own, "MonitoringAvailable", "True", "Selected")
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
