"""What the first part of docs/validate.md shows: its commands, its output, and its limits."""

from __future__ import annotations

import json
import re
import shlex
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corpus.faults import FAULTS, Fault
from corpus.good import BY_NAME
from kubectl_triton.main import main
from kubectl_triton.validate import server_args, unpack, with_server
from triton_repository_check import check, load, onnx, textformat
from triton_repository_check.rules import base
from unit.cli.test_archives import AMD64, ARM64, Layout

PAGE = (Path(__file__).parents[3] / "docs/validate.md").read_text()
EXAMPLES = [
    line.partition("#")[0].strip().removeprefix("kubectl triton ")
    for line in PAGE.partition("```sh\n")[2].partition("```")[0].splitlines()
]
DOCKER = """\
#!/bin/sh
echo "$@" >>docker.log
case $1 in
  create) echo container ;;
  cp) cat models.tar ;;
esac
"""
"""Does as if it has each image, with the models of models.tar."""
SPEC = """\
kind: TritonModel
metadata: {name: detection}
spec: {modelImage: {reference: "registry.example.com/team/spec:1", path: /srv}, entrypoint: ENTRYPOINT}
"""


FINDINGS = with_server.findings


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what the commands of the page name, and a program instead of Docker."""
    monkeypatch.chdir(tmp_path)
    root = BY_NAME["detection"].write(tmp_path / "repository")
    BY_NAME["detection"].write(tmp_path / "model_images/detection/repository")
    with tarfile.open("models.tar", "w") as archive:
        archive.add(root, ".")
    layout = Layout()
    layout.written(Path("detection.tar"), layout.image(AMD64, "amd"), layout.image(ARM64, "arm"))
    Path("detection.yaml").write_text(SPEC.replace("ENTRYPOINT", "detect"))
    Path("docker").write_text(DOCKER)
    Path("docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(with_server, "findings", lambda *_: [])
    return tmp_path


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 5
    assert all(example.startswith("validate ") for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_checks_a_repository(place: Path, example: str) -> None:
    result = run(*shlex.split(example.partition(">")[0]))
    assert result.exit_code == 0, result.output
    assert re.search(r"[14] models?, 0 errors, 0 warnings, 0 notes\n$", result.stdout) or json.loads(result.stdout)


def docker(place: Path) -> list[list[str]]:
    return [line.split() for line in (place / "docker.log").read_text().splitlines()]


def test_an_image_is_copied_from_a_container_that_is_removed(place: Path) -> None:
    assert run("validate", "registry.example.com/team/detection:3").exit_code == 0
    create, copy, remove = docker(place)
    assert create[:2] == ["create", "registry.example.com/team/detection:3"]
    assert copy == ["cp", "container:/models/.", "-"]
    assert remove == ["rm", "--force", "container"]


@pytest.mark.parametrize(("arguments", "folder"), [([], "/srv"), (["--path", "/other/"], "/other")])
def test_the_spec_has_the_image_and_its_directory(place: Path, arguments: list[str], folder: str) -> None:
    result = run("validate", "--spec", "detection.yaml", *arguments)
    assert result.stdout.startswith("registry.example.com/team/spec:1: 4 models")
    create, copy, _ = docker(place)
    assert create[1] == "registry.example.com/team/spec:1"
    assert copy[1] == f"container:{folder}/."


def test_the_spec_has_the_settings(place: Path) -> None:
    Path("detection.yaml").write_text(SPEC.replace("ENTRYPOINT", "other"))
    assert "error TR501" in run("validate", "repository", "--spec", "detection.yaml").stdout


@pytest.mark.parametrize("arguments", [["registry.example.com/team/detection:3"], ["repository", "--with-server"]])
def test_nothing_is_checked_if_docker_does_not_run(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(with_server, "findings", FINDINGS)
    Path("docker").write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    result = run("validate", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Cannot connect to the Docker daemon" in result.stderr


def test_nothing_is_checked_if_docker_is_not_installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_server, "findings", FINDINGS)
    monkeypatch.setenv("PATH", str(place / "absent"))
    result = run("validate", "repository", "--with-server")
    assert (result.exit_code, "docker can't be run" in result.stderr) == (2, True)


PULL = """\
Unable to find image 'gone:1' locally
docker: Error response from daemon: Get "https://registry.example/v2/": no such host

Run 'docker run --help' for more information
"""


def test_a_failure_of_docker_has_the_words_that_say_why(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker's last line doesn't."""
    monkeypatch.setattr(with_server, "findings", FINDINGS)
    Path("docker").write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{PULL}END\nexit 125\n")
    result = run("validate", "repository", "--with-server", "--server-image", "gone:1")
    assert result.exit_code == 2
    assert result.stderr.endswith('Error response from daemon: Get "https://registry.example/v2/": no such host\n')


def test_the_output_is_that_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    next(fault for fault in FAULTS if fault.name == "misspelled output in model.py").write(tmp_path / "repository")
    result = run("validate", "repository")
    assert result.exit_code == 1
    assert result.stdout in PAGE


@pytest.mark.parametrize("fault", FAULTS[::7], ids=lambda fault: fault.name)
def test_the_check_in_the_pod_finds_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: Fault) -> None:
    root = str(fault.write(tmp_path))
    known = ["--shm-size=1Gi", "--server-arg=--log-info=false"]  # the pod knows its memory and its flags
    result = run("validate", root, *known, f"--entrypoint={fault.expected.entrypoint or ''}")
    options = ["--shared-memory", str(2**30), "--numpy-threads=1", f"--entrypoint={fault.expected.entrypoint or ''}"]
    assert check.main([root, *options]) == result.exit_code
    assert capsys.readouterr().out == result.stdout


def test_the_flags_are_those_of_two_versions() -> None:
    versions = json.loads(Path(server_args.__file__).with_name("server_usage.json").read_text())["versions"]
    assert f"the usage that Triton {' and '.join(versions)} print (TR519)" in " ".join(PAGE.split())


LIMITS = {
    "more than a million entries": unpack.MAX_ENTRIES == 1_000_000,
    "above 32 MiB": load.MAX_CONFIG == 32 * 2**20,
    "more than 260,000 values": textformat.MAX_VALUES == 260_000,
    "a model.py above 256 KiB": load.MAX_SOURCE == 256 * 2**10,
    "with more than 1,000,000 fields": onnx.MAX_FIELDS == 1_000_000,
    "at most 1,000 findings of a code for each model": base.MAX_FINDINGS == 1000,
}


@pytest.mark.parametrize("words", LIMITS)
def test_the_limits_are_those_of_the_page(words: str) -> None:
    assert words in " ".join(PAGE.split())
    assert LIMITS[words]
