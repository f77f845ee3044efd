"""The figures of docs/validate.md about `--with-server`, from the last run of `make corpus`."""

from __future__ import annotations

import json

from corpus.good import GOOD
from corpus.legal import LEGAL
from corpus.run_cases import FOLDER, KINDS, RUN_CASES

TOLD = json.loads((FOLDER.parent / "told.json").read_text())


def test_the_last_run_reported_most_faults_and_accused_no_legal_repository():
    ran = {name: worst for kind in KINDS for name, worst in TOLD[kind].items()}
    assert ran.keys() == {case.name for case in (*RUN_CASES, *GOOD, *LEGAL)}
    assert all(case.name in TOLD[case.kind] for case in RUN_CASES)
    faults = [ran[case.name] for case in RUN_CASES if case.kind != "legal"]
    assert sum(worst in ("error", "warning") for worst in faults) / len(faults) >= 0.95
    assert "error" not in TOLD["legal"].values()
