"""Checks the corpus: good repositories have no findings, and each fault has its code, file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus.faults import FAULTS, Fault
from corpus.good import GOOD, Good
from corpus.legal import LEGAL, Legal
from kubectl_triton.validate import tritonserver
from triton_repository_check.check_table import judge
from triton_repository_check.findings import Severity
from triton_repository_check.load import load


def test_corpus_is_large_and_has_unique_names():
    assert len(GOOD) >= 10
    assert len(FAULTS) >= 60
    assert len({case.name for case in (*FAULTS, *LEGAL, *GOOD)}) == len(FAULTS) + len(LEGAL) + len(GOOD)


def test_the_server_has_a_verdict_about_each_repository_and_serves_those_without_a_fault():
    """The figures of docs/validate.md, from the last run of `make corpus`."""
    verdicts = json.loads((Path(__file__).parents[2] / "corpus/verdicts.json").read_text())
    for part, cases in (("good", GOOD), ("legal", LEGAL), ("faults", FAULTS)):
        assert verdicts[part].keys() == {case.name for case in cases}
    assert {row["when"] for part in ("good", "legal") for row in verdicts[part].values()} == {"never"}
    assert verdicts["image"] == tritonserver.IMAGE


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.name)
def test_accepts_good_repositories(tmp_path, good: Good):
    assert [str(finding) for finding in judge(*load(good.write(tmp_path)), good.expected)] == []


@pytest.mark.parametrize("legal", LEGAL, ids=lambda legal: legal.name)
def test_accepts_legal_repositories(tmp_path, legal: Legal):
    reported = judge(*load(legal.write(tmp_path)), legal.expected)
    assert [str(finding) for finding in reported if finding.severity is not Severity.NOTE] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_finds_each_fault(tmp_path, fault: Fault):
    results = judge(*load(fault.write(tmp_path)), fault.expected)
    reported = {(f.code, str(f.severity), f.file if f.line is None else f"{f.file}:{f.line}") for f in results}
    assert (fault.code, fault.severity, fault.place) in reported, "\n".join(map(str, results))
    assert all(finding.message and finding.remedy for finding in results)
