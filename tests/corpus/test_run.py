"""`kubectl triton validate --with-server` sends requests to a real server, and reports what fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corpus.run_cases import RUN_CASES
from kubectl_triton.main import main
from model_images.support import SERVER_IMAGE, need_server_image

pytestmark = pytest.mark.server
CASES = {case.name: case for case in RUN_CASES}


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    need_server_image()


def run(root: Path, *arguments: str) -> Result:
    image = "--server-image", SERVER_IMAGE
    return CliRunner().invoke(main, ["validate", str(root), "--with-server", *image, *arguments])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "load-008-labels",
            "labels/1/model.py:9: error TR901: tritonserver rejects 'labels': Internal: FileNotFoundError",
        ),
        (
            "each-014-histogram",
            "histogram/1/model.py:15: error TR904: each request (zeros, batch size 1): fails: Attri",
        ),
        (
            "some-019-generate",
            "generate/1/model.py:12: error TR904: 1 of 22 requests (empty strings, without TEMPERATURE)",
        ),
        (
            "some-026-embed",
            "at once with 15 others): fails: ValueError: array split does not result in an equal division",
        ),
        ("answer-027-mean", "mean: error TR905: each request (zeros, batch size 1): the output MEAN is FP64, but"),
        (
            "hang-040-chunker",
            "chunker: error TR906: 1 of 1 requests (zeros, 8 in each variable dimension): its stream has",
        ),
        ("death-046-guard", "guard: error TR907: each request (zeros, batch size 1): the model's process ends: Stub"),
        ("sequence-056-session", "error TR904: 3 of 6 requests (zeros, batch size 1): fails: KeyError: "),
        (
            "calls-063-chain",
            "chain: warning TR904: 6 of 9 requests (zeros, 8 in each variable dimension, batch size 1): fa",
        ),
        (
            "reload-072-locked",
            "locked/1/model.py:9: error TR909: after the requests: can't be loaded again: load failed",
        ),
    ],
)
def test_tells_the_fault_and_its_place(tmp_path, name, words):
    tmp_path.chmod(0o755)
    case = CASES[name]
    result = run(case.write(tmp_path / "models"), "--request-seconds=10")
    assert words in result.stdout, f"{case.text}:\n{result.stdout}"


@pytest.mark.parametrize("name", [case.name for case in RUN_CASES if case.kind == "legal"][::4])
def test_accuses_no_legal_repository(tmp_path, name):
    tmp_path.chmod(0o755)
    result = run(CASES[name].write(tmp_path / "models"))
    assert result.exit_code == 0, f"{CASES[name].text}:\n{result.stdout}"


def test_values_of_a_user_are_no_excuse(tmp_path):
    """A model may refuse values that were made up, but not those of real requests."""
    tmp_path.chmod(0o755)
    case = CASES["calls-067-quiet"]
    alone = replace(case, files={path: text for path, text in case.files.items() if path.startswith("picky/")})
    root = alone.write(tmp_path / "models")
    assert run(root).exit_code == 0
    values = tmp_path / "in.json"
    values.write_text(json.dumps({"data": [{"T": ["12"]}, {"T": ["twelve"]}]}))
    result = run(root, "--input-data", f"picky={values}")
    assert result.exit_code == 1
    assert "in.json, entry 2): refused by the model: invalid literal for int()" in result.stdout
