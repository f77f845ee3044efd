"""Unusual objects that an API server may accept: TritonModels, and objects that look like their children."""

from __future__ import annotations

import random
from typing import Any

from triton_operator.api import names

from . import specs

Json = Any
MARK = "example.com/strange"
"""A foreign finalizer that no controller removes."""
_WORDS = [
    "",
    " ",
    "a",
    "ü" * 40,
    "🚦\u202e",
    "e\u0301",
    "\x00",
    "a" * 5000,
    "None",
    "{{ .Bad",
    "%s",
    "\ufffe",
    "0",
    "-1",
    "1e9",
]
_TIMES = ["2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00.123456Z"]
_NUMBERS = [0, 1, -1, 2, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
_CHILD_KINDS = {
    "Deployment": "apps/v1", "Service": "v1", "ServiceAccount": "v1", "PodDisruptionBudget": "policy/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2", "Pod": "v1", "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
}  # fmt: skip
_CONTAINERS = [names.CONTAINER_CHECK, names.CONTAINER_FETCH, names.CONTAINER_SERVER, "z"]
_IMAGE_IDS = ["", "a", "a@sha256:", "@", "a@b@c", "docker-pullable://a@sha256:" + "0" * 64]
_CONTAINER = {"name": "a", "image": "b"}


class Strange:
    """Generates unusual objects from a seed. `victims` maps names of TritonModels that may appear as owners to uids."""

    def __init__(self, seed: int, victims: dict[str, str]) -> None:
        self._random, self._victims, self._number = random.Random(seed), victims, 0
        self._status = specs.schema("status")

    def model(self) -> tuple[Json, Json]:
        """Returns a TritonModel, and a patch of its metadata to send afterwards."""
        spec: Json = {"modelImage": {"reference": "example.com/models:1"}}
        if self._often():
            spec["replicas"] = self._random.choice([0, 1, 3])
        if self._often():
            spec["entrypoint"] = self._random.choice(["a", "detection", "ü", "x" * 200])
        if self._often():
            spec["monitoring"] = {"enabled": False}
        if self._seldom():
            spec["autoscaling"] = {"max": 3}
        if self._seldom():
            values = [{"name": f"V{n}", "value": "v" * self._random.choice([10, 1000, 9000])} for n in range(100)]
            spec["server"] = {"env": values}
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": self._metadata("m"), "spec": spec}
        return body, self._patch()

    def child(self) -> tuple[Json, Json, Json]:
        """Returns an object of a kind that the operator watches, a patch of its metadata, and its status."""
        kind = self._random.choice([*_CHILD_KINDS, "Pod", "Pod", "Pod"])
        body = {"apiVersion": _CHILD_KINDS[kind], "kind": kind, "metadata": self._metadata("c"), **self._body(kind)}
        labels = body["metadata"].setdefault("labels", {})
        if isinstance(labels, dict):
            # Without this label the operator doesn't watch it.
            labels["app.kubernetes.io/managed-by"] = names.FIELD_MANAGER
        return body, self._patch(), self._status_of(kind)

    def status(self) -> Json:
        """Returns a status of a TritonModel, mostly valid for its schema."""
        if self._random.random() < 0.9:
            status = self._of_schema(self._status)
            if "replicas" in status:  # the scale subresource has limits
                status["replicas"] = self._random.choice([0, 1, 2**31 - 1])
            return status
        return self._random.choice([{}, None, [], "a", {"conditions": []}, {"conditions": [{}]}, {"a": {"b": [1]}}])

    def _often(self) -> bool:
        return self._random.random() < 0.5

    def _seldom(self) -> bool:
        return self._random.random() < 0.12

    def _text(self) -> str:
        return self._random.choice(_WORDS)

    def _metadata(self, prefix: str) -> Json:
        self._number += 1
        metadata: Json = {"name": f"{prefix}-{self._number}"}
        if self._seldom():
            metadata = {"generateName": f"{prefix}-"}
        for field, make in (
            ("labels", self._labels),
            ("annotations", self._annotations),
            ("finalizers", self._finalizers),
            ("ownerReferences", self._owners),
        ):
            if self._often():
                metadata[field] = make()
        return metadata

    def _victim(self) -> tuple[str, str]:
        name = self._random.choice([*self._victims, "nobody", f"m-{self._random.randint(1, 30)}"])
        return name, self._victims.get(name, f"uid-{name}")

    def _labels(self) -> Json:
        if self._seldom():
            return {f"l{n}": "v" * 63 for n in range(500)}
        name, _ = self._victim()
        return self._random.choice(
            [
                None,
                {},
                names.selector(name),
                names.selector(""),
                names.labels(name),
                {"app.kubernetes.io/instance": name},
                {"a": ""},
            ]
        )

    def _annotations(self) -> Json:
        if self._seldom():
            return {f"a{n}": "ü" * 1000 for n in range(self._random.choice([3, 100]))}
        keys = ["max_qps", "max_qps.v1", "tritonoperator.io/max-qps", "tritonoperator.io/spike-factor",
                names.ANNOTATION_TEMPLATE, "tritonoperator.io/a", "kubectl.kubernetes.io/last-applied-configuration",
                "deployment.kubernetes.io/revision"]  # fmt: skip
        return {key: self._text() for key in self._random.sample(keys, 3)}

    def _finalizers(self) -> Json:
        return self._random.choice(
            [[], [MARK], [f"{MARK}-{n}" for n in range(50)], [MARK, "orphan"], ["foregroundDeletion"]]
        )

    def _owners(self) -> Json:
        def make_owner() -> Json:
            name, uid = self._victim()
            owner: Json = {
                "apiVersion": self._random.choice(
                    [
                        names.API_VERSION,
                        f"{names.GROUP}/v2",
                        "v1",
                        "apps/v1",
                        "example.com/v1",
                        f"{names.GROUP}.evil/v1",
                    ]
                ),
                "kind": self._random.choice(
                    [names.KIND, names.KIND, "ConfigMap", "Deployment", "ReplicaSet", "a" * 60]
                ),
                "name": self._random.choice([name, name, "a/b", "x" * 300]),
                "uid": self._random.choice([uid, "u", "ü", "x" * 500]),
            }
            for flag in ("controller", "blockOwnerDeletion"):
                if self._often():
                    owner[flag] = self._random.choice([True, False])
            return owner

        owners = [make_owner() for _ in range(self._random.choice([1, 1, 2, 30]))]
        for owner in owners[1:]:  # the API server takes one controller only
            owner.pop("controller", None)
        return owners

    def _patch(self) -> Json:
        """Returns a patch of managedFields, which every writer of the object may send."""
        if self._often():
            return None
        entry: Json = {
            "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": self._random.choice(_TIMES), "fieldsV1": {"f:metadata": {"f:annotations": {"f:x": {}}}},
        }  # fmt: skip
        if self._often():
            entry["manager"] = self._random.choice([names.FIELD_MANAGER, "", "ü", "a" * 128])
        if self._often():
            entry["operation"] = self._random.choice(["Apply", "Update"])
        if self._often():
            entry["fieldsV1"] = self._random.choice(
                [{}, {"f:spec": {}}, {"f:spec": {".": {}, 'k:{"a":1}': {}, "v:3": {}, "i:5": {}}}, {"f:": {"f:": {}}}]
            )
        for field in ("time", "fieldsV1"):
            if self._seldom():
                entry.pop(field)
        if self._often():
            entry["subresource"] = self._random.choice(["status", "", "scale", "a"])
        return {"metadata": {"managedFields": self._random.choice([[entry], [entry] * 3, [{}]])}}

    def _body(self, kind: str) -> Json:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_CONTAINER]}}
        server = {
            "name": names.CONTAINER_SERVER,
            "image": "a",
            "resources": {"limits": {"memory": "1m"}},
            "startupProbe": {"httpGet": {"port": 1}, "failureThreshold": 2**31 - 1},
        }
        bodies: dict[str, list[Json]] = {
            "Deployment": [
                {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **extra}}
                for extra in ({}, {"replicas": 0}, {"replicas": 2**31 - 1}, {"paused": True})
            ],
            "Service": [
                {"spec": {"ports": [{"port": 80}]}}, {"spec": {"type": "ExternalName", "externalName": "a.b"}},
                {"spec": {"clusterIP": "None"}},
            ],
            "ServiceAccount": [{}, {"secrets": [{"name": "a"}]}],
            "PodDisruptionBudget": [{"spec": {}}, {"spec": {"minAvailable": "30%"}}],
            "HorizontalPodAutoscaler": [
                {"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "a.b/v1", "kind": "a", "name": "a"}}},
                {"spec": {"maxReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "a"}}},
            ],
            "Pod": [
                {"spec": {"containers": [_CONTAINER]}},
                {"spec": {"containers": [{"name": names.CONTAINER_SERVER, "image": "a"}],
                          "initContainers": [{"name": names.CONTAINER_CHECK, "image": "a"}]}},
                {"spec": {"containers": [server]}},
            ],
            "PodMonitor": [{"spec": {"selector": {}, "podMetricsEndpoints": []}}, {"spec": {"selector": {}}}],
            "PrometheusRule": [{}, {"spec": {}}, {"spec": {"groups": []}}, {"spec": {"groups": [{"name": "a"}]}}],
        }  # fmt: skip
        return dict(self._random.choice(bodies[kind]))

    def _status_of(self, kind: str) -> Json:
        kinds = ["Ready", "PodScheduled", "ReplicaFailure", "ScalingActive", "example.com/a"]
        conditions = [
            {
                "type": name,
                "status": self._random.choice(["True", "False", "Unknown"]),
                "reason": self._random.choice(["A", "Unschedulable"]),
                "lastTransitionTime": self._random.choice(_TIMES[:3]),
                "message": self._text(),
            }
            for name in self._random.sample(kinds, self._random.choice([0, 1, 3]))
        ]
        for condition in conditions:
            if self._often() and kind != "PodDisruptionBudget":
                for field in ("reason", "message", "lastTransitionTime"):
                    del condition[field]
        if kind == "Pod":
            return self._pod_status(conditions)
        if kind == "HorizontalPodAutoscaler":
            return {"currentReplicas": 1, "desiredReplicas": -5, "currentMetrics": None, "conditions": conditions}
        return {"conditions": conditions, "observedGeneration": abs(self._random.choice(_NUMBERS[:5]))}

    def _pod_status(self, conditions: Json) -> Json:
        def container() -> Json:
            message = self._random.choice(
                ["", "{}", "[]", "null", '{"models": 5}', '{"models": [5]}', '{"findings": {}}', "x" * 4096, "{" * 3000,
                 '{"models":[{"name":null}],"findings":[{"severity":"??"}],"entrypoint":7}', "\ufffe", "1e999"]
            )  # fmt: skip
            end: Json = {"exitCode": self._random.choice([0, 1, 137, -1])}
            if self._often():
                end |= {"message": message, "reason": self._text()}
            state = self._random.choice(
                [{}, {"running": {}}, {"terminated": end}, {"waiting": {}}, {"waiting": {"reason": "ErrImagePull"}}]
            )
            status: Json = {
                "name": self._random.choice(_CONTAINERS),
                "image": self._text(),
                "imageID": self._random.choice(_IMAGE_IDS),
                "ready": self._often(),
                "restartCount": self._random.choice([0, 1, 2**31 - 1]),
                "state": state,
            }  # fmt: skip
            if self._often():
                status["lastState"] = {"terminated": end}
            return status

        status: Json = {"phase": self._random.choice(["Pending", "Running", "Failed", "Succeeded", "Unknown", "ü"])}
        for field, value in (
            ("conditions", conditions),
            ("initContainerStatuses", [container() for _ in range(3)]),
            ("containerStatuses", [container() for _ in range(2)]),
            ("podIP", self._random.choice(["10.0.0.1", "fd00::1", "::", "0.0.0.0", "127.0.0.1"])),
            ("reason", self._text()),
            ("message", self._text()),
        ):
            if self._often():
                status[field] = value
        return status

    def _of_schema(self, schema: Json) -> Json:
        if self._random.random() < 0.0005 and schema["type"] != "object":
            return self._random.choice([None, "a", 5, [], {}])
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if schema["type"] == "object":
            if "properties" not in schema:
                inner = schema.get("additionalProperties", {"type": "string"})
                return {self._text(): self._of_schema(inner) for _ in range(self._random.randint(0, 3))}
            required = schema.get("required", ())
            return {
                name: self._of_schema(inner)
                for name, inner in schema["properties"].items()
                if name in required or self._often()
            }
        if schema["type"] == "array":
            items = [self._of_schema(schema["items"]) for _ in range(self._random.choice([0, 1, 2, 9]))]
            keys = schema.get("x-kubernetes-list-map-keys", ())
            return list({tuple(str(item[k]) for k in keys): item for item in items}.values()) if keys else items
        if schema["type"] in ("integer", "number"):
            return self._random.choice(_NUMBERS)
        if schema["type"] == "boolean":
            return self._often()
        if schema.get("format") == "date-time":
            return self._random.choice(_TIMES)
        words = [*_WORDS, "Ready", "ThresholdLive", "1/1", "max-qps", "+Inf", "NaN"]
        return self._random.choice(words)[: schema.get("maxLength", 10_000)]
