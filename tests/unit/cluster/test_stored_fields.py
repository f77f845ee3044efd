"""What the operator keeps of a pod is all that it reads of it."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator.cluster.stored_fields import without_unused
from triton_operator.pods import Pod
from triton_operator.pods.problems import problem_of, repair_of, step_of
from triton_operator.render import Facts, render

EXPLICIT = {
    "modelControl": "explicit",
    "loadModels": ["a"],
    "args": ["--rate-limit=off", "--http-restricted-api=model-repository:k=v"],
}
SPECS: tuple[dict[str, Any], ...] = (
    {"server": {"args": ["--backend-config=python,x=1", "--strange"], "resources": {"limits": {"nvidia.com/gpu": 1}}}},
    {"entrypoint": "a", "server": {**EXPLICIT, "args": []}, "healthRequest": {"file": "a/health.json"}},
    {"entrypoint": "a", "server": EXPLICIT},
)
STATES: tuple[tuple[gen.Modifier, ...], ...] = (
    (),
    (gen.not_ready,),
    (gen.ended("triton", 1, "Usage: tritonserver\n  --help\n\tprint\n  --x\n\ty\n"),),
    (gen.ended("check", 1, "no"),),
    (gen.unschedulable("no node"),),
    (gen.stopped_answering(),),
    (gen.put("status.podIP", ""), gen.deleting),
)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("state", STATES)
def test_a_slim_pod_says_the_same(spec: dict[str, Any], state: tuple[gen.Modifier, ...]) -> None:
    template = next(o for o in render(gen.model(**spec), Facts("t", "Copy")) if o["kind"] == "Deployment")["spec"][
        "template"
    ]
    raw = gen.pod(
        gen.put("spec", template["spec"]), gen.put("metadata.annotations", template["metadata"]["annotations"]), *state
    )
    raw["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    full, kept = Pod(raw), Pod(without_unused(raw))
    properties = [name for name, kind in vars(Pod).items() if isinstance(kind, property) and name != "arguments"]
    assert {name: getattr(kept, name) for name in properties} == {name: getattr(full, name) for name in properties}
    for judge in (problem_of, repair_of, step_of):
        assert judge(kept) == judge(full)
    assert set(kept.arguments) <= set(full.arguments)
    assert len(str(kept.raw)) < len(str(raw)) / 2
