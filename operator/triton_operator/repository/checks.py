"""The chain of checks, in the order in which people should correct what they find.

To add one: write a pure function in `rules/`, give it a line in `CHECKS` and its codes a line in `CODES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from triton_operator.repository.findings import Finding, Severity, in_order
from triton_operator.repository.graph import loaded
from triton_operator.repository.model import Repository
from triton_operator.repository.rules import config, ensemble, expected, layout, source
from triton_operator.repository.rules.base import NOTHING, Check, Expected, each_model

__all__ = ["CHECKS", "CODES", "Expected", "check", "judge"]

CODES = {
    "TR001": "no models, or the path is a level too high or too low",
    "TR002": "a file or directory that can't be read",
    "TR003": "a directory that is no model",
    "TR101": "config.pbtxt: syntax",
    "TR102": "config.pbtxt: unknown field",
    "TR103": "config.pbtxt: name differs from the directory",
    "TR104": "config.pbtxt is missing",
    "TR105": "neither backend nor platform",
    "TR106": "unknown backend or platform",
    "TR107": "dynamic_batching with max_batch_size 0",
    "TR108": "preferred_batch_size above max_batch_size",
    "TR201": "no version directory",
    "TR202": "version directory with leading zeros",
    "TR203": "directory whose name only starts with a number",
    "TR204": "model file is missing",
    "TR205": "empty version directory of an ensemble",
    "TR206": "version_policy names versions that aren't there",
    "TR301": "model.py: syntax",
    "TR302": "model.py: no class TritonPythonModel",
    "TR303": "model.py: no execute",
    "TR401": "ensemble: model of a step is missing",
    "TR402": "ensemble: input that the step's model doesn't declare",
    "TR403": "ensemble: output that the step's model doesn't declare",
    "TR404": "ensemble: input of the step's model left out",
    "TR405": "ensemble: tensor read and never written",
    "TR406": "ensemble: tensor written and never read",
    "TR407": "ensemble: output never written",
    "TR408": "ensemble: steps in a circle",
    "TR409": "ensembles that contain one another",
    "TR410": "ensemble: tensor written twice",
    "TR411": "ensemble: no platform, or no steps",
    "TR412": "ensemble: a field that ensembles don't take",
    "TR413": "ensemble: version of a step isn't served",
    "TR414": "ensemble: a tensor of two types",
    "TR501": "spec.entrypoint isn't in the repository",
    "TR502": "no single candidate for the entrypoint",
    "TR503": "spec.server.loadModels names a model that isn't there",
    "TR504": "too little shared memory",
}
"""Every code and what it stands for. A code never changes its meaning."""

CHECKS: tuple[tuple[str, Check], ...] = (
    ("stray directories", layout.stray),
    ("name", each_model(config.name)),
    ("config.pbtxt is there", each_model(layout.missing_config)),
    ("versions", each_model(layout.versions)),
    ("backend", each_model(config.backend)),
    ("model files", each_model(layout.model_files)),
    ("batching", each_model(config.batching)),
    ("model.py", each_model(source.python)),
    ("ensemble: shape", each_model(ensemble.shape)),
    ("ensemble: steps", each_model(ensemble.steps)),
    ("ensemble: tensors", each_model(ensemble.tensors)),
    ("ensemble: types", each_model(ensemble.types)),
    ("ensemble: circles", ensemble.circles),
    ("models to load", expected.load_models),
    ("entrypoint", expected.entry),
    ("shared memory", expected.memory),
)
"""Name and check. They don't depend on each other, except that all need at least one model."""


def check(repository: Repository, wanted: Expected = NOTHING) -> tuple[Finding, ...]:
    """All findings of the chain, in order. Of a repository without models, that alone."""
    first = tuple(layout.no_models(repository, wanted))
    return first or in_order(finding for _, rule in CHECKS for finding in rule(repository, wanted))


def judge(repository: Repository, found: Iterable[Finding], wanted: Expected = NOTHING) -> tuple[Finding, ...]:
    """What `load` found and what the checks find, in order.

    Where only some models are loaded, errors of the others become warnings: Triton won't touch them at start.
    """
    everything = (*found, *check(repository, wanted))
    idle = repository.models.keys() - loaded(repository, wanted.load_models)
    return in_order(
        replace(f, severity=Severity.WARNING) if f.severity is Severity.ERROR and f.model in idle else f
        for f in everything
    )
