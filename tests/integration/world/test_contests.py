"""Another client changes what the operator writes, again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

from integration.world.steps import SOON, progressing, reached, wait_until_observed
from support import gen
from support.api import Api, Object, RefusedError, eventually
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration

WATCHED = 20.0
"""How long a fight is watched. Without a limit there are about two changes a second."""


def patch(api: Api, kind: str, name: str, change: Object, manager: str, subresource: str = "") -> Object:
    """Patches an object as a client with this field manager."""
    path = api.path(kind, name) + (f"/{subresource}" if subresource else "")
    return api.request(  # type: ignore[no-any-return]
        "PATCH", f"{path}?{urlencode({'fieldManager': manager})}", change, "application/strategic-merge-patch+json"
    )


@contextmanager
def writer(step: Callable[[], None]) -> Iterator[None]:
    """Repeats `step` as another controller does, while the context lasts."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.05):
            try:
                step()
            except RefusedError as error:
                if error.code != 409:
                    raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def server(api: Api) -> Object:
    deployment = api.get("Deployment", gen.NAME)
    return next(c for c in deployment["spec"]["template"]["spec"]["containers"] if c["name"] == "triton")


def test_a_fight_over_the_pod_template_gets_slower_and_is_named(api: Api, operator: Operator) -> None:
    make(api, server={"resources": {"requests": {"cpu": "2"}}})
    wait_until_observed(api)
    before = api.get("Deployment", gen.NAME)["metadata"]["generation"]

    def resize() -> None:
        if server(api)["resources"]["requests"]["cpu"] != "1":
            container = {"name": "triton", "resources": {"requests": {"cpu": "1"}}}
            patch(
                api,
                "Deployment",
                gen.NAME,
                {"spec": {"template": {"spec": {"containers": [container]}}}},
                "right-sizer",
            )

    with writer(resize):
        message = progressing(api, "FieldContested")["message"]
        time.sleep(WATCHED)
        generation = api.get("Deployment", gen.NAME)["metadata"]["generation"]
    assert message.startswith(
        "right-sizer changes spec.template.spec.containers[triton].resources.requests.cpu of the Deployment "
        f"{gen.NAME}: the operator has set it back once, and it waits longer each time, now 20 s; "
    ), message
    # Two changes by the other writer and one of ours; the second one of ours is due after 20 s.
    assert generation - before <= 5
    # A change of the spec isn't held back.
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"resources": {"requests": {"cpu": "3"}}}}})
    eventually(lambda: server(api)["resources"]["requests"]["cpu"] == "3", SOON, lambda: operator.log[-2000:])


def test_a_second_autoscaler_is_told_to_leave_the_replicas_or_to_have_them(api: Api, operator: Operator) -> None:
    make(api, replicas=2)
    wait_until_observed(api)

    def scale() -> None:
        if api.get("Deployment", gen.NAME)["spec"]["replicas"] != 4:
            patch(api, "Deployment", gen.NAME, {"spec": {"replicas": 4}}, "some-autoscaler", "scale")

    with writer(scale):
        message = progressing(api, "FieldContested")["message"]
    assert message == (
        f"some-autoscaler (scale) changes spec.replicas of the Deployment {gen.NAME}: the operator has set it back "
        "3 times, and it waits longer each time, now 5 s; to leave the number of servers to it, remove spec.replicas "
        "from the TritonModel"
    )
    # With the last one it isn't over: the operator sets the number back when its time has come.
    eventually(lambda: api.get("Deployment", gen.NAME)["spec"]["replicas"] == 2, 30, lambda: operator.log[-2000:])


def test_a_fight_over_a_label_is_a_note(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)

    def label() -> None:
        if api.get("Service", gen.NAME)["metadata"]["labels"][names.LABEL_NAME] != "mine":
            patch(api, "Service", gen.NAME, {"metadata": {"labels": {names.LABEL_NAME: "mine"}}}, "labeller")

    words = f"labeller changes metadata.labels.{names.LABEL_NAME} of the Service {gen.NAME}: "
    with writer(label):
        eventually(lambda: words in progressing(api, "RollingOut")["message"], SOON, lambda: operator.log[-2000:])


def test_no_deployment_is_written_while_its_network_policy_waits(api: Api, operator: Operator) -> None:
    make(api, networkPolicy={})
    wait_until_observed(api)
    with writer(lambda: api.delete("NetworkPolicy", gen.NAME)):
        progressing(api, "FieldContested")
        # It waits for 5 s at least, and a change of the spec, for 5 s of them, for it.
        api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
        wait_until_observed(api)
        assert server(api)["image"] != "triton:2"
    eventually(lambda: server(api)["image"] == "triton:2", 40, lambda: operator.log[-2000:])
    assert api.find("NetworkPolicy", gen.NAME)


def test_the_two_writers_may_agree(api: Api, operator: Operator) -> None:
    make(api, replicas=2)
    wait_until_observed(api)

    def scale() -> None:
        if api.get("Deployment", gen.NAME)["spec"]["replicas"] != 4:
            patch(api, "Deployment", gen.NAME, {"spec": {"replicas": 4}}, "some-autoscaler", "scale")

    with writer(scale):
        progressing(api, "FieldContested")
        api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 4}})
        progressing(api, "RollingOut")
        assert "changes" not in progressing(api, "RollingOut")["message"]


def test_a_child_that_is_deleted_again_and_again_is_created_more_slowly(api: Api, operator: Operator) -> None:
    make(api)
    wait_until_observed(api)
    with writer(lambda: api.delete("Service", gen.NAME)):
        message = reached(api, "Progressing", "FieldContested")["message"]
    assert message == (
        f"another client deletes the Service {gen.NAME}: the operator has created it again 3 times, and it waits "
        "longer each time, now 5 s"
    )
    eventually(lambda: api.find("Service", gen.NAME), 30, lambda: operator.log[-2000:])
