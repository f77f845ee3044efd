"""The changes of pods that the API server refuses."""

from __future__ import annotations

import copy
import dataclasses
import logging
from typing import Any, cast

import pytest

from support import gen
from triton_operator.api.status import TritonModelStatus
from triton_operator.cluster.api import ApiError
from triton_operator.cluster.slim import slim
from triton_operator.image_changes import Decision
from triton_operator.reconcile.change_image import ImageChanger, is_switch, reported
from triton_operator.render import Choices, choose, render
from triton_operator.render.choices import LOAD_MODELS, REFERENCE

SERVER = {"modelControl": "explicit", "loadModels": ["a"], "resources": {"limits": {"memory": "1Gi"}}}
LOG = logging.LoggerAdapter(logging.getLogger(__name__), {})
CHOICES = Choices("tools:1", "Copy")


def model(reference: str) -> Any:
    return gen.model(
        modelImage={"reference": reference}, entrypoint="a", server=SERVER, rollout={"strategy": "InPlace"}
    )


class Refusing:
    """An API server that refuses every change of a pod, and the rest of what the ImageChanger uses."""

    def __init__(self, code: int) -> None:
        self.code, self.requests, self.servers = code, 0, self

    def patch(self, *_: Any, **__: Any) -> Any:
        self.requests += 1
        if self.code == 200:
            return {}
        raise ApiError(self.code, "Forbidden", "denied by a policy")

    def put(self, _: Any) -> None:
        assert self.code == 200, "nothing was written"

    def refresh(self, *_: Any) -> None:
        """Nothing."""


def served() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the Deployment with the image m:1, and a pod of it that serves."""
    found = render(model("m:1"), choose(model("m:1"), None, CHOICES))
    live = gen.live(next(o for o in found if o["kind"] == "Deployment"))
    pod, template = gen.pod(), live["spec"]["template"]
    pod["metadata"]["annotations"], pod["spec"] = template["metadata"]["annotations"], template["spec"]
    return live, slim(pod)


def test_a_refused_change_is_tried_some_times_and_then_replaces_the_servers() -> None:
    live, pod = served()
    wanted = model("m:2")
    for code in (403, 422):
        world = cast(Any, Refusing(code))
        changer = ImageChanger(world, world, world, lambda: 1000.0)
        decisions = [changer.advance(wanted, choose(wanted, live, CHOICES), [pod], LOG) for _ in range(5)]
        assert [d.wait for d in decisions[:4]] == [1.0] * 4
        assert not any(d.rollout for d in decisions[:4])
        assert decisions[4].rollout.endswith("denied by a policy")
        assert world.requests == 5


def test_a_pod_that_is_gone_is_no_failure() -> None:
    live, pod = served()
    world = cast(Any, Refusing(404))
    changer = ImageChanger(world, world, world, lambda: 1000.0)
    for _ in range(6):
        decision = changer.advance(model("m:2"), choose(model("m:2"), live, CHOICES), [pod], LOG)
        assert (decision.rollout, decision.left) == ("", 1)


def test_refusals_of_other_servers_do_not_add_up() -> None:
    live, pod = served()
    wanted, world = model("m:2"), cast(Any, Refusing(422))
    changer = ImageChanger(world, world, world, lambda: 1000.0)
    for number in range(12):
        world.code = 200 if number % 4 == 3 else 422
        assert not changer.advance(wanted, choose(wanted, live, CHOICES), [pod], LOG).rollout


@pytest.mark.parametrize(("resources", "words"), [
    ({"limits": {"memory": "1Gi", "ephemeral-storage": "2Gi"}}, "limit of ephemeral-storage"),
    ({"limits": {"memory": "1Gi", "example.com/gpu": "1"}}, "memory of an accelerator"),
    ({"claims": [{"name": "gpu"}]}, "memory of an accelerator"),
])  # fmt: skip
def test_resources_that_only_the_pod_has_replace_the_servers(resources: dict[str, Any], words: str) -> None:
    live, pod = served()
    wanted, world = model("m:2"), cast(Any, Refusing(200))
    changer = ImageChanger(world, world, world, lambda: 1000.0)
    limited = copy.deepcopy(pod)
    next(c for c in limited["spec"]["containers"] if c["name"] == "triton")["resources"] = resources
    assert words in changer.advance(wanted, choose(wanted, live, CHOICES), [limited], LOG).rollout
    assert world.requests == 0


def status(reason: str, changed: str = "m:2") -> TritonModelStatus:
    """Returns the status of a TritonModel whose servers were getting the image `changed`."""
    progressing = {"type": "Progressing", "status": "True", "reason": reason, "message": "", "observedGeneration": 1}
    return TritonModelStatus.model_validate(
        {
            "observedGeneration": 1,
            "image": {"reference": changed, "delivery": "Copy", "digest": "", "change": "InPlace"},
            "conditions": [{**progressing, "lastTransitionTime": "2026-06-01T00:00:00Z"}],
        }
    )


def reporting(reason: str, changed: str = "m:2", **decided: Any) -> str:
    """Returns the change in the status that follows `status`."""
    choices = dataclasses.replace(CHOICES, replicas=2)
    before = status(reason, changed)
    return reported(model("m:2"), choices, Decision(**decided), before, "", switching=False).way


@pytest.mark.parametrize(("only", "reason", "image"), [
    (REFERENCE, "Complete", True),
    ("", "ChangingImage", True),  # the template has the image, and the Deployment is still paused
    ("", "ChangingModels", False),
    (LOAD_MODELS, "ChangingImage", False),
])  # fmt: skip
def test_tells_a_switch_of_the_image_from_one_of_the_models(only: Any, reason: str, image: bool) -> None:
    assert is_switch(dataclasses.replace(CHOICES, only=only), status(reason)) is image


def test_another_change_of_the_spec_during_a_change_in_place_is_reported_as_a_rollout() -> None:
    assert reporting("ChangingImage").startswith("RollingUpdate: other fields of the spec have changed")
    assert reporting("RollingOut", changed="m:1").startswith("RollingUpdate: other fields of the spec have changed")


def test_a_finished_change_in_place_stays_in_the_status() -> None:
    assert reporting("ChangingImage", done=True) == "InPlace"
    assert reporting("Complete") == "InPlace"
