"""The pod template while the model image of running servers changes, and the script that copies the files."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support import gen
from triton_operator.api.types import TritonModel
from triton_operator.render import Choices, choose, in_place, render, switched

OLD, NEW = Choices("tools:1", "ImageVolume"), Choices("tools:2", "ImageVolume")
SERVER = {"modelControl": "explicit", "loadModels": ["a"], "resources": {"limits": {"memory": "1Gi"}}}


def model(reference: str = "models:1", **spec: Any) -> TritonModel:
    wanted = {"entrypoint": "a", "server": SERVER, "rollout": {"strategy": "InPlace"}, **spec}
    return gen.model(modelImage={"reference": reference}, **wanted)


def made(model: TritonModel, choices: Choices) -> dict[str, Any]:
    return gen.live(next(o for o in render(model, choices) if o["kind"] == "Deployment"))


def first() -> dict[str, Any]:
    return made(model(), choose(model(), None, OLD))


def image(deployment: dict[str, Any]) -> str:
    template = deployment["spec"]["template"]
    fetch = next(c for c in template["spec"]["initContainers"] if c["name"] == "fetch")
    assert in_place.reference(template["metadata"]) in (fetch["image"], "")
    return str(fetch["image"])


def template_hash(deployment: dict[str, Any]) -> str:
    return str(deployment["metadata"]["annotations"]["tritonoperator.io/template-hash"])


def test_auto_delivery_is_a_copy() -> None:
    assert choose(model(), None, OLD).delivery == "Copy"


def test_template_keeps_the_old_image_until_the_servers_have_the_new_one() -> None:
    live, changed = first(), model("models:2")
    choices = choose(changed, live, NEW)
    assert choices.only == "spec.modelImage.reference"
    assert made(changed, choices) == live
    after = made(changed, switched(changed, choices))
    assert image(after) == "models:2"
    assert template_hash(after) == template_hash(live), "so that the running servers are current"
    again = choose(changed, after, NEW)
    assert made(changed, again) == after
    assert (again.only, again.newer_template) == ("", False)
    # and back, although the template's hash is that of the first image
    back = choose(model(), after, OLD)
    assert made(model(), back) == after
    assert made(model(), switched(model(), back)) == live


@pytest.mark.parametrize("spec", [
    {"server": {**SERVER, "image": "triton:2"}}, {"server": {**SERVER, "loadModels": ["a", "b"]}},
    {"rollout": {"strategy": "InPlace", "restartedAt": "now"}}, {"rollout": {}}, {"entrypoint": "b"},
])  # fmt: skip
def test_another_change_at_the_same_time_replaces_the_servers(spec: dict[str, Any]) -> None:
    changed, live = model("models:2", **spec), first()
    choices = choose(changed, live, NEW)
    assert not choices.only
    assert template_hash(made(changed, choices)) != template_hash(live)
    assert image(made(changed, choices)) == "models:2"


def test_replaced_servers_get_another_hash_even_with_the_first_image() -> None:
    changed = model("models:2")
    live = made(changed, switched(changed, choose(changed, first(), OLD)))
    why = "spec.modelImage.reference: a doesn't load"
    replaced = choose(model(), live, OLD, replace_servers=why)
    assert replaced.rollout == why
    after = made(model(), replaced)
    assert image(after) == "models:1"
    assert template_hash(after) not in (template_hash(live), template_hash(first()))
    assert made(model(), choose(model(), after, OLD)) == after
    # The template has the image of the spec already, but a server has another one.
    once_more = made(model(), choose(model(), after, OLD, replace_servers=why))
    assert template_hash(once_more) != template_hash(after)


@pytest.mark.parametrize(("limits", "words"), [
    ({}, "without a memory limit"), ({"memory": "1Gi", "nvidia.com/gpu": 1}, "memory of an accelerator"),
])  # fmt: skip
def test_says_why_an_image_cannot_change_in_place(limits: dict[str, Any], words: str) -> None:
    server = {**SERVER, "resources": {"limits": limits}}
    live = made(model(server=server), choose(model(server=server), None, OLD))
    choices = choose(model("models:2", server=server), live, OLD)
    assert choices.rollout.startswith("spec.modelImage.reference: ")
    assert words in choices.rollout
    assert image(made(model("models:2", server=server), choices)) == "models:2"


@pytest.mark.parametrize("spec", [
    {"initContainers": [{"name": "fetch", "image": "mirror/models:1"}]},
    {"initContainers": [{"name": "decrypt", "volumeMounts": [{"name": "models", "mountPath": "/m"}]}]},
])  # fmt: skip
def test_a_users_container_that_changes_the_files_replaces_the_servers(spec: dict[str, Any]) -> None:
    template = {"podTemplate": {"spec": spec}}
    live = made(model(**template), choose(model(**template), None, OLD))
    changed = model("models:2", **template)
    assert "changes how the files get into the pod" in choose(changed, live, OLD).rollout


def test_without_the_strategy_a_changed_image_is_a_rollout() -> None:
    plain, changed = model(rollout={}), model("models:2", rollout={})
    live = made(plain, choose(plain, None, OLD))
    assert not choose(changed, live, OLD).only
    assert template_hash(made(changed, choose(changed, live, OLD))) != template_hash(live)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume whose link names the directory 0, the files of an image, and a program that calls others as busybox."""
    (tmp_path / "models" / "0").mkdir(parents=True)
    (tmp_path / "models" / "current").symlink_to("0")
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "config.pbtxt").write_text("new")
    (tmp_path / "busybox").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "busybox").chmod(0o755)
    return tmp_path / "models"


def copying(volume: Path, source: str = "image/.") -> subprocess.Popen[str]:
    """Starts the script as the container in-place-files-1 does."""
    home = volume.parent
    command = ["sh", "-c", in_place.COPY, str(home / "busybox"), f"{home}/{source}", str(volume), "1", "20"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("done", "link"), [(True, "1"), (False, "0")])
def test_the_copying_container_moves_the_link_back_if_the_change_was_not_finished(
    volume: Path, done: bool, link: str
) -> None:
    with copying(volume) as script:
        assert _appears(volume / "1.complete")
        with (volume / "1.pipe").open("w") as pipe:
            assert (volume / "1" / "config.pbtxt").read_text() == "new"
            pipe.write("0")
            pipe.flush()
            (volume / "current").unlink()
            (volume / "current").symlink_to("1")
            if done:
                (volume / "1.done").touch()
        assert script.wait(20) == 0
    assert str((volume / "current").readlink()) == link


def test_the_copying_container_reports_files_that_cannot_be_copied(volume: Path) -> None:
    with copying(volume, "missing/.") as script:
        assert "missing" in script.communicate(timeout=20)[1]
    assert script.returncode == 1
    assert (volume / "1.failed").exists()


def test_the_copying_container_never_writes_into_files_that_are_there(volume: Path) -> None:
    (volume / "1").mkdir()
    (volume / "1" / "config.pbtxt").write_text("in use")
    with copying(volume) as script:
        assert script.wait(20) != 0
    assert (volume / "1" / "config.pbtxt").read_text() == "in use"


def _appears(path: Path) -> bool:
    for _ in range(200):
        if path.exists():
            return True
        time.sleep(0.05)
    return False
