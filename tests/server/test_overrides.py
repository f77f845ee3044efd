"""A real Triton with the view of a repository that spec.models makes: links, and changed configurations."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_images.support import Server, serving
from triton_repository_check.check import main

pytestmark = pytest.mark.server

BEHIND = "/.triton-operator/repository"
CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
parameters [ { key: "a" value: { string_value: "file" } }, { key: "b" value: { string_value: "file" } } ]
"""
MODEL = """
import json
import pathlib

import beside
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        here = pathlib.Path(__file__).parent
        parameters = json.loads(args["model_config"])["parameters"]
        self.words = [
            beside.WORD,
            (here / "linked.txt").read_text(),
            (here.parent / "labels.txt").read_text(),
            (here.parent.parent / "shared.txt").read_text(),
            *(parameters[key]["string_value"] for key in sorted(parameters)),
        ]

    def execute(self, requests):
        out = numpy.array([[" ".join(self.words).encode()]], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]) for _ in requests]
"""
PIPE = """
platform: "ensemble"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "changed" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }
} ] }
"""
SETTINGS: dict[str, dict[str, Any]] = {
    "changed": {
        "max_batch_size": 4,
        "instance_group": [{"kind": "KIND_CPU", "count": 2}],
        "dynamic_batching": {},
        "version_policy": {"specific": {"versions": [2, 3]}},
        "parameters": {"b": {"string_value": "ä $$X"}},
    },
    "bare": {"max_batch_size": 2, "parameters": {"a": {"string_value": "spec"}}},
    "pipe": {"max_batch_size": 3},
}


def model(folder: Path, config: str | None = CONFIG) -> None:
    """Writes a model with the versions 1 and 2, a link to 2, and files beside model.py."""
    for version in ("1", "2"):
        (folder / version).mkdir(parents=True)
        (folder / version / "model.py").write_text(MODEL)
        (folder / version / "beside.py").write_text(f"WORD = 'version-{version}'")
        (folder / version / "linked.txt").symlink_to("../../shared.txt")
    (folder / "3").symlink_to("2")
    (folder / "labels.txt").write_text("labels")
    if config is not None:
        (folder / "config.pbtxt").write_text(config)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("repository")
    target = tmp_path_factory.mktemp("view")
    for folder in (root.parent, root, target):
        folder.chmod(0o755)  # the server has another user
    model(root / "changed")
    model(root / "same")
    model(root / "bare")
    # Triton's Python backend completes the tensors.
    bare = root / "bare" / "config.pbtxt"
    bare.unlink()
    completion = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        return config
"""
    for file in (root / "bare").glob("[12]/model.py"):
        file.write_text(MODEL.replace("    def initialize", f"{completion}\n    def initialize"))
    (root / "pipe" / "1").mkdir(parents=True)
    (root / "pipe" / "config.pbtxt").write_text(PIPE)
    (root / "shared.txt").write_text("shared")
    models = [f"--model={json.dumps({'name': name, 'config': config})}" for name, config in SETTINGS.items()]
    assert main([f"--view={target}", f"--links-to={BEHIND}", "--entrypoint=pipe", *models, str(root)]) == 0
    options = ["--model-control-mode=explicit", "--load-model=*"]
    with serving(target, options=options, limits=[f"--volume={root}:{BEHIND}:ro"]) as running:
        yield running


def ask(server: Server, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{server.http}/v2/{path}", data, timeout=30) as response:
        return json.loads(response.read() or b"null")


def words(server: Server, path: str) -> str:
    inputs = [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]
    return str(ask(server, f"models/{path}/infer", {"inputs": inputs})["outputs"][0]["data"][0])


def test_runs_a_model_with_the_settings(server: Server) -> None:
    config = ask(server, "models/changed/config")
    assert config["max_batch_size"] == 4
    assert [group["count"] for group in config["instance_group"]] == [2]
    assert "dynamic_batching" in config
    # `$$` stays as it is, and so does what isn't ASCII.
    for version, name in (("2", "version-2"), ("3", "version-2")):
        assert words(server, f"changed/versions/{version}") == f"{name} shared labels shared file ä $$X"
    with pytest.raises(urllib.error.HTTPError):
        words(server, "changed/versions/1")


def test_runs_the_other_models_as_they_are(server: Server) -> None:
    config = ask(server, "models/same/config")
    assert (config["max_batch_size"], config["instance_group"][0]["count"]) == (8, 1)
    assert words(server, "same") == "version-2 shared labels shared file file"


def test_runs_a_model_without_a_file_and_an_ensemble(server: Server) -> None:
    assert ask(server, "models/bare/config")["max_batch_size"] == 2
    assert words(server, "bare") == "version-2 shared labels shared spec"
    assert ask(server, "models/pipe/config")["max_batch_size"] == 3
    assert words(server, "pipe") == "version-2 shared labels shared file ä $$X"


def test_loads_a_model_again_with_the_settings(server: Server) -> None:
    ask(server, "repository/models/changed/unload", {})
    ask(server, "repository/models/changed/load", {})
    assert ask(server, "models/changed/config")["max_batch_size"] == 4
    assert words(server, "changed").startswith("version-2")
