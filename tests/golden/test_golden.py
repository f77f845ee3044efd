"""Compares the rendered objects with the golden files, and applies these to a real API server as a dry run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import controlplane
from support.api import Api, RefusedError
from triton_operator.api import thresholds
from triton_operator.api.plain_yaml import PlainDumper
from triton_operator.api.types import TritonModel
from triton_operator.decisions.first_objects import first_objects
from triton_operator.render import Facts, children

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted(p.parent for p in Path(__file__).parent.glob("cases/*/model.yaml"))
MODELS = [*CASES, *sorted((ROOT / "manifests" / "samples").glob("**/*.yaml"))]
TOOLS_IMAGE = "registry.example.com/triton-operator:1"
UID = "00000000-0000-4000-8000-000000000000"


def documents(path: Path) -> list[dict[str, Any]]:
    file = path / "model.yaml" if path.is_dir() else path
    return [d for d in yaml.safe_load_all(file.read_text()) if d]


def rendered(path: Path) -> list[dict[str, Any]]:
    out = []
    for document in documents(path):
        if document["kind"] == "TritonModel":
            metadata = {"namespace": "default", **document["metadata"], "uid": UID}
            model = TritonModel.model_validate({**document, "metadata": metadata})
            out += first_objects(model, fresh(model, document))
    return out


def fresh(model: TritonModel, document: dict[str, Any]) -> Facts:
    """Returns the facts after the repository check of a server. The sample's entry model is an ensemble."""
    return Facts(
        TOOLS_IMAGE,
        "Copy",
        entrypoint=model.spec.entrypoint or "detection",
        ensemble=(model.spec.entrypoint or "detection") == "detection",
        decoupled=("chat",) if model.spec.monitoring.streaming else (),
        thresholds=thresholds.effective_of(document),
        prometheus="http://prometheus-operated.monitoring.svc:9090",
    )


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_golden(case: Path, update_golden: bool) -> None:
    text = yaml.dump_all(rendered(case), Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=110)
    golden = case / "objects.yaml"
    if update_golden:
        golden.write_text(text)
    assert golden.read_text() == text, "look at the difference; if it is meant, run `make golden`"


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    with controlplane.running() as plane:
        plane.install_crds()
        plane.install_monitoring()
        plane.install_keda()
        plane.install_routes()
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
        yield plane.api


def dry_run(server: Api, obj: dict[str, Any], plural: str, namespace: str) -> None:
    version = obj["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    query = "dryRun=All&fieldManager=test&force=true&fieldValidation=Strict"
    path = f"{root}/namespaces/{namespace}/{plural}/{obj['metadata']['name']}?{query}"
    server.request("PATCH", path, obj, "application/apply-patch+yaml")


@pytest.mark.integration
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem if p.suffix else p.name)
def test_api_server_accepts_the_model_and_all_its_objects(path: Path, server: Api) -> None:
    models = [d for d in documents(path) if d["kind"] == "TritonModel"]
    for document in models:
        # The namespace of a sample doesn't exist, so the dry run uses another one.
        document["metadata"]["namespace"] = "vision"
        server.request(
            "POST",
            "/apis/tritonoperator.io/v1alpha1/namespaces/vision/tritonmodels?dryRun=All&fieldValidation=Strict",
            document,
        )
    for obj in rendered(path):
        obj["metadata"]["namespace"] = "vision"
        dry_run(server, obj, children.of(obj).kind.plural, "vision")


@pytest.mark.integration
def test_dry_run_rejects_an_unknown_field(server: Api) -> None:
    obj = next(o for o in rendered(CASES[0]) if o["kind"] == "Deployment")
    obj["spec"]["template"]["spec"]["fieldOfNobody"] = 1
    with pytest.raises(RefusedError, match="fieldOfNobody"):
        dry_run(server, obj, "deployments", "vision")
