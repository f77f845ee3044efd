"""Writes tests/support/vendor/prometheus-operator.yaml: prometheus-operator as its project publishes it, made small.

    vendor.py            from the release
    vendor.py FILE       from a bundle.yaml that is there already

Left out are the descriptions in the CRDs, and the CRDs of what nothing here uses (Thanos, agents, scrape configs);
prometheus-operator does without these. The namespace is `monitoring` instead of `default`.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "support" / "vendor" / "prometheus-operator.yaml"
VERSION = "v0.85.0"
URL = f"https://github.com/prometheus-operator/prometheus-operator/releases/download/{VERSION}/bundle.yaml"
HEADER = f"""\
# prometheus-operator {VERSION}, Copyright The prometheus-operator Authors, Apache License 2.0.
# From {URL}
# Made smaller by hack/vendor.py, which says how; change nothing here.
"""
UNUSED = {"prometheusagents", "scrapeconfigs", "thanosrulers"}
NAMESPACE = "monitoring"


class Loader(yaml.SafeLoader):
    """YAML 1.1 knows a type for a lone `=`, which is a plain string in the CRDs."""


Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)


def without_descriptions(node: Any) -> Any:
    """The node without the descriptions of a schema; a property of that name stays."""
    if isinstance(node, dict):
        return {k: without_descriptions(v) for k, v in node.items() if k != "description" or not isinstance(v, str)}
    return [without_descriptions(v) for v in node] if isinstance(node, list) else node


def moved(obj: dict[str, Any]) -> dict[str, Any]:
    """The object in our namespace, as are the accounts that it names."""
    for place in (obj["metadata"], *obj.get("subjects", [])):
        if "namespace" in place:
            place["namespace"] = NAMESPACE
    return obj


def small(bundle: str) -> list[dict[str, Any]]:
    """The bundle's objects, our namespace first."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}]
    for obj in filter(None, yaml.load_all(bundle, Loader)):
        if obj["kind"] == "CustomResourceDefinition":
            if obj["spec"]["names"]["plural"] in UNUSED:
                continue
            obj["spec"] = without_descriptions(obj["spec"])
        objects.append(moved(obj))
    return objects


def main() -> int:
    if len(sys.argv) > 1:
        bundle = Path(sys.argv[1]).read_text()
    else:
        with urllib.request.urlopen(URL, timeout=60) as answer:
            bundle = answer.read().decode()
    if f"prometheus-operator:{VERSION}" not in bundle:
        sys.exit(f"this isn't the bundle of prometheus-operator {VERSION}")
    # JSON is YAML too, and half as large.
    documents = [json.dumps(obj, separators=(",", ":"), sort_keys=True) + "\n" for obj in small(bundle)]
    TARGET.write_text(HEADER + "---\n" + "---\n".join(documents))
    print(f"wrote {TARGET.relative_to(ROOT)}, {TARGET.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
