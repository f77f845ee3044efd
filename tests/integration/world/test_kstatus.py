"""How Flux and Helm judge a TritonModel: by kstatus itself, a Go program."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from hack.world import settings
from integration.world.steps import SOON, progressing, ready, wait_until_observed
from integration.world.test_half_changed import NO_ADDRESS, observe
from support import gen
from support.api import Api, eventually
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import tritonmodel

KSTATUS = settings.BIN / "kstatus"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not os.access(KSTATUS, os.X_OK), reason="no kstatus: run hack/world.sh kstatus"),
]  # fmt: skip


def judged(obj: dict[str, Any]) -> tuple[str, str]:
    """Returns kstatus' word for the object, and its message."""
    result = subprocess.run([KSTATUS], input=json.dumps(obj), capture_output=True, text=True, check=True)
    word, _, message = result.stdout.partition("\n")
    return word, message.strip()


def test_a_release_is_current_only_when_every_server_runs_it(api: Api, operator: Operator) -> None:
    def now() -> tuple[str, str]:
        return judged(api.get("TritonModel", gen.NAME))

    def becomes(word: str, words: str) -> None:
        eventually(lambda: (state := now())[0] == word and words in state[1], SOON, now)

    # The answer to the creation is what a client sees before the operator has written anything.
    created = api.create(tritonmodel(gen.NAME, entrypoint="detection"))
    assert judged(created)[0] == "InProgress"
    wait_until_observed(api)
    becomes("InProgress", "")
    add_pod(api, NO_ADDRESS, name="old")
    observe(api)
    becomes("Current", "")

    # The old server answers all the time.
    changed = api.patch("TritonModel", gen.NAME, {"spec": {"modelImage": {"reference": "r:typo"}}})
    assert judged(changed)[0] == "InProgress"
    wait_until_observed(api)
    progressing(api, "RollingOut")
    becomes("InProgress", "waiting for")
    add_pod(api, gen.unschedulable("0/1 nodes are available"), name="new")
    becomes("InProgress", "0/1 nodes are available")
    add_pod(api, gen.waiting("fetch", "ImagePullBackOff", "manifest unknown"), name="new")
    becomes("Failed", "manifest unknown")
    ready(api, "EntrypointAnswers")

    api.patch("TritonModel", gen.NAME, {"spec": {"modelImage": {"reference": "r:2"}}})
    becomes("InProgress", "")
    api.delete("Pod", "new", gracePeriodSeconds=0)
    api.delete("Pod", "old", gracePeriodSeconds=0)
    wait_until_observed(api)
    add_pod(api, NO_ADDRESS, name="newer")
    observe(api)
    becomes("Current", "")
