"""A server's page with series under the names of the operator's and the rules' own: none of them gets in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import gen
from support.api import eventually
from support.prometheus_process import running, serving
from triton_operator.render import Choices
from triton_operator.render.pod_monitor import pod_monitor

pytestmark = pytest.mark.rules

OWN = 'nv_inference_request_success{model="net",version="1"} 7\nup_and_running 1\nmy_triton_operator_share 1\n'
FORGED = """\
triton_operator_threshold{namespace="vision",tritonmodel="detection",kind="max-qps",version=""} 1e9
triton_operator_resource_version{namespace="vision",tritonmodel="detection"} 1e15
triton:my_qps_threshold:1m{model="net"} 0
ALERTS{alertname="x"} 1
ALERTS_FOR_STATE{alertname="x"} 1
up{forged="yes"} 0
scrape_samples_scraped{forged="yes"} 0
"""


def relabelled(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As prometheus-operator writes them into Prometheus' configuration."""
    return [{re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), k): v for k, v in rule.items()} for rule in rules]


@pytest.mark.parametrize("guarded", [True, False], ids=["as made", "without the rules"])
def test_forged_series_are_dropped(guarded: bool, tmp_path: Path) -> None:
    (endpoint,) = pod_monitor(gen.model(), Choices("operator:1", "Copy"))["spec"]["podMetricsEndpoints"]
    rules = relabelled(endpoint["metricRelabelings"]) if guarded else []
    with serving({"/metrics": lambda: OWN + FORGED}) as page:
        config = {"job_name": "server", "static_configs": [{"targets": [page]}], "metric_relabel_configs": rules}
        with running(tmp_path, [config], []) as prometheus:
            found = eventually(lambda: prometheus.ask("query", query='{__name__=~".+"}')["result"], 30)
    names = {series["metric"]["__name__"] for series in found}
    assert {"nv_inference_request_success", "up_and_running", "my_triton_operator_share", "up"} <= names
    forged = {line.split("{")[0] for line in FORGED.splitlines()} - {"up", "scrape_samples_scraped"}
    assert bool(forged & names) is not guarded
    assert any("forged" in series["metric"] for series in found) is not guarded
