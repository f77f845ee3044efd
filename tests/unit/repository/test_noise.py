"""The check returns a result in time for repositories with random edits."""

from __future__ import annotations

import random
import re
import shutil

import pytest

from corpus.good import GOOD, Good
from triton_repository_check.check_table import judge
from triton_repository_check.load import load
from triton_repository_check.report import parse, render, report

PIECES = ["-1", "0", "99", "[", "]", "{", "}", "TYPE_INT8", "name", "dims", "KIND_GPU", "1e9", "9223372036854775807",
          "-9223372036854775808", "reshape", "input", "inputs", "step", "ensemble_scheduling", "sequence_batching",
          "state", "true", "self", "def", "return"]  # fmt: skip


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.name)
def test_check_survives_random_edits(tmp_path, good: Good):
    rng = random.Random(good.name)
    base = good.write(tmp_path / "base")
    for number in range(25):
        root = tmp_path / str(number)
        shutil.copytree(base, root)
        files = sorted(f for f in root.rglob("*") if f.suffix in (".pbtxt", ".py"))
        file = rng.choice(files)
        tokens = re.split(r"(\s+|[\[\]{},:()])", file.read_text())
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(tokens))
            tokens[place] = rng.choice(["", *PIECES, *tokens])
        file.write_text("".join(tokens))
        repository, unreadable = load(root)
        findings = judge(repository, unreadable, good.expected)
        assert "TR007" not in {finding.code for finding in findings}
        assert parse(render(report(repository, findings, good.expected))) is not None


def test_reports_an_unknown_data_type(tmp_path):
    root = GOOD[9].write(tmp_path)
    config = root / "words/config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_FP32 dims: [ 5 ] random", "99 dims: [ 5 ] random"))
    assert "TR101" in {finding.code for finding in judge(*load(root))}
