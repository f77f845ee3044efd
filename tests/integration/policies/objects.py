"""Objects like those that the operator creates, as other users would write them."""

from __future__ import annotations

from support.api import Object
from triton_operator.api import names

MANAGED = {names.LABEL_MANAGED_BY: names.FIELD_MANAGER, names.LABEL_MODEL: "detector"}


def generated(kind: str, name: str, labels: dict[str, str] = MANAGED, owner: Object | None = None) -> Object:
    """`owner`: the object that becomes its controller."""
    version = {"ServiceAccount": "v1", "Service": "v1", "Deployment": "apps/v1", "ScaledObject": "keda.sh/v1alpha1"}[
        kind
    ]
    obj: Object = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}}
    if owner:
        fields = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}
        obj["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", **fields}]
    if kind == "Service":
        obj["spec"] = {"ports": [{"port": 80}]}
    if kind == "ScaledObject":
        obj["spec"] = {"scaleTargetRef": {"name": name}, "triggers": [], "advanced": {}, "minReplicaCount": 1}
    if kind == "Deployment":
        template = {"metadata": {"labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        obj["spec"] = {"replicas": 0, "selector": {"matchLabels": {"a": name}}, "template": template}
    return obj
