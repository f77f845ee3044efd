"""The CustomResourceDefinition, generated from the types."""

from __future__ import annotations

from typing import Any

from triton_operator.api import names
from triton_operator.api.fields import rule
from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModelSpec

from .schema import structural

_COLUMNS = [
    (
        "Ready",
        "string",
        '.status.conditions[?(@.type=="Ready")].status',
        0,
        "Whether the entrypoint answers.",
    ),
    ("Models", "string", ".status.loaded", 0, "Number of loaded models, of the models that should be loaded."),
    ("Replicas", "integer", ".status.readyReplicas", 0, "Number of servers on which the entrypoint answers."),
    ("QPS limit", "string", ".status.maxQps", 0, "The limit in requests per second."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since the resource was created."),
    ("Image", "string", ".spec.modelImage.reference", 1, "The model image."),
    ("Digest", "string", ".status.image.digest", 1, "The digest of the model image in use."),
    ("Triton", "string", ".status.serverVersion", 1, "The version of Triton that the servers report."),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 1, "Reason of the condition Ready."),
]


def definition() -> dict[str, Any]:
    """Returns the CRD of TritonModel, as in `crds/`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": ["tm"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {"name": n, "type": t, "jsonPath": p, "priority": w, "description": d}
                        for n, t, p, w, d in _COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": _schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                }
            ],
        },
    }


def _schema() -> dict[str, Any]:
    status = structural(TritonModelStatus)
    status["properties"]["conditions"] |= {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    # kstatus takes a resource without a status for current.
    status["default"] = {"observedGeneration": -1}
    return {
        "type": "object",
        "description": "A model repository served by NVIDIA Triton. The operator manages the servers, delivers the "
        "repository to them, creates Services, autoscaler and alerts, and reports the state of each model.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{names.API_VERSION}"},
            "kind": {"type": "string", "description": names.KIND},
            "metadata": {"type": "object"},
            "spec": structural(TritonModelSpec),
            "status": status,
        },
        "x-kubernetes-validations": [
            rule(
                f"size(self.metadata.name) <= {names.NAME_MAX}",
                f"metadata.name must have at most {names.NAME_MAX} characters, because Services get this name",
            ),
            rule(
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "metadata.name must start with a letter, have only lower-case letters, digits and '-', and not "
                "end with '-', because Services get this name",
            ),
        ],
    }
