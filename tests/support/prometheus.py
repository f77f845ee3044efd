"""The cluster's Prometheus and Alertmanager and the receiver of its alerts, asked through the API server's proxy:
that needs no tunnel, and works again as soon as a pod that was killed is back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import urllib3

from .api import Api, Object, RefusedError
from .cluster import Cluster

_NAMESPACE = "monitoring"
_POD = "prometheus-triton-0"


@dataclass(frozen=True)
class Sample:
    """A value as it was recorded. `at` in seconds since 1970, by Prometheus' clock."""

    at: float
    value: float


class Monitoring:
    """What the cluster's monitoring knows at this moment."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._api = cluster, cluster.api

    def query(self, query: str) -> list[Object]:
        """The result of an instant query; [] also where Prometheus doesn't answer."""
        answer = self._ask("prometheus:web", "api/v1/query", query=query)
        return list(answer["data"]["result"]) if answer else []

    def value(self, query: str) -> float | None:
        """The one value that `query` gives; None where it gives none, or there is no answer."""
        found = self.query(query)
        assert len(found) < 2, f"{query} gives {len(found)} series: {[f['metric'] for f in found]}"
        return float(found[0]["value"][1]) if found else None

    def samples(self, selector: str, seconds: float) -> list[Sample]:
        """What was recorded of one series in the last seconds, as it was: nothing fills its gaps."""
        found = self.query(f"{selector}[{max(1, round(seconds))}s]")
        assert len(found) < 2, f"{selector} is {len(found)} series: {[f['metric'] for f in found]}"
        return [Sample(float(at), float(value)) for at, value in found[0]["values"]] if found else []

    def answers(self) -> bool:
        """Whether Prometheus answers."""
        return bool(self.query("vector(1)"))

    def alerts(self, name: str, **labels: str) -> list[Object]:
        """The alerts of this name in Prometheus, pending and firing."""
        answer = self._ask("prometheus:web", "api/v1/alerts")
        found = list(answer["data"]["alerts"]) if answer else []
        return [a for a in found if _has(a["labels"], alertname=name, **labels)]

    def fires(self, name: str, **labels: str) -> bool:
        """Whether such an alert fires in Prometheus."""
        return any(a["state"] == "firing" for a in self.alerts(name, **labels))

    def received(self, name: str, **labels: str) -> list[Object]:
        """What Alertmanager told the receiver of such alerts, the latest last; each has its `status`."""
        found = self._ask("alert-receiver:http", "") or []
        return [a for a in found if _has(a["labels"], alertname=name, **labels)]

    def hurry(self) -> None:
        """Lets Prometheus see new monitors and rules at once: the kubelet brings them into a pod that has changed,
        and otherwise about once a minute. For preparing a test, never for what is measured."""
        self._api.patch("Pod", _POD, {"metadata": {"annotations": {"hurry": str(time.time())}}}, namespace=_NAMESPACE)

    def restart(self) -> None:
        """Deletes Prometheus' pod and with it all that it has recorded; returns when another has been made."""
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
            # What the proxy says where nobody is behind it; anything else is a fault of the test's.
            if error.code in (500, 502, 503, 504):
                return None
            raise
        except urllib3.exceptions.HTTPError:
            return None


def threshold(api: Api, name: str, series: str = "triton:threshold", kind: str = "max-qps") -> str:
    """A selector of what is, by this series, the limit of TritonModel `name` over all versions."""
    return f'{series}{{namespace="{api.namespace}",tritonmodel="{name}",kind="{kind}",version=""}}'


def _has(labels: Mapping[str, str], **wanted: str) -> bool:
    return all(labels.get(k) == v for k, v in wanted.items())
