"""Specs that the API server accepts in the TritonModel but rejects in a child."""

from __future__ import annotations

import pytest

from integration.world.steps import SOON, events, model, progressing, version, wait_until_observed
from support import gen
from support.api import Api, Object, eventually
from support.operator_process import Operator
from support.people import make

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ({"spec": {"restartPolicy": "Never"}}, 'Unsupported value: "Never"'),
        ({"spec": {"nodeSelector": {"a b": "c"}}}, "name part must consist of"),
        ({"spec": {"containers": [{"image": "no-name"}]}}, "name"),
        ({"spec": {"volumes": [{"name": "a"}, {"name": "🚦"}]}}, "🚦"),
        ({"metadata": {"annotations": {"a b": "x"}}}, "name part must consist of"),
    ],
    ids=["value", "label", "name", "unicode", "annotation"],
)
def test_reports_a_rejected_pod_template_and_keeps_the_last_accepted_one(
    template: Object, text: str, api: Api, operator: Operator
) -> None:
    make(api)
    wait_until_observed(api)
    before = api.get("Deployment", gen.NAME)
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": template}})
    progress = progressing(api, "ApplyRefused")
    assert progress["status"] == "False"
    assert progress["message"].startswith(f"the API server refuses Deployment {api.namespace}/detection: ")
    assert text in progress["message"]
    assert model(api)["status"]["observedGeneration"] == 2
    assert version(api.get("Deployment", gen.NAME)) == version(before)
    eventually(lambda: "ApplyRefused" in events(api), SOON)
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None}})
    progressing(api, "RollingOut")


def test_reports_a_request_above_its_limit_that_the_crd_does_not_compare(api: Api, operator: Operator) -> None:
    make(api, server={"resources": {"limits": {"example.com/tpu": 1}, "requests": {"example.com/tpu": 2}}})
    assert "must be equal to example.com/tpu limit of 1" in progressing(api, "ApplyRefused")["message"]


def test_passes_any_character_to_the_pods(api: Api, operator: Operator) -> None:
    text = 'ä 漢字 🚦 \u0085 \x7f "\\ud83d" \n'
    make(api, podTemplate={"metadata": {"annotations": {"note": text}}})
    wait_until_observed(api)
    assert api.get("Deployment", gen.NAME)["spec"]["template"]["metadata"]["annotations"]["note"] == text
