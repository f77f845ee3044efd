"""Steps and reads that these tests share."""

from __future__ import annotations

import json
import re
from typing import Any

from support import gen
from support.api import Api, Object, condition, eventually
from support.controlplane import ControlPlane
from support.kubelet import add_pod
from support.operator_process import Operator
from triton_operator.api import thresholds

SOON = 15.0
P = thresholds.PREFIX
AUTOSCALER = "HorizontalPodAutoscaler"
QUICK = {"DISCOVERY_SECONDS": "1"}


def namespace(plane: ControlPlane, name: str, **labels: str) -> Api:
    metadata = {"name": name, "labels": labels}
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return plane.api.in_namespace(name)


def prometheus(
    api: Api, name: str, objects: Object, namespaces: Object | None = None, own: str = "monitoring", **more: Any
) -> None:
    """Creates a Prometheus resource with these selectors; by default it selects in every namespace.

    `more`: further fields of its spec.
    """
    everywhere = {} if namespaces is None else namespaces
    spec = {"ruleSelector": objects, "ruleNamespaceSelector": everywhere,
            "podMonitorSelector": objects, "podMonitorNamespaceSelector": everywhere, **more}  # fmt: skip
    metadata = {"name": name, "namespace": own}
    api.in_namespace(own).create(
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "metadata": metadata, "spec": spec}
    )


def wait_for_condition(api: Api, kind: str, status: str, reason: str, name: str = gen.NAME) -> str:
    """Waits for this condition and returns its message."""

    def look() -> Object | None:
        current = condition(api.get("TritonModel", name), kind)
        return current if (current.get("status"), current.get("reason")) == (status, reason) else None

    reached = eventually(look, SOON, lambda: api.get("TritonModel", name).get("status"))
    return str(reached["message"])


def in_status(api: Api) -> dict[str, str]:
    """Returns the thresholds in the status."""
    statuses = api.get("TritonModel", gen.NAME).get("status", {}).get("thresholds", [])
    return {t["kind"] + (f".{t['version']}" if t.get("version") else ""): t["value"] for t in statuses}


def serving(api: Api, operator: Operator, name: str = gen.NAME, pod: str = "detection-abc-1") -> None:
    """Creates a pod with a finished repository check, and waits for the rules."""
    eventually(lambda: api.find("Deployment", name), SOON, lambda: operator.log)
    report = gen.report("pre", "detection", entrypoint="detection")
    add_pod(api, gen.checked(report), gen.put("status.podIP", ""), name=pod, model=name)
    eventually(lambda: api.find("PrometheusRule", name), SOON, lambda: operator.log)


def gauge(operator: Operator, api: Api, kind: str = "max-qps", version: str = "") -> float | None:
    """Returns the threshold in the metrics of this replica; None if there is none."""
    labels = {"namespace": api.namespace, "tritonmodel": gen.NAME, "kind": kind, "version": version}
    for text, value in re.findall(r"^triton_operator_threshold\{(.*)\} (\S+)$", operator.get("/metrics"), re.M):
        if dict(re.findall(r'(\w+)="([^"]*)"', text)) == labels:
            return float(value)
    return None


def events(api: Api, reason: str) -> list[str]:
    matching = [e for e in api.list("Event") if e["reason"] == reason]
    return [e["message"] for e in sorted(matching, key=lambda e: int(e["metadata"]["resourceVersion"]))]


def literals(api: Api) -> str:
    """Returns the expressions of the rules with the fallback values."""
    groups = api.get("PrometheusRule", gen.NAME)["spec"]["groups"]
    return json.dumps([r for g in groups for r in g["rules"] if r.get("record") == "tritonmodel:threshold:fallback"])


def versions(api: Api, *kinds: str) -> dict[str, str]:
    return {f"{k}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for k in kinds for o in api.list(k)}


def difference(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """Returns the writes since `before`, by resource and subresource."""
    out: dict[str, float] = {}
    for labels, count in now.items():
        parts = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = "/".join(filter(None, (parts["resource"], parts["subresource"])))
        if count > before.get(labels, 0):
            out[name] = out.get(name, 0) + count - before.get(labels, 0)
    return out
