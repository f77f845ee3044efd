"""Fields of the pods that the cluster's version of Kubernetes doesn't have."""

from __future__ import annotations

import pytest

from integration.world.steps import progressing, version, wait_until_observed
from support import controlplane, gen
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.people import make
from triton_operator.api import kubernetes_versions as versions

pytestmark = pytest.mark.integration

SIGNAL = {"podTemplate": {"spec": {"os": {"name": "linux"}, "containers": [
    {"name": "triton", "lifecycle": {"stopSignal": "SIGTERM"}},
]}}}  # fmt: skip
"""Needs the feature gate ContainerStopSignals, which is off by default."""
STOP_SIGNALS = (1, 33)


@pytest.fixture
def cluster() -> tuple[int, int]:
    """The version of the cluster."""
    return versions.minor(controlplane.version())


def test_a_field_that_the_cluster_does_not_know_is_named_with_its_version(
    api: Api, operator: Operator, cluster: tuple[int, int]
) -> None:
    if cluster >= STOP_SIGNALS:
        pytest.skip("Kubernetes knows stopSignal from 1.33")
    make(api, **SIGNAL)
    message = progressing(api, "ApplyRefused")["message"]
    assert "lifecycle.stopSignal: field not declared in schema" in message
    assert f"; this cluster's Kubernetes {versions.name(cluster)} doesn't know this field; check spec.pod" in message


def test_a_field_that_the_cluster_drops_is_named_and_causes_no_more_writes(
    api: Api, operator: Operator, control_plane: ControlPlane, cluster: tuple[int, int]
) -> None:
    if cluster < STOP_SIGNALS:
        pytest.skip("Kubernetes before 1.33 refuses stopSignal")
    make(api, **SIGNAL)
    wait_until_observed(api)
    words = (
        f"this cluster's Kubernetes {versions.name(cluster)} dropped "
        "spec.template.spec.containers[0].lifecycle.stopSignal of the Deployment"
    )
    eventually(lambda: words in message(api), 60)
    control_plane.wait_until_quiet()
    before = version(api.get("Deployment", gen.NAME))
    api.patch("TritonModel", gen.NAME, {"spec": {"service": {"sessionAffinity": "ClientIP"}}})
    eventually(lambda: api.get("Service", gen.NAME)["spec"]["sessionAffinity"] == "ClientIP", 60)
    wait_until_observed(api)
    assert version(api.get("Deployment", gen.NAME)) == before
    assert words in message(api)
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None}})
    eventually(lambda: "dropped" not in message(api), 60)


def message(api: Api) -> str:
    """Returns the message of the condition Progressing."""
    conditions = api.get("TritonModel", gen.NAME).get("status", {}).get("conditions", ())
    return next((str(c["message"]) for c in conditions if c["type"] == "Progressing"), "")


def test_image_volumes_that_the_cluster_drops_are_named_with_the_way_out(
    api: Api, operator: Operator, cluster: tuple[int, int]
) -> None:
    if cluster >= versions.IMAGE_VOLUMES:
        pytest.skip("Kubernetes has image volumes from 1.35")
    make(api, modelImage={"reference": "registry.example.com/detection:1", "delivery": "ImageVolume"})
    words = "; image volumes need Kubernetes 1.35 or the feature gate ImageVolume: set spec.modelImage.delivery to Copy"
    eventually(lambda: words in message(api), 60)
    api.patch("TritonModel", gen.NAME, {"spec": {"modelImage": {"delivery": "Copy"}}})
    eventually(lambda: words not in message(api), 60)
