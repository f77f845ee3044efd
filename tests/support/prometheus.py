"""Queries the cluster's Prometheus and alert receiver through the API server's proxy.

The proxy needs no port-forward, and works again as soon as a killed pod is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import urllib3

from .api import Api, Object, RefusedError
from .cluster import Cluster

_NAMESPACE = "monitoring"
_POD = "prometheus-triton-0"


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
        """Returns the result of an instant query, or [] if Prometheus doesn't answer."""
        answer = self._ask("prometheus:web", "api/v1/query", query=query)
        return list(answer["data"]["result"]) if answer else []

    def value(self, query: str) -> float | None:
        """Returns the single value of a query, or None without a result or an answer. Fails if there are several."""
        found = self.query(query)
        assert len(found) < 2, f"{query} returns {len(found)} series: {[f['metric'] for f in found]}"
        return float(found[0]["value"][1]) if found else None

    def samples(self, selector: str, seconds: float) -> list[Sample]:
        """Returns the raw samples of one series in the last seconds."""
        found = self.query(f"{selector}[{max(1, round(seconds))}s]")
        assert len(found) < 2, f"{selector} matches {len(found)} series: {[f['metric'] for f in found]}"
        return [Sample(float(at), float(value)) for at, value in found[0]["values"]] if found else []

    def answers(self) -> bool:
        """Returns whether Prometheus answers."""
        return bool(self.query("vector(1)"))

    def rule_files(self) -> set[str] | None:
        """Returns the names of the files whose rules Prometheus has loaded, without the extension.

        Returns None if Prometheus doesn't answer.
        """
        answer = self._ask("prometheus:web", "api/v1/rules")
        return {Path(group["file"]).stem for group in answer["data"]["groups"]} if answer else None

    def scraped_pods(self, job: str) -> set[str] | None:
        """Returns the names of the pods of this job that Prometheus scrapes without an error.

        Returns None if Prometheus doesn't answer. The series `up` isn't the same: without a ServiceMonitor it keeps its
        last value for five minutes.
        """
        answer = self._ask("prometheus:web", "api/v1/targets", state="active")
        if not answer:
            return None
        targets = answer["data"]["activeTargets"]
        return {t["labels"]["pod"] for t in targets if t["labels"]["job"] == job and t["health"] == "up"}

    def alerts(self, name: str, **labels: str) -> list[Object]:
        """Returns the pending and firing alerts of this name in Prometheus."""
        answer = self._ask("prometheus:web", "api/v1/alerts")
        found = list(answer["data"]["alerts"]) if answer else []
        return [a for a in found if _has(a["labels"], alertname=name, **labels)]

    def fires(self, name: str, **labels: str) -> bool:
        """Returns whether an alert with this name and these labels fires in Prometheus."""
        return any(a["state"] == "firing" for a in self.alerts(name, **labels))

    def received(self, name: str, **labels: str) -> list[Object]:
        """Returns the notifications of these alerts from Alertmanager to the receiver, oldest first."""
        found = self._ask("alert-receiver:http", "") or []
        return [a for a in found if _has(a["labels"], alertname=name, **labels)]

    def hurry(self) -> None:
        """Makes the kubelet update Prometheus' configuration now, by changing the pod.

        Otherwise the kubelet does this about once a minute. Use it to prepare a test, never in a measurement.
        """
        self._api.patch("Pod", _POD, {"metadata": {"annotations": {"hurry": str(time.time())}}}, namespace=_NAMESPACE)

    def restart(self) -> None:
        """Deletes Prometheus' pod with all its data, and waits until a new one exists."""
        uid = self._api.get("Pod", _POD, _NAMESPACE)["metadata"]["uid"]
        self._cluster.kubectl("-n", _NAMESPACE, "delete", "pod", _POD, "--force", "--grace-period=0")
        deadline = time.monotonic() + 60
        while (self._api.find("Pod", _POD, _NAMESPACE) or {}).get("metadata", {}).get("uid", uid) == uid:
            assert time.monotonic() < deadline, "no new pod of Prometheus"
            time.sleep(0.2)

    def _ask(self, service: str, path: str, **parameters: str) -> Object | None:
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


def _has(labels: Mapping[str, str], **wanted: str) -> bool:
    return all(labels.get(k) == v for k, v in wanted.items())
