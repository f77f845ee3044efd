"""Loads directories with all kinds of files, links and permissions."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from corpus.good import GOOD
from support import onnx_file
from support.mutations import Change, edit, folder, forbid, move, remove, write
from triton_repository_check.check_table import judge
from triton_repository_check.load import MAX_CONFIG, MAX_SOURCE, load
from triton_repository_check.rules.base import MAX_FINDINGS
from triton_repository_check.server_flags import ServerFlags
from unit.repository.gen import MODEL_PY, NET, NETWORK, PRE, brief, findings, good


@pytest.fixture
def unprivileged():
    """A directory, with the permissions of a user who isn't root."""
    place = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(place, 65534, -1)
        os.seteuid(65534)
    yield place
    if root:
        os.seteuid(0)
    shutil.rmtree(place, onerror=lambda *_: None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("net/config.pbtxt", ["error TR002 net/config.pbtxt"]),
        ("pre/1/model.py", ["error TR002 pre/1/model.py"]),
        ("net/1/model.onnx", ["error TR002 net/1/model.onnx"]),
        ("pre/1", ["error TR002 pre/1"]),
        ("pre/1/words.txt", ["warning TR002 pre/1/words.txt"]),
        ("pre/2/words.txt", []),
    ],
)
def test_reports_unreadable_files(unprivileged, path, expected):
    served = write("pre/config.pbtxt", PRE + "version_policy { specific { versions: 1 } }\n")
    words = write("pre/1/words.txt", "a"), write("pre/2/words.txt", "a"), write("pre/2/model.py", MODEL_PY)
    root = good(unprivileged, served, *words, forbid(path))
    reported = findings(root)
    (root / path).chmod(0o700)
    assert brief(reported) == expected
    assert all("Permission denied" in finding.message for finding in reported)
    assert all("chmod -R a+rX" in finding.remedy for finding in reported)


def test_does_not_open_other_directories_of_a_model(unprivileged):
    root = good(unprivileged, folder("net/cache"), forbid("net/cache"))
    assert findings(root) == ()


def test_reports_an_unreadable_repository(unprivileged):
    root = good(unprivileged / "models", lambda place: place.chmod(0))
    reported = findings(root)
    root.chmod(0o700)
    assert brief(reported) == ["error TR001 .", "error TR002 ."]


def test_reports_an_unreadable_model(unprivileged):
    root = good(unprivileged, forbid("net"))
    lines = brief(findings(root))
    (root / "net").chmod(0o700)
    assert "error TR002 net" in lines


def test_reads_models_and_versions(tmp_path):
    repository, unreadable = load(good(tmp_path, folder("net/3"), folder("net/01"), folder("net/x")))
    assert unreadable == ()
    net = repository.models["net"]
    assert (net.name, net.directory, net.config_path) == ("net", "net", "net/config.pbtxt")
    assert (net.versions, net.served, net.is_ensemble, net.steps) == ((1, 3), (3,), False, ())
    assert net.config.max_batch_size == 8
    detect = repository.models["detect"]
    assert detect.is_ensemble
    assert [step.model_name for step in detect.steps] == ["pre", "net"]
    assert list(repository.models["pre"].sources) == ["pre/1/model.py"]


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", (10,)),
        ("latest { num_versions: 2 }", (2, 10)),
        ("latest { }", ()),
        (" ", (1, 2, 10)),
        ("all { }", (1, 2, 10)),
        ("specific { versions: [ 1, 7 ] }", (1,)),
    ],
)
def test_applies_the_version_policy(tmp_path, policy, served):
    config = 'backend: "onnxruntime"\n' + (f"version_policy {{ {policy} }}" if policy else "")
    root = good(tmp_path, write("net/config.pbtxt", config), folder("net/2"), folder("net/10"))
    assert load(root)[0].models["net"].served == served


@pytest.mark.parametrize(
    ("file", "backend"),
    [
        ("model.onnx", "onnxruntime"),
        ("model.plan", "tensorrt"),
        ("model.pt", "pytorch"),
        ("model.savedmodel/saved_model.pb", "tensorflow"),
        ("model.xml", "openvino"),
        ("model.py", "python"),
        ("weights.bin", ""),
    ],
)
def test_finds_the_backend_by_the_model_file(tmp_path, file, backend):
    write(f"m/1/{file}", "")(tmp_path)
    assert load(tmp_path)[0].models["m"].backend == backend


def test_finds_the_backend_by_the_name_of_the_directory(tmp_path):
    write("resize.dali/1/weights.bin", "")(tmp_path)
    assert load(tmp_path)[0].models["resize.dali"].backend == "dali"


def test_follows_links_inside_of_the_repository(tmp_path):
    """Kubernetes mounts ConfigMaps with links, and users share weights between models and versions with links."""
    root = good(tmp_path / "models", move("net", ".data/net"), move("detect/config.pbtxt", "detect/shared"))
    (root / "net").symlink_to(".data/net")
    (root / "detect/config.pbtxt").symlink_to(root / "detect/shared")
    (root / "net/2").symlink_to("1")
    (root / "pre/2").symlink_to("../../models/pre/1")  # through the parent directory and back
    repository, unreadable = load(root)
    assert brief(unreadable) == []
    assert repository.models["net"].config.max_batch_size == 8
    assert list(repository.models["pre"].sources) == ["pre/2/model.py"]
    assert list(repository.models["net"].networks) == ["net/2/model.onnx"]


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("net/config.pbtxt", "/etc/passwd"),
        ("net/config.pbtxt", "../../secret"),
        ("pre/2/model.py", "/etc/passwd"),
        ("net/2/model.onnx", "/etc/passwd"),
        ("pre/2", "/etc"),
        ("other", "/etc"),
        ("other", ".."),
        ("net/config.pbtxt", "up/secret"),
        ("net/warmup/x", "/proc/self/mem"),
        ("net/warmup/x", "/dev/zero"),
        ("net/config.pbtxt", "/proc/self/environ"),
        ("net/config.pbtxt", "/proc/self/cwd/net/config.pbtxt"),
    ],
)
def test_does_not_follow_links_out_of_the_repository(tmp_path, link, target):
    """A warning, because the server follows the link in its own image. The finding shows none of the content."""
    (tmp_path / "secret").write_text("secret_of_another")
    root = good(tmp_path / "models")
    (root / "net/up").symlink_to("../..")
    place = root / link
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    reported = findings(root, server=(2, 51))
    assert f"warning TR004 {link}" in brief(reported)
    assert not [f for f in reported if f.severity == "error"], reported
    assert not any(word in str(f) for f in reported for word in ("secret_of", "root:", "TR10"))


def test_survives_cycles_of_links(tmp_path):
    root = good(tmp_path)
    for n in range(50):
        (root / f"net/1/{n}").symlink_to(f"{n + 1}")
    (root / "net/1/self").symlink_to("self")
    assert findings(root) == ()
    (root / "net/1/model.onnx").unlink()
    (root / "net/1/model.onnx").symlink_to("self")
    assert brief(findings(root)) == ["error TR204 net/1"]


@pytest.mark.parametrize("place", ["gone", "net/gone", "net/2"])
def test_rejects_broken_links_in_directories_that_triton_lists(tmp_path, place):
    root = good(tmp_path)
    (root / place).symlink_to("nowhere")
    assert brief(findings(root)) == [f"error TR006 {place}"]
    # It is only a warning if the model isn't loaded.
    assert brief(findings(root, load_models=("pre",)))[0] == f"warning TR006 {place}"


def test_rejects_a_config_that_is_a_broken_link(tmp_path):
    root = good(tmp_path, remove("net/config.pbtxt"))
    (root / "net" / "config.pbtxt").symlink_to("nowhere")
    assert "error TR006 net/config.pbtxt" in brief(findings(root))


@pytest.mark.parametrize("path", ["pre/1/model.py", "net/1/model.onnx", "net/config.pbtxt"])
def test_does_not_open_special_files(tmp_path, path):
    root = good(tmp_path, remove(path))
    os.mkfifo(root / path)
    assert brief(findings(root)) == [f"error TR002 {path}"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all files that the check opens."""
    paths: list[str] = []

    def remember(path: str, *arguments: int) -> int:
        paths.append(path)
        return opens(path, *arguments)

    opens = os.open
    monkeypatch.setattr("os.open", remember)
    return paths


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):  # the path of a socket must be short
        server.bind(path.name)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root can make devices")


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_device])
def test_never_opens_a_special_file(tmp_path, opened, make):
    """Whatever the file is for: a configuration, a model, labels, a warm-up, or an environment of Python."""
    for good_one in GOOD:
        root = good_one.write(tmp_path / good_one.name)
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            content = path.read_bytes()
            path.unlink()
            make(path)
            opened.clear()
            repository, found = load(root, measured=True)
            judge(repository, found, good_one.expected)
            assert str(path) not in opened
            path.unlink()
            path.write_bytes(content)
    assert opened


def test_opens_only_files_of_the_repository(tmp_path, opened):
    """Also if a link or a name in config.pbtxt leads out of it."""
    (tmp_path / "secret").write_text("secret_of_another")
    root = good(
        tmp_path / "models",
        edit("net/config.pbtxt", "dims: [ 100, 6 ]", 'dims: [ 100, 6 ] label_filename: "../../secret"'),
        write("pre/config.pbtxt", PRE + 'default_model_filename: "../../../secret"\n'),
        folder("net/warmup"),
    )
    for link in ("net/1/model.plan", "net/warmup/x", "detect/health.json"):
        (root / link).symlink_to(tmp_path / "secret")
    (root / "other").symlink_to("..")
    load(root, measured=True, request="detect/health.json")
    assert str(root / "net/config.pbtxt") in opened
    assert [path for path in opened if not Path(path).resolve().is_relative_to(root)] == []


def test_changes_nothing(tmp_path):
    def state() -> list[tuple[str, int, int]]:
        every = [(path, path.lstat()) for path in sorted(tmp_path.rglob("*"))]
        return [(str(path), status.st_size, status.st_mtime_ns) for path, status in every]

    for good_one in GOOD:
        root = good_one.write(tmp_path / good_one.name)
        before = state()
        judge(*load(root, measured=True), good_one.expected)
        assert state() == before


@pytest.mark.parametrize(("path", "max_bytes"), [("net/config.pbtxt", MAX_CONFIG), ("pre/1/model.py", MAX_SOURCE)])
def test_checks_files_of_the_largest_size(tmp_path, path, max_bytes):
    """The fault at the end shows that all of it is read."""
    root = good(tmp_path)
    fault = {"net/config.pbtxt": b"\nknd: 1\n", "pre/1/model.py": b"\ndef f(:\n"}[path]
    start = (root / path).read_bytes() + b"#"
    write(path, start.ljust(max_bytes - len(fault), b"#") + fault)(root)
    assert [f.code for f in findings(root)] == [{"net/config.pbtxt": "TR102", "pre/1/model.py": "TR301"}[path]]


@pytest.mark.parametrize(("path", "max_bytes"), [("net/config.pbtxt", MAX_CONFIG), ("pre/1/model.py", MAX_SOURCE)])
def test_warns_about_files_that_are_too_large(tmp_path, path, max_bytes):
    """It isn't an error, because Triton has no limit."""
    root = good(tmp_path, write(path, b"#" * (max_bytes + 1)))
    assert brief(findings(root)) == [f"warning TR005 {path}"]


def test_warns_about_a_configuration_with_too_many_values(tmp_path):
    """It isn't an error, because Triton has no limit."""
    root = good(tmp_path, edit("net/config.pbtxt", "dynamic_batching", "output{}" * 260_001 + " dynamic_batching"))
    reported = findings(root)
    assert brief(reported) == ["warning TR005 net/config.pbtxt"]
    assert "has more than 260000 values" in reported[0].message


def test_a_list_counts_only_its_different_numbers(tmp_path):
    dims = ", ".join(["1", "2"] * 200_000)
    root = good(tmp_path, edit("net/config.pbtxt", "dims: [ 100, 6 ]", f"dims: [ {dims} ]"))
    assert "TR005" not in {f.code for f in findings(root)}


@pytest.mark.parametrize(("fields", "told"), [(50, []), (51, ["warning TR005 net/1/model.onnx"])])
def test_warns_about_an_onnx_file_with_too_many_fields(tmp_path, monkeypatch, fields, told):
    counted: list[int] = []
    monkeypatch.setattr("triton_repository_check.onnx._Source.count", lambda _: counted.append(1))
    load(good(tmp_path / "first"))
    monkeypatch.undo()
    monkeypatch.setattr("triton_repository_check.onnx.MAX_FIELDS", 50)
    more = onnx_file.number(5, 1) * (fields - len(counted))
    assert brief(findings(good(tmp_path / "second", write("net/1/model.onnx", NETWORK + more)))) == told


def test_limits_the_findings_of_a_check(tmp_path):
    """A million findings take a minute and a gigabyte."""
    root = good(tmp_path, edit("net/config.pbtxt", "dynamic_batching", "output{}" * 100_000 + " dynamic_batching"))
    codes = Counter(f.code for f in findings(root) if f.file == "net/config.pbtxt")
    assert codes["TR115"] == MAX_FINDINGS
    assert len(codes) > 1


def test_the_findings_of_a_check_are_limited_for_each_model(tmp_path):
    many = "output{}" * 2000
    root = good(
        tmp_path,
        edit("net/config.pbtxt", "dynamic_batching", many + " dynamic_batching"),
        edit("pre/config.pbtxt", "instance_group", many + " instance_group"),
    )
    models = Counter(f.model for f in findings(root) if f.code == "TR115")
    assert models == {"net": MAX_FINDINGS, "pre": MAX_FINDINGS}


def test_accepts_windows_line_endings(tmp_path):
    root = good(tmp_path, edit("net/config.pbtxt", "max_batch_size: 8\n", "max_batch_size: 8\r\n"))
    assert findings(root) == ()


def test_check_does_not_import_the_client():
    """The check runs at each start of a pod, and the import of grpc and numpy takes long."""
    code = (
        "import sys; import triton_repository_check.check; "
        "print([m for m in ('grpc', 'numpy', 'tritonclient.grpc', 'pydantic', 'asyncio') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], env=_path(), capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_client_shares_the_classes_of_the_schema():
    code = (
        "from triton_repository_check.schema import ModelConfig; "
        "from tritonclient.grpc import model_config_pb2 as theirs; "
        "assert theirs.ModelConfig is ModelConfig; "
        "import tritonclient.grpc as client; client.InferenceServerClient('localhost:1')"
    )
    subprocess.run([sys.executable, "-c", code], env=_path(), check=True)


def _path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "operator")}


BYTES = b"".join(b'parameters { key: "k%d" value { string_value: "\xff" } }\n' % n for n in range(1500))
RESOURCES = "".join(
    f'resources {{ name: "R{n}" count: 1 }} resources {{ name: "R{n}" count: 1 global: true }} ' for n in range(1500)
)


def links(folder: str, target: str) -> Change:
    def change(root: Path) -> None:
        (root / folder).mkdir(exist_ok=True)
        for number in range(1500):
            (root / folder / f"link{number}").symlink_to(target)

    return change


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("TR004", links("net/warmup", "/etc/passwd")),
        ("TR006", links("net", "gone")),
        ("TR130", write("net/config.pbtxt", NET.encode() + BYTES)),
        ("TR518", edit("pre/config.pbtxt", "kind: KIND_CPU", f"kind: KIND_CPU rate_limiter {{ {RESOURCES} }}")),
    ],
)
def test_the_findings_of_each_code_are_limited(tmp_path, code, change):
    root = good(tmp_path)
    change(root)
    found = [f for f in findings(root, flags=ServerFlags(rate_limiter=True)) if f.code == code]
    assert 0 < len(found) <= MAX_FINDINGS
