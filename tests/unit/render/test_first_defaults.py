"""A version with another default restarts no server: the API server has stored the former default in each spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from support import gen
from triton_operator.api.types import TritonModel, TritonModelSpec
from triton_operator.render import kept_template
from triton_operator.render.kept_template import FIRST_DEFAULTS, NOT_IN_PODS, digest, spec_hash

FIRST: dict[str, Any] = {
    "modelImage.path": "/models",
    "modelImage.pullPolicy": None,
    "modelImage.pullSecrets": [],
    "modelImage.delivery": "Auto",
    "entrypoint": None,
    "server.image": "nvcr.io/nvidia/tritonserver:24.10-py3",
    "server.resources.limits": None,
    "server.resources.requests": None,
    "server.args": [],
    "server.env": [],
    "server.sharedMemory": None,
    "server.modelControl": "none",
    "server.loadModels": [],
    "server.logVerbosity": 0,
    "models": [],
    "rollout.strategy": "RollingUpdate",
    "rollout.maxSurge": None,
    "rollout.maxUnavailable": None,
    "rollout.startupSeconds": 600,
    "rollout.drainSeconds": 15,
    "rollout.exitSeconds": 30,
    "rollout.restartedAt": None,
    "healthRequest": None,
    "healthRequest.everySeconds": 10,
    "healthRequest.timeoutSeconds": 5,
    "repair": "Restart",
    "commonMetadata.labels": {},
    "commonMetadata.annotations": {},
    "podTemplate.metadata.labels": {},
    "podTemplate.metadata.annotations": {},
    "podTemplate.spec": {},
    "podTemplate.omit": [],
}
"""The first default of each field of the spec that concerns pods. Never change a line."""
FORMER_IMAGE = "nvcr.io/nvidia/tritonserver:23.01-py3"


def nested(annotation: Any, listed: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    """Yields the models in a type, and whether they are items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, listed
    for argument in get_args(annotation):
        yield from nested(argument, listed or get_origin(annotation) is list)


def defaults(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        if not path and name in NOT_IN_PODS:
            continue
        here, below = f"{path}{field.alias or name}", list(nested(field.annotation))
        if not field.is_required() and (not below or field.default in (None, [])):
            yield here, field.default
        for item, listed in below:
            yield from defaults(item, f"{here}[]." if listed else f"{here}.")


def test_knows_the_first_default_of_each_field() -> None:
    for path, default in defaults(TritonModelSpec):
        assert path in FIRST, f"add a line to FIRST for the new field {path}"
        assert FIRST_DEFAULTS.get(tuple(path.split(".")), default) == FIRST[path], (
            f"the default of {path} has changed: add its first default, {FIRST[path]!r}, to FIRST_DEFAULTS in "
            "render/kept_template.py, otherwise an upgrade replaces all servers"
        )


def stored(image: str, **server: Any) -> TritonModel:
    """Returns a TritonModel as the API server stores it, with a value for each field that has a default."""
    return gen.model(server={"image": image, "resources": {}, "modelControl": "none", "logVerbosity": 0, **server})


def recorded(**server: Any) -> str:
    """Returns what every version records for a spec in which only these fields of the server don't have a default."""
    return digest([{"modelImage": {"reference": gen.IMAGE}, **({"server": server} if server else {})}, "Copy"])


@pytest.mark.parametrize("other", [{}, {"logVerbosity": 1}], ids=["alone", "beside another field"])
def test_a_changed_default_keeps_the_record_of_the_spec(other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of the server image was another one in the version in which the field came."""
    now = TritonModelSpec.model_fields["server"].default.image
    assert spec_hash(stored(now, **other), "Copy") == recorded(**other)
    assert spec_hash(stored(FORMER_IMAGE, **other), "Copy") == recorded(image=FORMER_IMAGE, **other)
    monkeypatch.setattr(kept_template, "FIRST_DEFAULTS", {("server", "image"): FORMER_IMAGE})
    assert spec_hash(stored(FORMER_IMAGE, **other), "Copy") == recorded(**other)
    assert spec_hash(stored(now, **other), "Copy") == recorded(image=now, **other)
    assert spec_hash(gen.model(**({"server": other} if other else {})), "Copy") == recorded(image=now, **other)
    assert spec_hash(stored("triton:1", **other), "Copy") == recorded(image="triton:1", **other)


def test_a_changed_default_of_an_optional_field_concerns_only_specs_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without = spec_hash(gen.model(), "Copy")
    former = spec_hash(gen.model(healthRequest={"file": "a/b.json", "everySeconds": 7}), "Copy")
    monkeypatch.setattr(kept_template, "FIRST_DEFAULTS", {("healthRequest", "everySeconds"): 7})
    assert spec_hash(gen.model(), "Copy") == without
    assert spec_hash(gen.model(healthRequest={"file": "a/b.json", "everySeconds": 10}), "Copy") == digest(
        [{"modelImage": {"reference": gen.IMAGE}, "healthRequest": {"file": "a/b.json", "everySeconds": 10}}, "Copy"]
    )
    assert spec_hash(gen.model(healthRequest={"file": "a/b.json", "everySeconds": 7}), "Copy") != former
