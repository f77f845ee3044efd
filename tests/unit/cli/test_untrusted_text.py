"""What the commands print of files and images is printable: no text in them moves the cursor or changes a direction."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from kubectl_triton import samples
from kubectl_triton.main import main

EVIL = "\x1b[2J\x1b]0;owned\x07\u202e"


def run(*arguments: object, text: str = "") -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=text)


def is_printable(result: Result) -> bool:
    return result.output.replace("\n", "").isprintable()


def model(**spec: object) -> str:
    metadata = {"name": "m", "annotations": {"a": f"naïve {EVIL}"}}
    spec = {"modelImage": {"reference": "r:1"}, **spec}
    body = {"apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel", "metadata": metadata, "spec": spec}
    return yaml.safe_dump(body)


@pytest.mark.parametrize("arguments", [
    ("validate", EVIL), ("validate", "--spec", "-"), ("validate", "--spec", f"no-such-file{EVIL}"),
    ("validate", "--server-version", EVIL, "x"), ("render", "-"), (EVIL,), ("render", EVIL), ("top", "-n", EVIL),
])  # fmt: skip
@pytest.mark.parametrize("text", [
    EVIL, f"a: [{EVIL}", model(modelImage={"reference": f"r{EVIL}"}), model(**{f"no{EVIL}": 1}),
    model(modelImage={"reference": "r:1", "path": f"/{EVIL}"}), f"kind: TritonModel\napiVersion: '{EVIL}'\n",
])  # fmt: skip
def test_errors_are_printable(arguments: tuple[str, ...], text: str) -> None:
    result = run(*arguments, text=text)
    assert result.output
    assert is_printable(result), result.output


@pytest.mark.parametrize("link", [tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE])
@pytest.mark.parametrize("name", [f"models/{EVIL}", f"models/{EVIL * 100}", f"models/.wh.{EVIL}", f"../{EVIL}"])
def test_a_hostile_layer_prints_nothing_else(link: bytes, name: str, tmp_path: Path) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path in (name, f"{name}/below", "models/good/1/model.py"):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = link, f"models/{EVIL}" if link in (tarfile.LNKTYPE, tarfile.SYMTYPE) else ""
            tar.addfile(entry)
    manifest = b'[{"Config":"c.json","RepoTags":["r:1"],"Layers":["l.tar"]}]'
    with tarfile.open(tmp_path / "image.tar", mode="w") as tar:
        for path, content in (("manifest.json", manifest), ("c.json", b"{}"), ("l.tar", layer.getvalue())):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    for form in ("text", "json", "sarif"):
        result = run("validate", tmp_path / "image.tar", "--output", form)
        assert result.exit_code
        assert is_printable(result), result.output


def test_rendered_objects_are_printable_and_the_same() -> None:
    text = f"naïve {EVIL}"
    result = run("render", "-", text=model(commonMetadata={"annotations": {"a": text}}))
    assert result.exit_code == 0, result.output
    assert is_printable(result)
    assert all(obj["metadata"]["annotations"]["a"] == text for obj in yaml.safe_load_all(result.stdout))


def test_a_malformed_url_of_prometheus_shows_no_password() -> None:
    for url in (
        "http://user:sec/ret@127.0.0.1:9",
        "http://user:sec#ret@127.0.0.1:9",
        "http://user:sec@ret@127.0.0.1:9",
    ):
        error = samples.read(url, None).error
        assert error
        assert not {part for part in ("user", "sec", "ret") if part in error}, error
