"""The list of checks and their codes.

To add a check: write a pure function in a file of `rules/`, and add it to the `CHECKS` of that file, and its codes to
`CODES`. Only a new file needs a line here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from triton_repository_check import load, overrides, placeholders
from triton_repository_check.expected import NOTHING, Expected
from triton_repository_check.findings import Finding, Severity, in_order
from triton_repository_check.graph import loaded
from triton_repository_check.model import Repository
from triton_repository_check.rules import (
    answers,
    backends,
    base,
    batching,
    bls,
    calls,
    config,
    contents,
    dtypes,
    ensemble,
    expected,
    layout,
    limits,
    names,
    onnx,
    onnx_weights,
    sequences,
    source,
    tensors,
    utils,
    warmup,
)
from triton_repository_check.rules.base import Checks, despite_faults

_RULES = (
    answers, backends, batching, bls, calls, config, contents, dtypes, ensemble, expected, layout, limits, names, onnx,
    onnx_weights, sequences, source, tensors, utils, warmup,
)  # fmt: skip
CHECKS: Checks = tuple(check for rules in _RULES for check in rules.CHECKS)
"""Name and function of each check. Checks are independent. All of them need at least one model."""
CODES: Mapping[str, str] = dict(
    sorted(entry for file in (base, load, overrides, placeholders, *_RULES) for entry in file.CODES.items())
)
"""Each code and its meaning. A code never changes its meaning."""


def check(repository: Repository, expectations: Expected = NOTHING) -> tuple[Finding, ...]:
    """Returns the findings of all checks, sorted. A repository without models has only TR001."""
    first = tuple(layout.no_models(repository, expectations))
    results = (despite_faults(rule(repository, expectations), ".") for _, rule in CHECKS)
    return first or in_order(finding for findings in results for finding in findings)


def judge(repository: Repository, findings: Iterable[Finding], expectations: Expected = NOTHING) -> tuple[Finding, ...]:
    """Returns `findings`, which come from `load`, and the findings of the checks, sorted.

    Errors in models that `expectations.load_models` doesn't load become warnings: Triton ignores these models at start.
    Errors in spec.models stay, because a model that is loaded later would run without what the spec says.
    """
    everything = (*findings, *check(repository, expectations))
    model_names = loaded(repository, expectations.load_models) if expectations.load_models else None

    def idle(model: str) -> bool:
        return model_names is not None and model != "" and model not in model_names

    judged = (
        replace(f, severity=Severity.WARNING) if f.severity is Severity.ERROR and idle(f.model) and not f.in_spec else f
        for f in everything
    )
    return tuple(_bounded(in_order(judged)))


def _bounded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yields the first MAX_FINDINGS of each code for each model."""
    counts: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        counts[finding.model, finding.code] += 1
        if counts[finding.model, finding.code] <= base.MAX_FINDINGS:
            yield finding
