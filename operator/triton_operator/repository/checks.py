"""The chain of checks, in the order in which people should correct what they find.

To add one: write a pure function in `rules/`, give it a line in `CHECKS` and its codes a line in `CODES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from triton_operator.repository.findings import Finding, Severity, in_order
from triton_operator.repository.graph import loaded
from triton_operator.repository.model import Repository
from triton_operator.repository.rules import (
    answers,
    batching,
    calls,
    config,
    ensemble,
    expected,
    layout,
    limits,
    names,
    onnx,
    source,
    tensors,
    warmup,
)
from triton_operator.repository.rules.base import NOTHING, Check, Expected, each_model, each_model_expected

__all__ = ["CHECKS", "CODES", "Expected", "check", "judge"]

CODES = {
    "TR001": "no models, or the path is a level too high or too low",
    "TR002": "a file or directory that can't be read",
    "TR003": "a directory that is no model",
    "TR004": "a link that leads out of the repository",
    "TR005": "a file that is too large to be checked",
    "TR006": "a link to nothing",
    "TR101": "config.pbtxt: syntax",
    "TR102": "config.pbtxt: unknown field",
    "TR103": "config.pbtxt: name differs from the directory",
    "TR104": "config.pbtxt is missing",
    "TR105": "neither backend nor platform",
    "TR106": "unknown backend or platform",
    "TR107": "dynamic_batching with max_batch_size 0",
    "TR108": "max_batch_size below 0, or preferred_batch_size above it",
    "TR109": "config.pbtxt: field that is newer than the server",
    "TR110": "input of variable size that is batched without allow_ragged_batch",
    "TR111": "allow_ragged_batch with max_batch_size 0",
    "TR112": "dynamic_batching: priorities and orders that contradict one another",
    "TR113": "sequence_batching: controls that contradict one another",
    "TR114": "batch_input or batch_output of a tensor that isn't declared",
    "TR115": "input or output without name, data_type or dims",
    "TR116": "input or output with a dimension that can't be",
    "TR117": "two tensors of one name",
    "TR118": "reshape to another number of elements",
    "TR119": "instances on devices that aren't there",
    "TR120": "platform of another backend",
    "TR122": "model_metrics that are incomplete",
    "TR123": "version_policy that serves no version",
    "TR124": "batch_input or batch_output that can't be computed",
    "TR125": "a setting that TensorRT alone has",
    "TR201": "no version directory",
    "TR202": "version directory with leading zeros",
    "TR203": "directory whose name only starts with a number",
    "TR204": "model file is missing",
    "TR205": "empty version directory of an ensemble",
    "TR206": "version_policy names versions that aren't there",
    "TR207": "configuration that isn't named config.pbtxt",
    "TR208": "label file is missing",
    "TR209": "a file that a parameter names is missing",
    "TR210": "config.pbtxt in a version",
    "TR211": "model file that is empty, or a pointer of git LFS",
    "TR212": "a name that the python backend can't take",
    "TR301": "model.py: syntax",
    "TR302": "model.py: no class TritonPythonModel",
    "TR303": "model.py: no execute",
    "TR304": "model.py: method with arguments that the backend doesn't pass",
    "TR305": "model.py: input that config.pbtxt doesn't declare",
    "TR306": "model.py: output that config.pbtxt doesn't declare",
    "TR307": "model.py: output that is declared and never made",
    "TR308": "model.py: auto_complete_config that can't be called, or returns nothing",
    "TR309": "model.py: execute that returns nothing, or returns something where responses are sent",
    "TR310": "model.py: pb_utils is used and not imported",
    "TR311": "model.py: syntax that is newer than the server's Python",
    "TR312": "model.py: fewer responses than requests",
    "TR313": "model.py: name that is never defined",
    "TR314": "model.py: calls a model that isn't there",
    "TR315": "model.py: relative import of a file that isn't there",
    "TR316": "model.py: decoupled, and never tells the last response",
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
    "TR415": "ensemble: a tensor of two shapes",
    "TR416": "ensemble: batches larger than a step takes",
    "TR417": "ensemble: a step without input_map or output_map",
    "TR418": "ensemble: tensors of different decoupled models are joined",
    "TR501": "spec.entrypoint isn't in the repository",
    "TR502": "no single candidate for the entrypoint",
    "TR503": "spec.server.loadModels names a model that isn't there",
    "TR504": "too little shared memory",
    "TR505": "more threads than cores",
    "TR506": "response_cache without --cache-config",
    "TR507": "response_cache of a model that can't have one",
    "TR601": "model.onnx: no ONNX model",
    "TR602": "model.onnx: input or output that it doesn't have",
    "TR603": "model.onnx: input that config.pbtxt leaves out",
    "TR604": "model.onnx: another type",
    "TR605": "model.onnx: another shape",
    "TR606": "model.onnx: fixed batch",
    "TR607": "model.onnx: its weights are missing",
    "TR608": "model.onnx: optional input that can't be left out",
    "TR609": "model.onnx: input or output that is no tensor",
    "TR701": "warm-up or first state: file is missing",
    "TR702": "warm-up or first state: file of another size than its tensor",
    "TR703": "warm-up: batch above max_batch_size",
    "TR704": "warm-up: inputs that aren't those of the model",
    "TR901": "tritonserver refuses the model (--with-server)",
    "TR902": "tritonserver does not get ready (--with-server)",
}
"""Every code and what it stands for. A code never changes its meaning."""

CHECKS: tuple[tuple[str, Check], ...] = (
    ("stray directories", layout.stray),
    ("name", each_model(config.name)),
    ("config.pbtxt is there", each_model(layout.missing_config)),
    ("config.pbtxt by another name", each_model(layout.misnamed)),
    ("fields and the server's version", each_model_expected(config.newer)),
    ("versions", each_model(layout.versions)),
    ("backend", each_model(config.backend)),
    ("platform", each_model(config.platform)),
    ("metrics", each_model(config.metrics)),
    ("config.pbtxt in a version", each_model(layout.misplaced)),
    ("files of parameters", each_model(layout.named)),
    ("weights", each_model(layout.weights)),
    ("names for the python backend", each_model(layout.names)),
    ("model files", each_model(layout.model_files)),
    ("tensors", each_model(tensors.declared)),
    ("labels", each_model(tensors.labels)),
    ("instances", each_model_expected(tensors.instances)),
    ("batching", each_model(batching.batching)),
    ("ragged batches", each_model(batching.ragged)),
    ("queues", each_model(batching.queues)),
    ("sequences", each_model(batching.sequences)),
    ("batch tensors", each_model(batching.batch_tensors)),
    ("model.py", each_model_expected(source.python)),
    ("model.py: methods", each_model(source.methods)),
    ("model.py: responses", each_model(answers.answers)),
    ("model.py: the server's Python", each_model_expected(source.newer)),
    ("model.py: names", each_model(names.undefined)),
    ("model.py: imports", each_model(names.imports)),
    ("model.py: calls of models", each_model(names.called_models)),
    ("model.py: the last response", each_model(names.final_flag)),
    ("model.py: tensors", each_model(calls.names)),
    ("model.onnx", each_model(onnx.network)),
    ("warm-up", each_model(warmup.warmup)),
    ("first states", each_model(warmup.states)),
    ("ensemble: shape", each_model(ensemble.shape)),
    ("ensemble: steps", each_model(ensemble.steps)),
    ("ensemble: tensors", each_model(ensemble.tensors)),
    ("ensemble: types and shapes", each_model(ensemble.types)),
    ("ensemble: batches", each_model(ensemble.batches)),
    ("ensemble: decoupled branches", each_model(ensemble.branches)),
    ("ensemble: circles", ensemble.circles),
    ("models to load", expected.load_models),
    ("entrypoint", expected.entry),
    ("shared memory", limits.memory),
    ("threads", each_model_expected(limits.threads)),
    ("response cache", each_model_expected(limits.cache)),
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
    named = loaded(repository, wanted.load_models) if wanted.load_models else None

    def idle(model: str) -> bool:
        return named is not None and model != "" and model not in named

    return in_order(
        replace(f, severity=Severity.WARNING) if f.severity is Severity.ERROR and idle(f.model) else f
        for f in everything
    )
