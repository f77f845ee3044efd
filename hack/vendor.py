"""Writes tests/support/vendor: reduced copies of published manifests.

    vendor.py NAME         downloads the release
    vendor.py NAME FILE    reads a downloaded file

They are of prometheus-operator, KEDA, OLM, the Gateway API and Envoy Gateway. Removes the descriptions in the CRDs, and
the CRDs of prometheus-operator that this project doesn't use (Thanos, agents, scrape configs). Moves
prometheus-operator from the namespace `default` to `monitoring`.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "support" / "vendor"


@dataclass(frozen=True)
class Bundle:
    """A published manifest. `proof` is a text that only this version of the manifest contains."""

    name: str
    owner: str
    version: str
    url: str
    proof: str
    unused: frozenset[str] = frozenset()
    # The namespace to move the objects to; "" keeps theirs.
    namespace: str = ""

    @property
    def header(self) -> str:
        return (
            f"# {self.name} {self.version}, Copyright {self.owner}, Apache License 2.0.\n"
            f"# From {self.url}\n"
            "# Reduced by hack/vendor.py; don't edit.\n"
        )


BUNDLES = {
    bundle.name: bundle
    for bundle in (
        Bundle(
            name="prometheus-operator",
            owner="The prometheus-operator Authors",
            version="v0.85.0",
            url="https://github.com/prometheus-operator/prometheus-operator/releases/download/v0.85.0/bundle.yaml",
            proof="prometheus-operator:v0.85.0",
            unused=frozenset({"prometheusagents", "scrapeconfigs", "thanosrulers"}),
            namespace="monitoring",
        ),
        Bundle(
            name="keda",
            owner="The KEDA Authors",
            version="v2.19.0",
            url="https://github.com/kedacore/keda/releases/download/v2.19.0/keda-2.19.0.yaml",
            proof="kedacore/keda:2.19.0",
        ),
        # CRDs that lack fields of the operator's objects. The files don't contain their versions.
        *(
            Bundle(
                name=f"old-{plural}",
                owner="The prometheus-operator Authors",
                version="v0.65.0",
                url="https://raw.githubusercontent.com/prometheus-operator/prometheus-operator/v0.65.0/example/"
                f"prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml",
                proof=f"version: v0.11.1\n  creationTimestamp: null\n  name: {plural}.monitoring.coreos.com",
            )
            for plural in ("podmonitors", "prometheusrules")
        ),
        Bundle(
            name="old-scaledobjects",
            owner="The KEDA Authors",
            version="v2.13.0",
            url="https://raw.githubusercontent.com/kedacore/keda/v2.13.0/config/crd/bases/keda.sh_scaledobjects.yaml",
            proof="version: v0.13.0\n  name: scaledobjects.keda.sh",
        ),
        # The standard channel, in the first version with GRPCRoute and in the newest one.
        *(
            Bundle(
                name=f"{age}{plural}",
                owner="The Kubernetes Authors",
                version=version,
                url=f"https://raw.githubusercontent.com/kubernetes-sigs/gateway-api/{version}/config/crd/standard/"
                f"gateway.networking.k8s.io_{plural}.yaml",
                proof=f"gateway.networking.k8s.io/bundle-version: {version}",
            )
            for age, version in (("old-", "v1.1.0"), ("", "v1.6.1"))
            for plural in ("httproutes", "grpcroutes")
        ),
        *(
            Bundle(
                name=f"{age}backendtrafficpolicies",
                owner="The Envoy Gateway Authors",
                version=version,
                url=f"https://raw.githubusercontent.com/envoyproxy/gateway/{version}/charts/gateway-helm/{folder}"
                "crds/generated/gateway.envoyproxy.io_backendtrafficpolicies.yaml",
                proof=f"controller-gen.kubebuilder.io/version: {generator}",
            )
            for age, version, folder, generator in (
                ("old-", "v1.3.0", "", "v0.16.1"),
                ("", "v1.9.0", "charts/crds/", "v0.20.1"),
            )
        ),
        # The CRD of ClusterServiceVersions, for the test of the OLM bundle. The file doesn't contain its own version.
        Bundle(
            name="olm",
            owner="The Operator Framework Authors",
            version="v0.45.0",
            url="https://raw.githubusercontent.com/operator-framework/api/v0.45.0/crds/operators.coreos.com_clusterserviceversions.yaml",
            proof="name: clusterserviceversions.operators.coreos.com",
        ),
    )
}


class Loader(yaml.SafeLoader):
    """A loader that reads `=` as a string. YAML 1.1 gives it a separate type, but the CRDs use it as a string."""


Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)


def without_descriptions(node: Any) -> Any:
    """Returns the schema without descriptions. Keeps a property that is named `description`."""
    if isinstance(node, dict):
        return {k: without_descriptions(v) for k, v in node.items() if k != "description" or not isinstance(v, str)}
    return [without_descriptions(v) for v in node] if isinstance(node, list) else node


def moved(obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Moves the object and the service accounts that it names to the namespace, and returns it."""
    for place in (obj["metadata"], *obj.get("subjects", [])):
        if "namespace" in place:
            place["namespace"] = namespace
    return obj


def small(bundle: Bundle, text: str) -> list[dict[str, Any]]:
    """Returns the bundle's reduced objects, the namespace first."""
    objects: list[dict[str, Any]] = []
    if bundle.namespace:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        objects.append(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bundle.namespace, "labels": labels}}
        )
    for obj in filter(None, yaml.load_all(text, Loader)):
        if obj["kind"] == "CustomResourceDefinition":
            if obj["spec"]["names"]["plural"] in bundle.unused:
                continue
            obj["spec"] = without_descriptions(obj["spec"])
        objects.append(moved(obj, bundle.namespace) if bundle.namespace else obj)
    return objects


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in BUNDLES:
        sys.exit(f"usage: vendor.py {'|'.join(BUNDLES)} [FILE]")
    bundle = BUNDLES[sys.argv[1]]
    if len(sys.argv) > 2:
        text = Path(sys.argv[2]).read_text()
    else:
        with urllib.request.urlopen(bundle.url, timeout=60) as answer:
            text = answer.read().decode()
    if bundle.proof not in text:
        sys.exit(f"this isn't the manifest of {bundle.name} {bundle.version}")
    target = FOLDER / f"{bundle.name}.yaml"
    # JSON is valid YAML and half the size.
    documents = [json.dumps(obj, separators=(",", ":"), sort_keys=True) + "\n" for obj in small(bundle, text)]
    target.write_text(bundle.header + "---\n" + "---\n".join(documents))
    print(f"wrote {target.relative_to(ROOT)}, {target.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
