"""The list of checks and their codes.

To add a check: write a pure function in `rules/`, add it to `CHECKS`, and add its codes to `CODES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from triton_operator.repository.findings import Finding, Severity, in_order
from triton_operator.repository.graph import loaded
from triton_operator.repository.model import Repository
from triton_operator.repository.rules import (
    answers,
    backends,
    batching,
    calls,
    completion,
    config,
    contents,
    ensemble,
    expected,
    layout,
    limits,
    names,
    onnx,
    sequences,
    source,
    tensors,
    warmup,
)
from triton_operator.repository.rules.base import NOTHING, Check, Expected, each_model, each_model_expected

__all__ = ["CHECKS", "CODES", "Expected", "check", "judge"]

CODES = {
    "TR001": "the path contains no models, or is one level too high or too low",
    "TR002": "a file or directory can't be read",
    "TR003": "a directory is not a model",
    "TR004": "a link leads out of the repository",
    "TR005": "a file is too large to check",
    "TR006": "a link is broken",
    "TR101": "config.pbtxt: syntax error",
    "TR102": "config.pbtxt: unknown field",
    "TR103": "config.pbtxt: name differs from the directory",
    "TR104": "config.pbtxt is missing",
    "TR105": "config.pbtxt: neither backend nor platform is set",
    "TR106": "config.pbtxt: unknown backend or platform",
    "TR107": "dynamic_batching: max_batch_size is 0",
    "TR108": "max_batch_size is below 0, or preferred_batch_size is above max_batch_size",
    "TR109": "config.pbtxt: the server is too old for a field",
    "TR110": "an input has a variable size and no allow_ragged_batch",
    "TR111": "allow_ragged_batch: max_batch_size is 0",
    "TR112": "dynamic_batching: priorities and ordering conflict",
    "TR113": "sequence_batching: invalid controls or states",
    "TR114": "batch_input or batch_output: the tensor isn't declared",
    "TR115": "an input or output has no name, data_type or dims",
    "TR116": "an input or output has an invalid dimension",
    "TR117": "two tensors have the same name",
    "TR118": "reshape changes the number of elements",
    "TR119": "instance_group: the device doesn't exist",
    "TR120": "platform and backend conflict",
    "TR122": "model_metrics is incomplete",
    "TR123": "version_policy serves no version",
    "TR124": "batch_input or batch_output is invalid",
    "TR125": "only TensorRT supports the setting",
    "TR126": "the backend refuses the value of a parameter, or an accelerator",
    "TR127": "the backend doesn't support a tensor",
    "TR128": "sequence_batching: sequences end after a pause of one second",
    "TR201": "no version directory",
    "TR202": "the version directory has leading zeros",
    "TR203": "the directory's name starts with a number but isn't a version",
    "TR204": "the model file is missing",
    "TR205": "the version directory of an ensemble is empty",
    "TR206": "version_policy names versions that don't exist",
    "TR207": "the configuration isn't named config.pbtxt",
    "TR208": "the label file is missing",
    "TR209": "a file that a parameter names is missing",
    "TR210": "config.pbtxt is in a version directory",
    "TR211": "the model file is empty, or is a Git LFS pointer",
    "TR212": "the python backend doesn't support the model's name",
    "TR301": "model.py: syntax error",
    "TR302": "model.py: class TritonPythonModel is missing",
    "TR303": "model.py: method execute is missing",
    "TR304": "model.py: a method has the wrong number of arguments",
    "TR305": "model.py: config.pbtxt doesn't declare the input",
    "TR306": "model.py: config.pbtxt doesn't declare the output",
    "TR307": "model.py: a declared output is never created",
    "TR308": "model.py: auto_complete_config has the wrong arguments, or returns nothing",
    "TR309": "model.py: execute returns the wrong type",
    "TR310": "model.py: pb_utils is used but not imported",
    "TR311": "model.py: the server's Python is too old for the syntax",
    "TR312": "model.py: execute returns fewer responses than requests",
    "TR313": "model.py: a name is never defined",
    "TR314": "model.py: the called model doesn't exist",
    "TR315": "model.py: the file of a relative import doesn't exist",
    "TR316": "model.py: a decoupled model never marks its last response",
    "TR317": "model.py: auto_complete_config contradicts config.pbtxt",
    "TR401": "ensemble: the model of a step is missing",
    "TR402": "ensemble: the step's model doesn't declare the input",
    "TR403": "ensemble: the step's model doesn't declare the output",
    "TR404": "ensemble: a step doesn't map an input of its model",
    "TR405": "ensemble: a tensor is read but never written",
    "TR406": "ensemble: a tensor is written but never read",
    "TR407": "ensemble: an output is never written",
    "TR408": "ensemble: steps form a cycle",
    "TR409": "ensembles contain each other",
    "TR410": "ensemble: a tensor is written twice",
    "TR411": "ensemble: platform or steps are missing",
    "TR412": "ensemble: the field isn't allowed in an ensemble",
    "TR413": "ensemble: the version of a step isn't served",
    "TR414": "ensemble: a tensor has two types",
    "TR415": "ensemble: a tensor has two shapes",
    "TR416": "ensemble: max_batch_size is above that of a step",
    "TR417": "ensemble: a step has no input_map or no output_map",
    "TR418": "ensemble: a step joins tensors of different decoupled models",
    "TR501": "spec.entrypoint isn't in the repository",
    "TR502": "the entrypoint is ambiguous",
    "TR503": "spec.server.loadModels names a model that doesn't exist",
    "TR504": "too little shared memory",
    "TR505": "more threads than cores",
    "TR506": "response_cache without --cache-config",
    "TR507": "the model can't have a response_cache",
    "TR601": "model.onnx: the file isn't an ONNX model",
    "TR602": "model.onnx: the input or output doesn't exist",
    "TR603": "model.onnx: config.pbtxt doesn't declare an input",
    "TR604": "model.onnx: the type differs",
    "TR605": "model.onnx: the shape differs",
    "TR606": "model.onnx: the batch size is fixed",
    "TR607": "model.onnx: the weights are missing",
    "TR608": "model.onnx: the input can't be optional",
    "TR609": "model.onnx: an input or output is not a tensor",
    "TR610": "model.onnx: the server's ONNX Runtime is too old for the file",
    "TR701": "warm-up or initial state: the file is missing",
    "TR702": "warm-up or initial state: the file's size differs from the tensor's",
    "TR703": "warm-up: batch_size is above max_batch_size",
    "TR704": "warm-up: inputs differ from those of the model",
    "TR801": "the model file has another format, or is truncated",
    "TR802": "OpenVINO: the weights are missing or truncated",
    "TR803": "OpenVINO: the inputs or outputs differ",
    "TR901": "tritonserver rejects the model (--with-server)",
    "TR902": "tritonserver does not become ready (--with-server)",
}
"""Each code and its meaning. A code never changes its meaning."""

CHECKS: tuple[tuple[str, Check], ...] = (
    ("stray directories", layout.stray),
    ("name", each_model(config.name)),
    ("missing config.pbtxt", each_model(layout.missing_config)),
    ("wrong name of config.pbtxt", each_model(layout.misnamed)),
    ("fields and the server's version", each_model_expected(config.newer)),
    ("versions", each_model(layout.versions)),
    ("backend", each_model(config.backend)),
    ("platform", each_model(config.platform)),
    ("parameters", each_model(backends.parameters)),
    ("tensors for PyTorch", each_model(backends.torch_tensors)),
    ("metrics", each_model(config.metrics)),
    ("config.pbtxt in a version directory", each_model(layout.misplaced)),
    ("files in parameters", each_model(layout.named)),
    ("weights", each_model(layout.weights)),
    ("names for the python backend", each_model(layout.names)),
    ("model files", each_model_expected(layout.model_files)),
    ("tensors", each_model(tensors.declared)),
    ("labels", each_model(tensors.labels)),
    ("instances", each_model_expected(tensors.instances)),
    ("batching", each_model(batching.batching)),
    ("ragged batches", each_model(batching.ragged)),
    ("queues", each_model(batching.queues)),
    ("sequences", each_model(sequences.sequences)),
    ("pauses of sequences", each_model(sequences.pauses)),
    ("batch tensors", each_model(batching.batch_tensors)),
    ("model.py", each_model_expected(source.python)),
    ("model.py: methods", each_model(source.methods)),
    ("model.py: responses", each_model(answers.answers)),
    ("model.py: the server's Python", each_model_expected(source.newer)),
    ("model.py: names", each_model(names.undefined)),
    ("model.py: names of pb_utils", each_model(names.utils)),
    ("model.py: imports", each_model(names.imports)),
    ("model.py: calls of models", each_model(names.called_models)),
    ("model.py: the last response", each_model(names.final_flag)),
    ("model.py: tensors", each_model(calls.names)),
    ("model.py: auto_complete_config", each_model(completion.completion)),
    ("model.onnx", each_model(onnx.network)),
    ("model.onnx: versions", each_model_expected(onnx.newer)),
    ("contents of model files", each_model(contents.model_file)),
    ("OpenVINO: weights", each_model(contents.weights)),
    ("OpenVINO: inputs and outputs", each_model(contents.tensors)),
    ("warm-up", each_model(warmup.warmup)),
    ("initial states", each_model(warmup.states)),
    ("ensemble: shape", each_model(ensemble.shape)),
    ("ensemble: steps", each_model(ensemble.steps)),
    ("ensemble: tensors", each_model(ensemble.tensors)),
    ("ensemble: types and shapes", each_model(ensemble.types)),
    ("ensemble: batches", each_model(ensemble.batches)),
    ("ensemble: decoupled branches", each_model(ensemble.branches)),
    ("ensemble: cycles", ensemble.nested_in_itself),
    ("models to load", expected.load_models),
    ("entrypoint", expected.entry),
    ("shared memory", limits.memory),
    ("threads", each_model_expected(limits.threads)),
    ("response cache", each_model_expected(limits.cache)),
)
"""Name and function of each check. Checks are independent. All of them need at least one model."""


def check(repository: Repository, wanted: Expected = NOTHING) -> tuple[Finding, ...]:
    """Returns the findings of all checks, sorted. A repository without models has only TR001."""
    first = tuple(layout.no_models(repository, wanted))
    return first or in_order(finding for _, rule in CHECKS for finding in rule(repository, wanted))


def judge(repository: Repository, found: Iterable[Finding], wanted: Expected = NOTHING) -> tuple[Finding, ...]:
    """Returns `found`, the findings of `load`, and the findings of the checks, sorted.

    Errors in models that `wanted.load_models` doesn't load become warnings: Triton ignores these models at start.
    """
    everything = (*found, *check(repository, wanted))
    named = loaded(repository, wanted.load_models) if wanted.load_models else None

    def idle(model: str) -> bool:
        return named is not None and model != "" and model not in named

    return in_order(
        replace(f, severity=Severity.WARNING) if f.severity is Severity.ERROR and idle(f.model) else f
        for f in everything
    )
