"""The graph of an ensemble: its entrypoint, its models, its tensors and its cycles."""

from __future__ import annotations

import pytest

from support.mutations import edit, remove, write
from triton_repository_check.graph import EntrypointError, ensemble_cycles, entrypoint, graph, parts
from triton_repository_check.load import load
from unit.repository.gen import DETECT, good


def read(root):
    return load(root)[0]


class TestEntrypoint:
    def test_is_the_only_ensemble(self, tmp_path):
        assert entrypoint(read(good(tmp_path)), None) == "detect"

    def test_is_the_configured_model(self, tmp_path):
        assert entrypoint(read(good(tmp_path)), "net") == "net"

    def test_is_the_only_model(self, tmp_path):
        assert entrypoint(read(good(tmp_path, remove("detect"), remove("pre"))), None) == "net"

    def test_is_not_a_step_of_another_ensemble(self, tmp_path):
        outer = DETECT.replace('model_name: "net"', 'model_name: "detect"')
        root = good(tmp_path, write("all/config.pbtxt", outer), write("all/1/.keep", ""))
        assert entrypoint(read(root), None) == "all"

    def test_is_a_loaded_model(self, tmp_path):
        root = good(tmp_path, write("other/config.pbtxt", DETECT), write("other/1/.keep", ""))
        assert entrypoint(read(root), None, ["other"]) == "other"
        with pytest.raises(EntrypointError):
            entrypoint(read(root), None)

    @pytest.mark.parametrize(
        ("changes", "configured", "words"),
        [
            ([], "detector", ["spec.entrypoint", "'detector'", "detect, net, pre"]),
            ([remove("detect")], None, ["spec.entrypoint", "net, pre", "no ensemble"]),
            (
                [write("second/config.pbtxt", DETECT), write("second/1/.keep", "")],
                None,
                ["spec.entrypoint", "2 ensembles", "detect, second"],
            ),
        ],
    )
    def test_error_names_the_candidates_and_the_field(self, tmp_path, changes, configured, words):
        with pytest.raises(EntrypointError) as caught:
            entrypoint(read(good(tmp_path, *changes)), configured)
        assert [word for word in words if word not in str(caught.value)] == []

    def test_error_names_at_most_ten_candidates(self, tmp_path):
        for number in range(30):
            write(f"model{number:02}/1/model.onnx", "")(tmp_path)
        with pytest.raises(EntrypointError, match=r"model00, .*model09 and 20 more$"):
            entrypoint(read(tmp_path), None)

    def test_reports_an_error_for_an_empty_repository(self, tmp_path):
        with pytest.raises(EntrypointError, match=r"spec\.entrypoint"):
            entrypoint(read(tmp_path), None)


def test_finds_the_tensors_of_an_ensemble(tmp_path):
    net = graph(read(good(tmp_path)).models["detect"])
    assert net.inputs == {"IMAGE"}
    assert net.outputs == {"BOXES", "SCALE"}
    assert net.produced == {"IMAGE", "tensor", "SCALE", "BOXES"}
    assert net.consumed == {"IMAGE", "tensor"}
    assert net.stuck() == ()


def test_accepts_steps_in_any_order(tmp_path):
    swapped = DETECT.replace('"net"', '"x"').replace('"pre"', '"net"').replace('"x"', '"pre"')
    swapped = swapped.replace('key: "IMAGE" value: "IMAGE"', 'key: "images" value: "t"')
    swapped = swapped.replace('key: "images" value: "tensor"', 'key: "IMAGE" value: "IMAGE"')
    swapped = swapped.replace('key: "boxes" value: "BOXES"', 'key: "TENSOR" value: "t"')
    assert graph(read(good(tmp_path, write("detect/config.pbtxt", swapped))).models["detect"]).stuck() == ()


def test_steps_behind_a_cycle_are_stuck(tmp_path):
    root = good(tmp_path, edit("detect/config.pbtxt", 'key: "IMAGE" value: "IMAGE"', 'key: "IMAGE" value: "BOXES"'))
    assert graph(read(root).models["detect"]).stuck() == (0, 1)


def test_parts_are_the_models_that_the_entrypoint_uses(tmp_path):
    repository = read(good(tmp_path, edit("detect/config.pbtxt", 'model_name: "net"', 'model_name: "gone"')))
    assert parts(repository, "detect") == {"detect", "pre", "gone"}
    assert parts(repository, "net") == {"net"}


def test_finds_an_ensemble_that_calls_itself(tmp_path):
    assert list(ensemble_cycles(read(good(tmp_path)))) == []
    own = good(tmp_path, edit("detect/config.pbtxt", 'model_name: "net"', 'model_name: "detect"'))
    assert list(ensemble_cycles(read(own))) == [("detect",)]
