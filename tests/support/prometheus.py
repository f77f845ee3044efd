"""Queries the cluster's Prometheus and alert receiver through the API server's proxy.

The proxy needs no port-forward, and works again as soon as a killed pod is replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from . import evidence
from .api import Api, Object, RefusedError, eventually
from .cluster import Cluster

_NAMESPACE = "monitoring"
_POD = "prometheus-triton-0"
OPERATORS = "triton-operator-metrics"
"""The job of the operator's pods."""


@dataclass(frozen=True)
class Sample:
    """A recorded sample. `at` is in seconds since 1970, by Prometheus' clock."""

    at: float
    value: float


class Monitoring:
    """The current state of the cluster's monitoring."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._api = cluster, cluster.api

    def query(self, query: str) -> list[Object]:
        """Returns the result of an instant query."""
        return list(self._ask("prometheus:web", "api/v1/query", query=query)["data"]["result"])

    def value(self, query: str) -> float | None:
        """Returns the single value of a query, or None without a result. Fails if there are several."""
        series = self.query(query)
        assert len(series) < 2, f"{query} returns {len(series)} series: {[item['metric'] for item in series]}"
        return float(series[0]["value"][1]) if series else None

    def samples(self, selector: str, seconds: float) -> list[Sample]:
        """Returns the raw samples of one series in the last seconds."""
        series = self.query(f"{selector}[{max(1, round(seconds))}s]")
        assert len(series) < 2, f"{selector} matches {len(series)} series: {[item['metric'] for item in series]}"
        return [Sample(float(at), float(value)) for at, value in series[0]["values"]] if series else []

    def answers(self) -> bool:
        """Returns whether Prometheus answers."""
        return self._answer("prometheus:web", "api/v1/query", query="vector(1)") is not None

    def rule_files(self) -> set[str]:
        """Returns the names of the files whose rules Prometheus has loaded, without the extension."""
        groups = self._ask("prometheus:web", "api/v1/rules")["data"]["groups"]
        return {Path(group["file"]).stem for group in groups}

    def scraped_pods(self, job: str) -> set[str]:
        """Returns the names of the pods of this job that Prometheus scrapes without an error.

        The series `up` isn't the same: without a ServiceMonitor it keeps its last value for five minutes.
        """
        targets = self._ask("prometheus:web", "api/v1/targets", state="active")["data"]["activeTargets"]
        return {t["labels"]["pod"] for t in targets if t["labels"]["job"] == job and t["health"] == "up"}

    def alerts(self, name: str, **labels: str) -> list[Object]:
        """Returns the pending and firing alerts of this name in Prometheus."""
        alerts = self._ask("prometheus:web", "api/v1/alerts")["data"]["alerts"]
        return [a for a in alerts if _has(a["labels"], alertname=name, **labels)]

    def fires(self, name: str, **labels: str) -> bool:
        """Returns whether an alert with this name and these labels fires in Prometheus."""
        return any(a["state"] == "firing" for a in self.alerts(name, **labels))

    def received(self, name: str, **labels: str) -> list[Object]:
        """Returns the notifications of these alerts from Alertmanager to the receiver, oldest first."""
        alerts = self._ask("alert-receiver:http", "")
        return [a for a in alerts if _has(a["labels"], alertname=name, **labels)]

    def hurry(self) -> None:
        """Makes the kubelet update Prometheus' configuration now, by changing the pod.

        Otherwise the kubelet does this about once a minute. Use it to prepare a test, never in a measurement.
        """
        self._api.patch("Pod", _POD, {"metadata": {"annotations": {"hurry": str(time.time())}}}, namespace=_NAMESPACE)

    def restart(self) -> None:
        """Deletes Prometheus' pod with all its data, and waits until a new one exists."""
        uid = self._api.get("Pod", _POD, _NAMESPACE)["metadata"]["uid"]
        self._cluster.kubectl("-n", _NAMESPACE, "delete", "pod", _POD, "--force", "--grace-period=0")
        pod = {"metadata": {"uid": uid}}
        eventually(lambda: (self._api.find("Pod", _POD, _NAMESPACE) or pod)["metadata"]["uid"] != uid, 60, "a new pod")

    def collect(self, folder: evidence.Folder) -> None:
        """Writes Prometheus' targets, rules and alerts, and the objects, Events and logs of the monitoring."""
        for path in ("targets", "rules", "alerts"):
            answer = self._answer("prometheus:web", f"api/v1/{path}")
            folder.write(f"{_NAMESPACE}/prometheus-{path}.json", json.dumps(answer, indent=1))
        evidence.of_namespace(self._api.in_namespace(_NAMESPACE))(folder)

    def _ask(self, service: str, path: str, **parameters: str) -> Any:
        """Returns the answer. Waits for it, so that no answer isn't taken for an empty one."""
        # In a list, because the receiver's answer may be empty.
        return eventually(
            lambda: [a] if (a := self._answer(service, path, **parameters)) is not None else None, 60, every=0.2
        )[0]

    def _answer(self, service: str, path: str, **parameters: str) -> Any:
        """Returns the answer, or None without one."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        root = f"/api/v1/namespaces/{_NAMESPACE}/services/{service}/proxy"
        try:
            return self._api.request("GET", f"{root}/{path}{query}")
        except RefusedError as error:
            # The proxy's answers if no pod is ready; other codes are errors of the test.
            if error.code in (500, 502, 503, 504):
                return None
            raise
        except urllib3.exceptions.HTTPError:
            return None


def threshold(api: Api, name: str, series: str = "tritonmodel:threshold:effective", kind: str = "max-qps") -> str:
    """Returns a selector for the TritonModel's limit over all versions in this series."""
    return f'{series}{{namespace="{api.namespace}",tritonmodel="{name}",kind="{kind}",version=""}}'


def _has(labels: Mapping[str, str], **pairs: str) -> bool:
    return all(labels.get(k) == v for k, v in pairs.items())
