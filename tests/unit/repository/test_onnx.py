"""Reads ONNX files, rejects invalid ones, and compares them with config.pbtxt."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from support import onnx_file
from support.mutations import write
from support.onnx_file import FP32, INT64, STRING, model, node, shape_constant, value
from triton_repository_check.onnx import Network, OnnxError, Tensor, TooManyFieldsError, read
from triton_repository_check.server_flags import ServerFlags, parse
from unit.repository.gen import findings

REPOSITORIES = Path(__file__).parents[3] / "model_images"


def parsed(tmp_path: Path, content: bytes) -> Network:
    return read(io.BytesIO(content), len(content))


def test_reads_inputs_and_outputs(tmp_path):
    content = model(
        [value("x", FP32, ["n", 3, -1, 0]), value("words", STRING, []), value("any", INT64, None)],
        [value("y", 20, [1])],
        [node("Reshape", ["x", "shape"], ["y"])],
        [shape_constant("shape", [1])],
    )
    assert parsed(tmp_path, content) == Network(
        (
            Tensor("x", "TYPE_FP32", (-1, 3, -1, -1)),
            Tensor("words", "TYPE_STRING", ()),
            Tensor("any", "TYPE_INT64", None),
        ),
        (Tensor("y", "", (1,)),),
        ir_version=8,
        opset=17,
    )


def test_files_before_ir_version_3_have_no_opset(tmp_path):
    content = onnx_file.number(1, 2) + onnx_file.block(7, onnx_file.block(11, value("x", FP32, [1])))
    assert [tensor.name for tensor in parsed(tmp_path, content).inputs] == ["x"]


def test_protobuf_puts_the_parts_of_a_graph_together(tmp_path):
    content = model([value("x", FP32, [1])], [], [], [WEIGHT])
    content += onnx_file.block(
        7, onnx_file.block(12, value("y", FP32, [1])) + onnx_file.block(1, node("Neg", "w", "y"))
    )
    net = parsed(tmp_path, content)
    assert ([t.name for t in net.inputs], [t.name for t in net.outputs], net.external) == (["x"], ["y"], {"a.data": 32})


def test_weights_in_the_inputs_of_old_files_are_not_inputs(tmp_path):
    content = model([value("x", FP32, [1]), value("w", INT64, [1])], [], weights=[shape_constant("w", [1])])
    assert [tensor.name for tensor in parsed(tmp_path, content).inputs] == ["x"]


def test_only_newer_files_have_default_values_of_inputs(tmp_path):
    sides = [value("x", FP32, [1]), value("w", INT64, [1])], []
    for ir_version, names in ((3, []), (4, ["w"])):
        content = model(*sides, weights=[shape_constant("w", [1])], ir_version=ir_version)
        assert [tensor.name for tensor in parsed(tmp_path, content).defaults] == names


def test_finds_external_weights(tmp_path):
    weights = [onnx_file.external_weight("w", "a.data"), onnx_file.external_weight("v", "a.data")]
    content = model([], [], [node("Add", ["w", "v"], ["y"])], weights)
    assert parsed(tmp_path, content).external == {"a.data": 32}


WEIGHT = onnx_file.external_weight("w", "a.data")
READS = {
    "node": model([], [], [node("Neg", ["w"], ["y"])], [WEIGHT]),
    "output": model([], [value("w", FP32, [8])], [], [WEIGHT]),
    "input": model([value("w", FP32, [8])], [], [], [WEIGHT]),
    "graph in a node": model([], [], [onnx_file.branch("c", ["y"], [node("Neg", ["w"], ["z"])])], [WEIGHT]),
    "constant": model([], [], [onnx_file.constant("y", WEIGHT)]),
    "weight of a graph": model([], [], [onnx_file.branch("c", ["y"], [node("Neg", ["w"], ["z"])], [WEIGHT])]),
    "constant of a graph": model([], [], [onnx_file.branch("c", ["y"], [onnx_file.constant("z", WEIGHT)])]),
}


@pytest.mark.parametrize("content", READS.values(), ids=READS)
def test_finds_external_weights_that_the_network_reads(tmp_path, content):
    assert parsed(tmp_path, content).external == {"a.data": 32}


@pytest.mark.parametrize(
    "weight",
    [WEIGHT, onnx_file.external_weight("v", "a.data")[:-2], onnx_file.external_weight("v", "a.data", 0)],
    ids=["not read", "no data_location", "data_location 0"],
)
def test_finds_no_external_weights_that_onnx_runtime_does_not_open(tmp_path, weight):
    """It removes a weight that no node reads, and takes one with another data_location from the ONNX file."""
    assert parsed(tmp_path, model([], [], [node("Neg", ["v"], ["y"])], [weight])).external == {}


def test_rejects_graphs_deep_inside_of_each_other(tmp_path):
    nodes = [node("Neg", ["w"], ["z"])]
    for _ in range(1000):
        nodes = [onnx_file.branch("c", ["y"], nodes)]
    with pytest.raises(OnnxError):
        parsed(tmp_path, model([], [], nodes, [WEIGHT]))


@pytest.mark.parametrize("path", sorted(REPOSITORIES.glob("detection/repository/*/1/model.onnx")), ids=str)
def test_reads_the_same_as_onnxruntime(path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    tensors = {t.name: (t.type, len(t.shape)) for t in (*session.get_inputs(), *session.get_outputs())}
    net = read(io.BytesIO(path.read_bytes()), path.stat().st_size)
    assert {t.name: ("tensor(float)", len(t.dims or ())) for t in (*net.inputs, *net.outputs)} == tensors


def test_onnxruntime_loads_the_files_of_the_corpus(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    content = onnx_file.reshaped(("x", FP32, ["n", 4]), ("y", FP32, ["n", 2, 2]), [-1, 2, 2])
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["n", 4]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b"plain text", "another format"),
        (onnx_file.number(1, 8), "no graph"),
        (onnx_file.block(8, b""), "no graph"),
        (onnx_file.block(7, b"") + onnx_file.block(8, b""), "no IR version"),
        (onnx_file.number(1, 3) + onnx_file.block(7, b""), "no opset"),
        (b"\xff" * 20, "another format"),
        (bytes(1000), "another format"),
    ],
)
def test_rejects_other_files(tmp_path, content, words):
    with pytest.raises(OnnxError, match=words):
        parsed(tmp_path, content)


IN_ORT_FORMAT = b"\x1c\0\0\0ORTM" + bytes(100)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("model.ort", IN_ORT_FORMAT, []),
        ("MODEL.ORT", IN_ORT_FORMAT, []),
        ("model.onnx", IN_ORT_FORMAT, ["*.ort"]),
        ("model.ort", model([value("a", FP32, ["n", 4])], [value("b", FP32, ["n", 4])]), ["*.ort"]),
        ("model.ort", b"", ["*.ort"]),
    ],
)
def test_the_ort_format_needs_the_right_name(tmp_path, name, content, expected):
    config = declared("input", "a", "[ 4 ]") + declared("output", "b", "[ 4 ]")
    config = f'backend: "onnxruntime"\nmax_batch_size: 8\ndefault_model_filename: "{name}"\n{config}'
    write("m/config.pbtxt", config)(tmp_path)
    write(f"m/1/{name}", content)(tmp_path)
    told = [f for f in findings(tmp_path) if f.severity == "error"]
    assert [f.code for f in told] == ["TR601" for _ in expected]
    assert all(word in f.message for f, word in zip(told, expected, strict=True))


def test_stops_after_many_fields(tmp_path, monkeypatch):
    monkeypatch.setattr("triton_repository_check.onnx.MAX_FIELDS", 10)
    with pytest.raises(TooManyFieldsError):
        parsed(tmp_path, onnx_file.number(1, 8) * 11)


def test_rejects_truncated_files(tmp_path):
    """Each prefix of a file has an interface or raises OnnxError, never another exception."""
    content = onnx_file.reshaped(("x", FP32, ["n", 4]), ("y", FP32, ["n", 2, 2]), [-1, 2, 2])
    for size in range(1, len(content)):
        try:
            assert parsed(tmp_path, content[:size]).outputs
        except OnnxError:
            continue


def test_survives_random_bytes(tmp_path):
    import random

    source = random.Random(7)
    good = bytearray(onnx_file.reshaped(("x", FP32, ["n", 4]), ("y", FP32, ["n", 2, 2]), [-1, 2, 2]))
    for _ in range(500):
        content = bytearray(good)
        for _ in range(source.randrange(1, 6)):
            content[source.randrange(len(content))] = source.randrange(256)
        try:
            parsed(tmp_path, bytes(content))
        except OnnxError:
            continue


def judged(
    tmp_path: Path,
    config: str,
    *,
    inputs: list[bytes],
    outputs: list[bytes],
    weights: tuple[bytes, ...] = (),
    **expected,
):
    """Returns the findings for an ONNX model and its config.pbtxt."""
    change = write("m/config.pbtxt", 'backend: "onnxruntime"\n' + config)
    change(tmp_path)
    write("m/1/model.onnx", model(inputs, outputs, [], weights))(tmp_path)
    return [f"{f.severity} {f.code}" for f in findings(tmp_path, **expected)]


def declared(side: str, name: str, dims: str, more: str = "") -> str:
    return f'{side} {{ name: "{name}" data_type: TYPE_FP32 dims: {dims} {more} }}\n'


@pytest.mark.parametrize(
    ("file", "side", "dims", "batch", "expected"),
    [
        (["n", 4], "input", "[ 4 ]", 8, []),
        (["n", 4], "input", "[ -1 ]", 8, ["error TR605"]),
        (["n", "m"], "input", "[ 4 ]", 8, []),
        (["n", "m"], "input", "[ -1 ]", 8, []),
        ([1, 4], "input", "[ 4 ]", 8, ["error TR606"]),
        ([3, 4], "input", "[ 3, -1 ]", 0, ["error TR605"]),
        ([], "input", "[ 1 ]", 0, []),
        ([], "input", "[ 1 ]", 8, []),
        ([], "input", "[ 2 ]", 0, ["error TR605"]),
        (["n", 4], "output", "[ 4 ]", 8, []),
        (["n", 4], "output", "[ -1 ]", 8, ["error TR605"]),
        (["n", "m"], "output", "[ 4 ]", 8, ["note TR605"]),
        (["n", "m"], "output", "[ -1 ]", 8, []),
        ([], "output", "[ 1 ]", 0, []),
        (None, "output", "[ 7 ]", 8, []),
    ],
)
def test_compares_shapes_like_the_backend(tmp_path, file, side, dims, batch, expected):
    tensors = {"input": value("a", FP32, ["n", 4]), "output": value("b", FP32, ["n", 4])}
    tensors[side] = value("ab"[side == "output"], FP32, file)
    other = declared("output", "b", "[ -1, 4 ]" if batch == 0 else "[ 4 ]")
    if side == "output":
        other = declared("input", "a", "[ -1, 4 ]" if batch == 0 else "[ 4 ]")
    config = f"max_batch_size: {batch}\n" + declared(side, "ab"[side == "output"], dims) + other
    assert judged(tmp_path, config, inputs=[tensors["input"]], outputs=[tensors["output"]]) == expected


@pytest.mark.parametrize(("shape", "expected"), [([-1], []), (["n", 4], ["error TR605"])])
def test_ragged_input_needs_one_dimension(tmp_path, shape, expected):
    config = "max_batch_size: 8\n" + declared("input", "a", "[ -1 ]", "allow_ragged_batch: true")
    config += declared("output", "b", "[ 4 ]")
    net = {"inputs": [value("a", FP32, shape)], "outputs": [value("b", FP32, ["n", 4])]}
    assert judged(tmp_path, config, **net) == expected


@pytest.mark.parametrize(
    ("batch", "dims", "weights", "expected"),
    [
        (0, "[ 1 ]", True, []),
        (8, "[ 1 ]", True, ["error TR608"]),
        (0, "[ 1 ]", False, ["error TR608"]),
    ],
)
def test_optional_input_needs_a_default_value(tmp_path, batch, dims, weights, expected):
    first = "[ 4 ]" if batch else "[ -1, 4 ]"
    config = f"max_batch_size: {batch}\n" + declared("input", "a", first) + declared("output", "b", first)
    config += f'input {{ name: "scale" data_type: TYPE_INT64 dims: {dims} optional: true }}\n'
    scale = value("scale", INT64, ["n", 1] if batch else [1])
    net = {"inputs": [value("a", FP32, ["n", 4]), scale], "outputs": [value("b", FP32, ["n", 4])]}
    assert judged(tmp_path, config, weights=(shape_constant("scale", [1]),) if weights else (), **net) == expected


def test_fixed_dims_of_a_variable_output_may_be_those_that_onnx_runtime_infers(tmp_path):
    config = "max_batch_size: 8\n" + declared("input", "a", "[ 4 ]") + declared("output", "b", "[ 4 ]")
    write("m/config.pbtxt", 'backend: "onnxruntime"\n' + config)(tmp_path)
    write("m/1/model.onnx", model([value("a", FP32, ["n", 4])], [value("b", FP32, ["n", "m"])]))(tmp_path)
    [told] = findings(tmp_path)
    assert "right only if ONNX Runtime infers these sizes" in told.message
    assert told.remedy == "if the server refuses it, set dims: [ -1 ]"


NO_SHAPE = value("b", FP32, None)


@pytest.mark.parametrize(
    ("batch", "tensors", "outputs", "flags", "expected"),
    [
        (None, [("input", "a", "[ 4 ]")], [], "", []),
        (None, [("output", "b", "[ 4 ]")], [], "", []),
        (0, [("input", "a", "[ 4 ]")], [], "", []),
        (None, [("input", "a", "[ -1, 4 ]")], [], "", ["error TR605"]),
        (None, [("output", "b", "[ -1, 4 ]")], [], "", ["error TR605"]),
        (0, [("input", "a", "[ -1, 4 ]")], [], "", ["error TR605"]),
        (None, [("input", "a", "[ 2, 4 ]")], [], "", ["error TR605"]),
        (None, [("input", "a", "[ -1, 4 ]"), ("output", "b", "[ -1, 4 ]")], [], "", []),
        (None, [("input", "a", "[ 2, 2 ] reshape { shape: [ 4 ] }")], [], "", []),
        # The backend completes no batch size for a file with a fixed one.
        (None, [("input", "a", "[ -1, 4 ]")], [value("b", FP32, [1, 4])], "", []),
        (None, [("input", "a", "[ -1, 4 ]")], [value("b", FP32, [])], "", []),
        (None, [("input", "a", "[ 4 ]")], [value("b", FP32, [1, 4])], "", ["error TR605"]),
        # ONNX Runtime may infer the shape that the file doesn't have.
        (None, [("input", "a", "[ 4 ]")], [NO_SHAPE], "", []),
        (None, [("input", "a", "[ -1, 4 ]")], [NO_SHAPE], "", []),
        (None, [("input", "a", "[ 5 ]")], [NO_SHAPE], "", ["error TR605"]),
        (None, [("input", "a", "[ -1, 4 ]")], [], "default-max-batch-size=0", []),
        (None, [("input", "a", "[ 4 ]")], [], "default-max-batch-size=0", ["error TR605"]),
        (None, [("input", "a", "[ 4 ]")], [], "default-max-batch-size=1", []),
        (None, [("input", "a", "[ -1, 4 ]")], [], "onnxruntime,default-max-batch-size=8", ["error TR605"]),
    ],
)
def test_the_backend_completes_max_batch_size_where_a_side_is_not_declared(
    tmp_path, batch, tensors, outputs, flags, expected
):
    config = "" if batch is None else f"max_batch_size: {batch}\n"
    config += "".join(declared(*tensor) for tensor in tensors)
    net = {"inputs": [value("a", FP32, ["n", 4])], "outputs": outputs or [value("b", FP32, ["n", 4])]}
    settings = parse([f"--backend-config={flags}"] if flags else [])
    assert judged(tmp_path, config, **net, flags=settings) == expected


def test_without_completion_the_dims_have_the_batch(tmp_path):
    net = {"inputs": [value("a", FP32, ["n", 4])], "outputs": [value("b", FP32, ["n", 4])]}
    for dims, expected in (("[ -1, 4 ]", []), ("[ 4 ]", ["error TR605"])):
        told = judged(tmp_path, declared("input", "a", dims), **net, flags=ServerFlags(completion=False))
        assert [each for each in told if "TR605" in each] == expected


def test_names_the_batch_size_that_the_server_completes(tmp_path):
    default = onnx_file.value("scale", FP32, [1]), shape_constant("scale", [1])
    config = declared("input", "a", "[ 4 ]") + declared("input", "scale", "[ 1 ]", "optional: true")
    write("m/config.pbtxt", 'backend: "onnxruntime"\n' + config)(tmp_path)
    net = model([value("a", FP32, ["n", 4]), default[0]], [value("b", FP32, ["n", 4])], [], [default[1]])
    write("m/1/model.onnx", net)(tmp_path)
    told = {f.code: f for f in findings(tmp_path)}
    assert "the server completes max_batch_size to 4" in told["TR605"].message
    assert "the server completes max_batch_size to 4" in told["TR608"].message
    assert "set max_batch_size" not in told["TR608"].remedy


WARM_UP = (
    'model_warmup {{ name: "w" batch_size: {} inputs {{ key: "a" value {{ data_type: TYPE_FP32 dims: [ 4 ] '
    "zero_data: true }} }} }}\n"
)


@pytest.mark.parametrize(
    ("config", "size", "expected"),
    [
        ("", 4, []),
        ("max_batch_size: 0\n", 4, []),
        ("", 5, ["error TR703"]),
        ("max_batch_size: 8\n", 8, []),
        ("max_batch_size: 8\n", 9, ["error TR703"]),
        (declared("input", "a", "[ -1, 4 ]") + declared("output", "b", "[ -1, 4 ]"), 2, ["error TR703"]),
    ],
)
def test_a_warm_up_may_have_the_batch_size_that_the_server_completes(tmp_path, config, size, expected):
    net = {"inputs": [value("a", FP32, ["n", 4])], "outputs": [value("b", FP32, ["n", 4])]}
    told = judged(tmp_path, config + WARM_UP.format(size), **net)
    assert [each for each in told if "TR703" in each] == expected


@pytest.mark.parametrize(("name", "expected"), [("a", []), ("A", ["error TR704"])])
def test_a_warm_up_needs_the_inputs_that_the_server_completes(tmp_path, name, expected):
    net = {"inputs": [value("a", FP32, ["n", 4])], "outputs": [value("b", FP32, ["n", 4])]}
    told = judged(tmp_path, WARM_UP.format(1).replace('"a"', f'"{name}"'), **net)
    assert [each for each in told if "TR704" in each] == expected


@pytest.mark.parametrize("batch", [0, 8])
def test_batches_of_a_model_that_is_completed_have_an_effect(tmp_path, batch):
    config = f"max_batch_size: {batch}\ndynamic_batching {{ }}\n"
    config += declared("input", "a", "[ -1 ]", "allow_ragged_batch: true")
    net = {"inputs": [value("a", FP32, ["n"])], "outputs": [value("b", FP32, ["n", 4])]}
    assert [each for each in judged(tmp_path, config, **net) if "TR1" in each] == []
    config += declared("output", "b", "[ 4 ]" if batch else "[ -1, 4 ]")
    told = [] if batch else ["warning TR107", "warning TR111"]
    assert [each for each in judged(tmp_path, config, **net) if "TR1" in each] == told


@pytest.mark.parametrize("side", ["input", "output"])
def test_rejects_inputs_and_outputs_that_are_not_tensors(tmp_path, side):
    config = "max_batch_size: 8\n" + declared("input", "a", "[ 4 ]") + declared("output", "b", "[ 4 ]")
    net = {"inputs": [value("a", FP32, ["n", 4])], "outputs": [value("b", FP32, ["n", 4])]}
    net[f"{side}s"].append(onnx_file.sequence("probabilities", FP32))
    assert "error TR609" in judged(tmp_path, config, **net)


def with_weights(tmp_path: Path, weight: bytes, **files: bytes) -> Path:
    """Writes a model that adds `weight`, which is named w, to its input. `files`: others, by path with __ for /."""
    config = "max_batch_size: 8\n" + declared("input", "a", "[ 8 ]") + declared("output", "b", "[ 8 ]")
    sides = [value("a", FP32, ["n", 8])], [value("b", FP32, ["n", 8])]
    write("m/config.pbtxt", 'backend: "onnxruntime"\n' + config)(tmp_path)
    write("m/1/model.onnx", model(*sides, [node("Add", ["a", "w"], ["b"])], [weight]))(tmp_path)
    for path, content in files.items():
        write(path.replace("__", "/"), content)(tmp_path)
    return tmp_path


OUTSIDE = ["../w", "/models/m/w", "/models/m/1/w", "../../other/w"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize(
    ("server", "expected"), [(None, ["warning"]), ((2, 51), []), ((2, 65), []), ((2, 66), ["error"])]
)
def test_servers_from_26_02_on_refuse_weights_outside_of_the_version(tmp_path, name, server, expected):
    files = {"m__w": bytes(32), "m__1__w": bytes(32), "other__w": bytes(32)}
    root = with_weights(tmp_path, onnx_file.external_weight("w", name), **files)
    told = [f for f in findings(root, server=server) if f.code == "TR607"]
    assert [f.severity for f in told] == expected
    assert all("outside of m/1/" in f.message and ("26.02" in f.message) is (server is None) for f in told)


@pytest.mark.parametrize("server", [None, (2, 51), (2, 66)])
def test_a_path_may_lead_back_to_the_version(tmp_path, server):
    root = with_weights(tmp_path, onnx_file.external_weight("w", "../1/w"), m__1__w=bytes(32))
    assert [f for f in findings(root, server=server) if f.code == "TR607"] == []


@pytest.mark.parametrize(("name", "severity"), [*((name, "error") for name in OUTSIDE), ("/opt/w", "warning"),
                                                ("../../../w", "warning")])  # fmt: skip
def test_weights_outside_of_the_version_must_exist(tmp_path, name, severity):
    root = with_weights(tmp_path, onnx_file.external_weight("w", name))
    [told] = [f for f in findings(root, server=(2, 51)) if f.code == "TR607"]
    assert told.severity == severity
    assert ("outside of the repository" if severity == "warning" else "doesn't exist") in told.message


@pytest.mark.parametrize(
    ("links", "refused"),
    [
        ({"m/1/w": "../w"}, True),
        ({"m/1/w": "real"}, False),
        ({"m/1": ".first"}, False),
        ({"m/1": ".first", "m/.first/w": "../w"}, True),
        ({"m/1/w": "../blobs/w", "m/1/model.onnx": "../blobs/model.onnx"}, False),  # as of a hub
        ({"m/1/w": "../blobs/inner/w", "m/1/model.onnx": "../blobs/model.onnx"}, False),
        ({"m/1/w": "../other/w", "m/1/model.onnx": "../blobs/model.onnx"}, True),
        ({"m/1/w": "..data/w", "m/1/..data": "..2026", "m/1/model.onnx": "..data/model.onnx"}, False),  # a ConfigMap
    ],
)
@pytest.mark.parametrize("server", [None, (2, 65), (2, 66)])
def test_links_to_weights_may_not_leave_the_directory_of_the_file(tmp_path, links, refused, server):
    """As trials of ONNX Runtime 1.24.1 and others did."""
    root = with_weights(tmp_path, onnx_file.external_weight("w", "w"), m__1__w=bytes(32))
    for path, target in links.items():
        place = (root / path).parent / target
        if not place.exists() and (root / path).exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            (root / path).rename(place)
        (root / path).unlink(missing_ok=True)
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).symlink_to(target)
    told = [f for f in findings(root, server=server) if f.code == "TR607"]
    level = {None: "warning", (2, 65): "", (2, 66): "error"}[server]
    assert [f.severity for f in told] == [level for _ in [refused] if refused and level]
    assert all("is a link out of m/1/" in f.message for f in told)


@pytest.mark.parametrize(
    ("weight", "size", "expected"),
    [
        (onnx_file.external_weight("w", "w", length=None), 32, ""),
        (onnx_file.external_weight("w", "w", length=None), 31, "has 31 bytes, but the model needs 32"),
        (onnx_file.external_weight("w", "w", length="0"), 32, ""),
        (onnx_file.external_weight("w", "w", length="16"), 32, "has 16 bytes, but its shape needs 32"),
        (onnx_file.external_weight("w", "w", length="64"), 64, "has 64 bytes, but its shape needs 32"),
        (onnx_file.external_weight("w", "w", length="16", kind=onnx_file.FP16), 16, ""),
        (onnx_file.external_weight("w", "w", length="4", kind=22), 4, ""),  # INT4
        (onnx_file.external_weight("w", "w", length="5", kind=22, count=9), 5, ""),
        (onnx_file.external_weight("w", "w", length="7", kind=99), 7, ""),
        (onnx_file.external_weight("w", "w", length="32", count=0), 32, ""),
        (b"\x0a\x02\x02\x04" + onnx_file.external_weight("w", "w", length="256", count=8), 256, ""),  # packed dims
        (onnx_file.external_weight("w", "w", length="x"), 32, ""),
        (onnx_file.external_weight("w", ""), 32, "has no name"),
        (onnx_file.external_weight("w", None), 32, "has no name"),
    ],
)
def test_external_weights_need_the_bytes_of_their_shape(tmp_path, weight, size, expected):
    told = [f for f in findings(with_weights(tmp_path, weight, m__1__w=bytes(size))) if f.code == "TR607"]
    assert [f.severity for f in told] == ["error" for _ in [expected] if expected]
    assert all(expected in f.message for f in told)


def test_external_weights_may_not_be_a_directory(tmp_path):
    root = with_weights(tmp_path, onnx_file.external_weight("w", "w"), m__1__w__file=b"")
    [told] = [f for f in findings(root) if f.code == "TR607"]
    assert "is a directory" in told.message


def test_only_the_first_weight_with_a_wrong_length_is_named(tmp_path):
    weights = [onnx_file.external_weight(name, "w", length="16") for name in "vwx"]
    nodes = [node("Sum", ["a", "v", "w", "x"], ["b"])]
    write("m/1/model.onnx", model([value("a", FP32, ["n", 8])], [value("b", FP32, ["n", 8])], nodes, weights))(tmp_path)
    write("m/1/w", bytes(32))(tmp_path)
    [told] = [f for f in findings(tmp_path) if f.code == "TR607"]
    assert told.message == "the weight 'v' has 16 bytes, but its shape needs 32; 2 more have a wrong length"


SEQUENCE = (
    "sequence_batching {{ control_input {{ name: 'START' control {{ kind: CONTROL_SEQUENCE_START "
    "fp32_false_true: [ 0, 1 ] }} {} }} }}\n"
)
END = "control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] }"
STATE = "sequence_batching { state { input_name: 'SI' output_name: 'SO' data_type: TYPE_FP32 dims: [ 4 ] } }\n"
A4, B4 = declared("input", "a", "[ 4 ]"), declared("output", "b", "[ 4 ]")


def sequence(tmp_path: Path, config: str, **expected: object) -> list[str]:
    """Returns the errors for a network with the inputs a, START and SI."""
    started = "START" in config
    more = [value("START", FP32, ["n", 1])] if started else [value("SI", FP32, ["n", 4])]
    outputs = [value("b", FP32, ["n", 4])] + ([] if started else [value("SO", FP32, ["n", 4])])
    told = judged(tmp_path, f"max_batch_size: 8\n{config}", inputs=[value("a", FP32, ["n", 4]), *more],
                  outputs=outputs, **expected)  # fmt: skip
    return [each for each in told if each.startswith("error")]


@pytest.mark.parametrize("batcher", [SEQUENCE.format(""), STATE], ids=["control", "state"])
def test_the_server_adds_all_inputs_where_none_is_declared(tmp_path, batcher):
    assert sequence(tmp_path, A4 + B4 + batcher) == []
    assert sequence(tmp_path, A4 + batcher) == []
    assert sequence(tmp_path, B4 + batcher) == ["error TR603"]
    assert sequence(tmp_path, batcher) == ["error TR603"]
    name, dims = ("START", "[ 1 ]") if "START" in batcher else ("SI", "[ 4 ]")
    assert sequence(tmp_path, A4 + declared("input", name, dims) + B4 + batcher) == ["error TR603"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("dims: [ 4 ] }", "dims: [ -1 ] }", []),
        ("dims: [ 4 ] }", "dims: [ 5 ] }", ["error TR605"]),
        ("dims: [ 4 ] }", "dims: [ 1, 4 ] }", ["error TR605"]),
        ("TYPE_FP32", "TYPE_FP64", ["error TR604"]),
        ("data_type: TYPE_FP32", "", []),  # another check has a warning about it
    ],
)
def test_a_state_has_the_type_and_shape_of_the_file(tmp_path, old, new, expected):
    assert sequence(tmp_path, A4 + B4 + STATE.replace(old, new)) == expected


def test_the_server_counts_a_control_for_each_of_its_kinds(tmp_path):
    assert sequence(tmp_path, A4 + B4 + SEQUENCE.format(END)) == ["error TR603"]
    without = "sequence_batching { control_input { name: 'START' } }\n"
    assert sequence(tmp_path, A4 + B4 + without) == ["error TR603"]


@pytest.mark.parametrize(
    ("batch", "more", "expected"),
    [(0, "", ["error TR603"]), (0, "optional: true", []), (8, "", ["error TR603"])],
)
def test_an_input_with_a_default_value_must_be_optional(tmp_path, batch, more, expected):
    dims, scale = ("[ 4 ]", ["n", 1]) if batch else ("[ -1, 4 ]", [1])
    config = f"max_batch_size: {batch}\n" + declared("input", "a", dims) + declared("output", "b", dims)
    config += f'input {{ name: "scale" data_type: TYPE_INT64 dims: [ 1 ] {more} }}\n'
    net = {
        "inputs": [value("a", FP32, ["n", 4]), value("scale", INT64, scale)],
        "outputs": [value("b", FP32, ["n", 4])],
    }
    assert judged(tmp_path, config, **net, weights=(shape_constant("scale", [1]),)) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [(A4 + B4, []), (A4, ["error TR603"]), (B4, ["error TR603"]), ("", ["error TR603", "error TR603"])],
)
def test_without_completion_both_sides_must_be_declared(tmp_path, config, expected):
    net = {"inputs": [value("a", FP32, ["n", 4])], "outputs": [value("b", FP32, ["n", 4])]}
    config = "max_batch_size: 8\n" + config
    assert judged(tmp_path, config, **net) == []
    assert judged(tmp_path, config, **net, flags=ServerFlags(completion=False)) == expected


@pytest.mark.parametrize(
    ("dims", "expected"),
    [("[ 1 ]", []), ("[ 1, 1 ]", []), ("[ 4 ]", ["error TR605"]), ("[ -1 ]", ["error TR605"]),
     ("[ 1 ] reshape { shape: [ 1, 1 ] }", []), ("[ 4 ] reshape { shape: [ 2, 2 ] }", ["error TR605"])],
)  # fmt: skip
def test_the_server_takes_an_input_without_a_shape_as_a_single_value(tmp_path, dims, expected):
    config = declared("input", "a", dims) + declared("output", "b", "[ 1 ]")
    net = {"inputs": [value("a", FP32, None)], "outputs": [value("b", FP32, [1])]}
    assert judged(tmp_path, config, **net) == expected


@pytest.mark.parametrize(("side", "more"), [("input", "optional: true"), ("output", "")])
def test_onnx_runtime_infers_the_shapes_of_outputs_and_of_default_values(tmp_path, side, more):
    tensors = {"input": [value("a", FP32, [4])], "output": [value("b", FP32, [4])]}
    tensors[side].append(value("c", FP32, None))
    weights = (onnx_file.shape_constant("c", [1]),) if side == "input" else ()
    config = declared("input", "a", "[ 4 ]") + declared("output", "b", "[ 4 ]") + declared(side, "c", "[ 4 ]", more)
    assert judged(tmp_path, config, inputs=tensors["input"], outputs=tensors["output"], weights=weights) == []


def test_no_side_with_a_batch_may_lack_its_shape_when_it_is_completed(tmp_path):
    net = {"inputs": [value("a", FP32, None)], "outputs": [NO_SHAPE]}
    assert judged(tmp_path, "max_batch_size: 8\n", **net) == ["error TR606"]
    assert judged(tmp_path, "", **net) == []


@pytest.mark.parametrize("batch", ["", "max_batch_size: 0\n", "max_batch_size: 3\n"])
def test_preferred_batch_sizes_need_a_max_batch_size_in_the_file(tmp_path, batch):
    net = {"inputs": [value("a", FP32, ["n", 4])], "outputs": [value("b", FP32, ["n", 4])]}
    config = "dynamic_batching { preferred_batch_size: [ 4 ] }\n"
    assert judged(tmp_path, batch + config, **net) == ["error TR108"]
    assert judged(tmp_path, "max_batch_size: 4\n" + config, **net) == []


ENSEMBLE = """\
platform: "ensemble"
max_batch_size: {}
input {{ name: "A" data_type: TYPE_FP32 dims: {} }}
output {{ name: "B" data_type: TYPE_FP32 dims: [ 4 ] }}
ensemble_scheduling {{ step {{
  model_name: "m" model_version: -1 input_map {{ key: "a" value: "A" }} output_map {{ key: "b" value: "B" }}
}} }}
"""
INVALID = "max_batch_size: x\n"


@pytest.mark.parametrize(
    ("config", "size", "flags", "expected"),
    [
        (A4, 4, [], []),
        (A4, 5, [], ["error TR416"]),
        (A4, 8, ["--backend-config=default-max-batch-size=8"], []),
        (A4, 8, ["--backend-config=default-max-batch-size=0"], ["warning TR416"]),
        ("max_batch_size: 8\n" + A4, 8, [], []),
        ("max_batch_size: 8\n" + A4, 9, [], ["error TR416"]),
        (None, 4, [], []),  # without config.pbtxt
        (None, 5, [], ["error TR416"]),
        (INVALID, 5, [], []),
    ],
)
def test_an_ensemble_has_at_most_the_batch_size_that_the_server_completes(tmp_path, config, size, flags, expected):
    if config is not None:
        write("m/config.pbtxt", 'backend: "onnxruntime"\n' + config)(tmp_path)
    write("m/1/model.onnx", model([value("a", FP32, ["n", 4])], [value("b", FP32, ["n", 4])]))(tmp_path)
    write("whole/config.pbtxt", ENSEMBLE.format(size, "[ 4 ]"))(tmp_path)
    write("whole/1/.keep", b"")(tmp_path)
    told = [f for f in findings(tmp_path, flags=parse(flags)) if f.code.startswith("TR4")]
    assert [f"{f.severity} {f.code}" for f in told] == expected
    assert all(("completes" in f.message) is (config is None or config == A4) for f in told if f.severity == "error")


def test_the_batch_size_of_an_onnx_file_that_is_not_read_is_unknown(tmp_path):
    write("m/config.pbtxt", 'backend: "onnxruntime"\ndefault_model_filename: "model.ort"\n' + A4)(tmp_path)
    write("m/1/model.ort", IN_ORT_FORMAT)(tmp_path)
    write("whole/config.pbtxt", ENSEMBLE.format(8, "[ 4 ]"))(tmp_path)
    write("whole/1/.keep", b"")(tmp_path)
    assert [f for f in findings(tmp_path) if f.code.startswith("TR4")] == []
