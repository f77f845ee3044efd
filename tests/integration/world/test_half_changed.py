"""A change of the spec reaches only the servers that it made, until one of them is ready."""

from __future__ import annotations

from typing import Any

import pytest

from integration.world.steps import ACCOUNT, SOON, model, progressing, ready, wait_until_observed
from support import gen
from support.api import Api, eventually
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration

EXPLICIT = {"modelControl": "explicit", "loadModels": ["det"]}
NO_ADDRESS = gen.put("status.podIP", "")


def lists(api: Api) -> dict[str, list[str]]:
    """Returns the models that servers load when they start, by the hash of the pod template."""
    data = api.get("ConfigMap", ACCOUNT)["data"]
    return {key: text.split() for key, text in data.items() if not key.endswith(".others")}


def template(api: Api) -> str:
    return str(api.get("Deployment", gen.NAME)["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def change(api: Api, reference: str, *models: str, **spec: Any) -> str:
    """Changes the image and the models in one apply, and returns the hash of the new pod template."""
    before, server = template(api), {**EXPLICIT, "loadModels": list(models)}
    api.patch("TritonModel", gen.NAME, {"spec": {"modelImage": {"reference": reference}, "server": server, **spec}})
    eventually(lambda: template(api) != before, SOON, lambda: model(api))
    return template(api)


def observe(api: Api) -> None:
    """Writes the status of the Deployment's controller, which doesn't run here."""
    generation = api.get("Deployment", gen.NAME)["metadata"]["generation"]
    api.patch("Deployment", gen.NAME, {"status": {"observedGeneration": generation}}, "status")


def test_the_servers_of_an_old_image_keep_their_models(api: Api, operator: Operator) -> None:
    make(api, entrypoint="det", server=EXPLICIT)
    wait_until_observed(api)
    add_pod(api, NO_ADDRESS, name="old")
    ready(api, "EntrypointAnswers")
    first = template(api)
    assert lists(api) == {first: ["det"]}

    second = change(api, "r:typo", "det", "det2")
    assert lists(api) == {first: ["det"], second: ["det", "det2"]}
    add_pod(api, gen.waiting("fetch", "ImagePullBackOff", "not found"), name="new")
    progressing(api, "ImagePullFailed")
    # The list of the servers that can't start follows the spec at once.
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"loadModels": ["det3"]}}})
    eventually(lambda: lists(api) == {first: ["det"], second: ["det3"]}, SOON, lambda: lists(api))

    third = change(api, "r:v2", "det3")
    api.delete("Pod", "new", gracePeriodSeconds=0)
    add_pod(api, gen.not_ready, NO_ADDRESS, name="newer")
    progressing(api, "RollingOut")
    assert lists(api) == {first: ["det"], second: ["det3"], third: ["det3"]}
    api.delete("Pod", "old", gracePeriodSeconds=0)
    add_pod(api, NO_ADDRESS, name="newer")
    observe(api)
    eventually(lambda: lists(api) == {third: ["det3"]}, SOON, lambda: (lists(api), model(api)["status"]))


def test_the_models_of_old_servers_stay_when_the_new_ones_load_all(api: Api, operator: Operator) -> None:
    """The new pod template mounts no list."""
    make(api, entrypoint="det", server=EXPLICIT)
    wait_until_observed(api)
    add_pod(api, NO_ADDRESS, name="old")
    ready(api, "EntrypointAnswers")
    first = template(api)
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"modelControl": "none", "loadModels": None}}})
    eventually(lambda: template(api) != first, SOON, lambda: model(api))
    assert lists(api) == {first: ["det"]}
    api.delete("Pod", "old", gracePeriodSeconds=0)
    add_pod(api, NO_ADDRESS, name="new")
    observe(api)
    eventually(lambda: api.find("ConfigMap", ACCOUNT) is None, SOON, lambda: lists(api))
