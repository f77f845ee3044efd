"""The OLM bundle, made from the manifests and the code that the kustomize manifests are made from.

A bundle may carry only some kinds (`supported_resources.go` of operator-registry): ValidatingAdmissionPolicies aren't
among them. The user applies policies.yaml of the release beside it.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping

import yaml

from triton_operator.api import kubernetes_versions
from triton_operator.api.plain_yaml import PlainDumper
from triton_operator.manifests import crd, rbac

from .project import HOME, IMAGES, MANIFESTS, ROOT, Object, objects

PACKAGE, CHANNEL = "triton-operator", "alpha"
ICON = ROOT / "hack" / "release" / "icon.svg"
_DESCRIPTION = """\
Serves models with NVIDIA Triton. A TritonModel names a model image, a Triton image and a load. The operator delivers
the model repository to the servers, reports each model in the status, scales with the load, and creates alerts.

Apply `policies.yaml` of the same release too: the admission policies that protect thresholds and generated objects. OLM
can't install them.
"""
_METADATA = "operators.operatorframework.io.bundle"


def files(version: str) -> dict[str, str]:
    """Returns the text of each file of the bundle by its path: manifests/, metadata/ and bundle.Dockerfile."""
    texts = {
        f"manifests/{PACKAGE}.clusterserviceversion.yaml": _text(csv(version)),
        "manifests/tritonoperator.io_tritonmodels.yaml": _text(crd.definition()),
        **{f"manifests/{_file(obj)}": _text(obj) for obj in _others()},
        "metadata/annotations.yaml": _text({"annotations": bundle_metadata()}),
    }
    labels = "".join(f"LABEL {name}={value}\n" for name, value in bundle_metadata().items())
    return {
        **texts,
        "bundle.Dockerfile": f"FROM scratch\n{labels}COPY manifests /manifests/\nCOPY metadata /metadata/\n",
    }


def bundle_metadata() -> dict[str, str]:
    """Returns the annotations by which OLM finds the parts of the bundle."""
    return {
        f"{_METADATA}.mediatype.v1": "registry+v1",
        f"{_METADATA}.manifests.v1": "manifests/",
        f"{_METADATA}.metadata.v1": "metadata/",
        f"{_METADATA}.package.v1": PACKAGE,
        f"{_METADATA}.channels.v1": CHANNEL,
        f"{_METADATA}.channel.default.v1": CHANNEL,
    }


def csv(version: str) -> Object:
    """Returns the ClusterServiceVersion."""
    image = f"{IMAGES}/operator:{version}"
    role, _, lease, _ = rbac.manifests()
    account = PACKAGE
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{version}",
            "annotations": {
                "alm-examples": json.dumps(_examples(), indent=2),
                "capabilities": "Deep Insights",
                "categories": "AI/Machine Learning, Monitoring",
                "containerImage": image,
                "description": "Serves models with NVIDIA Triton",
                "operatorframework.io/suggested-namespace": PACKAGE,
                # Any earlier version upgrades to this one directly.
                "olm.skipRange": f"<{version}",
                "repository": HOME,
                "support": HOME,
            },
        },
        "spec": {
            "displayName": "Triton Operator",
            "description": _DESCRIPTION,
            "version": version,
            "minKubeVersion": f"{kubernetes_versions.name(kubernetes_versions.OLDEST)}.0",
            "maturity": "alpha",
            "keywords": ["triton", "inference", "machine learning", "gpu"],
            "icon": [{"base64data": base64.b64encode(ICON.read_bytes()).decode(), "mediatype": "image/svg+xml"}],
            "provider": {"name": "The triton-operator authors", "url": HOME},
            "links": [{"name": "Source and documentation", "url": HOME}],
            "installModes": [
                {"type": kind, "supported": kind == "AllNamespaces"}
                for kind in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": [_owned()]},
            "relatedImages": [{"name": "operator", "image": image}],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [_deployment(image)],
                    "clusterPermissions": [{"serviceAccountName": account, "rules": role["rules"]}],
                    "permissions": [{"serviceAccountName": account, "rules": lease["rules"]}],
                },
            },
        },
    }


def _owned() -> Object:
    definition = crd.definition()
    [version] = definition["spec"]["versions"]
    return {
        "name": definition["metadata"]["name"],
        "version": version["name"],
        "kind": definition["spec"]["names"]["kind"],
        "displayName": "Triton model",
        "description": "A model repository, its Triton servers and its limits.",
    }


def _deployment(image: str) -> Object:
    """Returns the Deployment of manifests/operator with the image of the release, without a namespace."""
    [deployment] = _load("deployment")
    spec = copy.deepcopy(deployment["spec"])
    [container] = spec["template"]["spec"]["containers"]
    container["image"] = image
    for variable in container["env"]:
        if variable["name"] == "TOOLS_IMAGE":
            variable["value"] = image
        # OLM writes the namespaces of the OperatorGroup into this annotation; "" means all.
        if variable["name"] == "WATCH_NAMESPACES":
            del variable["value"]
            variable["valueFrom"] = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
    return {"name": deployment["metadata"]["name"], "label": deployment["metadata"]["labels"], "spec": spec}


def _others() -> list[Object]:
    """Returns the other objects, without a namespace. OLM itself creates the ServiceAccount and its bindings."""
    own = [obj for name in ("service", "disruption_budget", "network_policy") for obj in _load(name)]
    others = copy.deepcopy([*own, *rbac.roles()])
    for obj in others:
        obj["metadata"].pop("namespace", None)
    return others


def _load(name: str) -> list[Object]:
    return objects((MANIFESTS / "operator" / f"{name}.yaml").read_text())


def _examples() -> list[Object]:
    return objects((MANIFESTS / "samples" / "detector" / "detector.yaml").read_text())


def _file(obj: Object) -> str:
    return f"{obj['metadata']['name']}_{obj['kind'].lower()}.yaml"


def _text(obj: Mapping[str, object]) -> str:
    written: str = yaml.dump(obj, Dumper=PlainDumper, sort_keys=False, width=110, allow_unicode=True)
    return written
