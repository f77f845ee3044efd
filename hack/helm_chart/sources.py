"""The manifests that the chart is made from."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import dashboards
import yaml
from dashboards import grafana

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"


def load(path: str) -> list[Object]:
    """Returns the objects of a file that isn't generated; `path` is relative to manifests/."""
    return [obj for obj in yaml.safe_load_all((MANIFESTS / path).read_text()) if obj]


def version() -> str:
    """Returns the project's version, which is the version of the charts and of the operator's image."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


[DEPLOYMENT] = load("operator/deployment.yaml")
DASHBOARD_OPTIONS: dict[str, dict[str, str]] = grafana.kustomization(dashboards.ALL)["generatorOptions"]


def container() -> Object:
    """Returns the operator's container in the Deployment."""
    [operator] = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    return copy.deepcopy(operator)


def environment() -> dict[str, str]:
    """Returns the environment variables of the container that have a value."""
    return {entry["name"]: entry["value"] for entry in container()["env"] if "value" in entry}
