"""Writes tests/support/vendor: manifests of prometheus-operator and KEDA as their projects publish them, made small.

    vendor.py NAME         from the release
    vendor.py NAME FILE    from a file of the release that is there already

Left out are the descriptions in the CRDs, and the CRDs of prometheus-operator that nothing here uses (Thanos, agents,
scrape configs), without which it works. Its namespace is `monitoring` instead of `default`.
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
    """A manifest that a project publishes. `proof` is a text that only this version's manifest holds."""

    name: str
    owner: str
    version: str
    url: str
    proof: str
    unused: frozenset[str] = frozenset()
    # Where its objects are moved, if anywhere.
    namespace: str = ""

    @property
    def header(self) -> str:
        return (
            f"# {self.name} {self.version}, Copyright {self.owner}, Apache License 2.0.\n"
            f"# From {self.url}\n"
            "# Made smaller by hack/vendor.py, which says how; change nothing here.\n"
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
    )
}


class Loader(yaml.SafeLoader):
    """YAML 1.1 knows a type for a lone `=`, which is a plain string in the CRDs."""


Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)


def without_descriptions(node: Any) -> Any:
    """The node without the descriptions of a schema; a property of that name stays."""
    if isinstance(node, dict):
        return {k: without_descriptions(v) for k, v in node.items() if k != "description" or not isinstance(v, str)}
    return [without_descriptions(v) for v in node] if isinstance(node, list) else node


def moved(obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The object in that namespace, as are the accounts that it names."""
    for place in (obj["metadata"], *obj.get("subjects", [])):
        if "namespace" in place:
            place["namespace"] = namespace
    return obj


def small(bundle: Bundle, text: str) -> list[dict[str, Any]]:
    """The bundle's objects, the namespace first."""
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
        sys.exit(f"which one? {' or '.join(BUNDLES)}")
    bundle = BUNDLES[sys.argv[1]]
    if len(sys.argv) > 2:
        text = Path(sys.argv[2]).read_text()
    else:
        with urllib.request.urlopen(bundle.url, timeout=60) as answer:
            text = answer.read().decode()
    if bundle.proof not in text:
        sys.exit(f"this isn't the manifest of {bundle.name} {bundle.version}")
    target = FOLDER / f"{bundle.name}.yaml"
    # JSON is YAML too, and half as large.
    documents = [json.dumps(obj, separators=(",", ":"), sort_keys=True) + "\n" for obj in small(bundle, text)]
    target.write_text(bundle.header + "---\n" + "---\n".join(documents))
    print(f"wrote {target.relative_to(ROOT)}, {target.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
