"""Checks of ensembles. Triton reports the same errors, but without the position and only one for each start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from triton_repository_check import placeholders
from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding
from triton_repository_check.graph import Link, ensemble_cycles, graph, is_decoupled
from triton_repository_check.model import Model, Repository
from triton_repository_check.places import Node
from triton_repository_check.rules.base import (
    Checks,
    each_model,
    each_model_expected,
    error,
    instead,
    listed,
    near,
    warning,
)
from triton_repository_check.rules.onnx import possible_batches
from triton_repository_check.rules.source import may_complete_config
from triton_repository_check.schema import DataType, ModelConfig, type_name
from triton_repository_check.server_flags import ServerFlags

CODES = {
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
    "TR419": "ensemble: an optional input is required by a step",
}

_NOT_FOR_ENSEMBLES = ("instance_group", "optimization", "model_warmup")


def shape(_: Repository, model: Model) -> Iterator[Finding]:
    """TR411, TR412, TR417: required fields of an ensemble are missing, or it has fields that aren't allowed."""
    if not model.is_ensemble:
        return
    if model.config.platform != "ensemble":
        yield error(
            model.config_path,
            "TR411",
            'ensemble_scheduling needs platform: "ensemble"',
            'add platform: "ensemble"',
            model.where.find("ensemble_scheduling"),
        )
    elif model.config.backend:
        yield error(
            model.config_path,
            "TR411",
            f"an ensemble can't have a backend: {model.config.backend!r}",
            "remove backend",
            model.where.find("backend"),
        )
    for index, step in enumerate(model.steps):
        for side in ("input_map", "output_map"):
            if not getattr(step, side):
                yield error(
                    model.config_path,
                    "TR417",
                    f"step {index} has no {side}",
                    f'add {side} {{ key: "tensor of the step\'s model" value: "tensor of the ensemble" }}',
                    model.where.find("ensemble_scheduling", 0, "step", index),
                )
    if not model.steps:
        yield error(
            model.config_path,
            "TR411",
            "the ensemble has no steps",
            "add ensemble_scheduling { step [ … ] }",
            model.where.find("ensemble_scheduling"),
        )
    for name in _NOT_FOR_ENSEMBLES:
        if name in model.where.fields:
            yield error(
                model.config_path,
                "TR412",
                f"an ensemble can't have {name}",
                "remove it, and set it in the models of the steps",
                model.where.find(name),
            )


def steps(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR401-TR404, TR413: a step doesn't fit the model that it calls."""
    for index, step in enumerate(model.steps):
        at = model.where.find("ensemble_scheduling", 0, "step", index)
        target = repository.models.get(step.model_name)
        if target is None and placeholders.names(step.model_name, bare=True):
            continue  # config.unfilled reports it
        if target is None:
            close = near(step.model_name, repository.models.keys())
            yield error(
                model.config_path,
                "TR401",
                f"step {index} calls model {step.model_name!r}, which isn't in the repository",
                f"did you mean {close!r}?" if close else "add the model, or correct model_name",
                at.find("model_name"),
            )
            continue
        # A step without model_version requests version 0. -1 is the latest.
        if step.model_version != -1 and step.model_version not in target.served and not target.unread:
            note = "" if step.model_version else " (the default of model_version)"
            hidden = step.model_version in target.versions
            remedies = [f"serve the version by version_policy in {target.config_path}"] if hidden else []
            if target.served:
                remedies.insert(0, f"set model_version to -1 for the latest, or to one of {listed(target.served)}")
            elif not target.versions:
                remedies = [f"add a version directory such as {target.directory}/1"]
            yield error(
                model.config_path,
                "TR413",
                f"step {index} requests version {step.model_version}{note} of {target.name!r}, which isn't served",
                "; or ".join(filter(None, remedies)) or f"correct version_policy in {target.config_path}",
                at.find("model_version"),
            )
        if not may_complete_config(target) and (target.config is not None or not target.has_config):
            yield from _tensors(model, index, step, target, at)


def _tensors(model: Model, index: int, step: object, target: Model, at: Node) -> Iterator[Finding]:
    """Checks the keys of input_map and output_map. Skips tensors that a backend may add."""
    config = ModelConfig() if target.config is None else target.config
    inputs = {tensor.name: tensor for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    input_map, output_map = step.input_map, step.output_map  # type: ignore[attr-defined]
    for code, side, mapped, declared in (
        ("TR402", "input", input_map, set(inputs)),
        ("TR403", "output", output_map, outputs),
    ):
        for own in sorted(mapped) if declared or _nothing_completed(target) else ():
            if own not in declared:
                yield error(
                    model.config_path,
                    code,
                    f"step {index} maps {side} {own!r}, which {target.name!r} doesn't declare",
                    instead(own, declared, f"a declared {side}") if declared else "declare it in that model",
                    at.find(f"{side}_map", own).find("key"),
                )
    for own, tensor in sorted(inputs.items()):
        if own not in input_map and not tensor.optional:
            yield error(
                model.config_path,
                "TR404",
                f"step {index} doesn't map input {own!r} of {target.name!r}",
                "add an input_map for it, or set optional: true for the input in that model",
                at,
            )


def _nothing_completed(target: Model) -> bool:
    """Whether a model has only the tensors of its config.pbtxt: model.py, whose source is known, adds none."""
    has_states = target.config is not None and target.config.sequence_batching.state
    return target.backend == "python" and bool(target.sources) and not has_states


def tensors(_: Repository, model: Model) -> Iterator[Finding]:
    """TR405-TR408, TR410: a tensor of the ensemble isn't written exactly once, or isn't read, or steps form a cycle."""
    if not model.steps:
        return
    net = graph(model)
    produced, consumed = net.produced, net.consumed | net.outputs
    unknown = net.consumed - produced
    for link in net.reads:
        if link.tensor in unknown:
            close = near(link.tensor, produced)
            yield error(
                model.config_path,
                "TR405",
                f"step {link.step} reads tensor {link.tensor!r}, which is neither an input of the ensemble "
                "nor an output of a step",
                f"did you mean {close!r}?" if close else "map a step's output to it, or declare it as an input",
                _at(model, "input_map", link),
            )
    times = Counter(link.tensor for link in net.writes)
    for link in net.writes:
        if times[link.tensor] > 1:
            yield error(
                model.config_path,
                "TR410",
                f"step {link.step} writes tensor {link.tensor!r}, which another step writes too",
                "use a unique tensor name for each step's output",
                _at(model, "output_map", link),
            )
        elif link.tensor not in consumed:
            yield error(
                model.config_path,
                "TR406",
                f"step {link.step} writes tensor {link.tensor!r}, which no step reads and no output uses",
                "remove this output_map, or use the tensor",
                _at(model, "output_map", link),
            )
    written = set(times)
    for side, names, step_tensors, code, text in (
        ("input", net.inputs, net.consumed, "TR406", "is not read by any step"),
        ("output", net.outputs, written, "TR407", "is not written by any step"),
    ):
        declared = [tensor.name for tensor in getattr(model.config, side)]
        for name in sorted(names - step_tensors):
            yield error(
                model.config_path,
                code,
                f"the ensemble's {side} {name!r} {text}",
                f"map it in a step, or remove it from {side}",
                model.where.find(side, declared.index(name)).find("name"),
            )
    if stuck := net.stuck():
        yield error(
            model.config_path,
            "TR408",
            f"steps {listed(stuck)} wait for each other's outputs",
            "remove the cycle: a step can only read outputs of earlier steps",
            model.where.find("ensemble_scheduling", 0, "step", stuck[0]),
        )


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of an ensemble's tensor, by the ensemble or by a step's model.

    - `full`: the dims, with the batch dimension if the model has one.
    """

    data_type: int
    dims: tuple[int, ...]
    full: tuple[int, ...]
    whose: str


def types(repository: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR414, TR415: the declarations of a tensor differ in type or shape.

    Triton reports it after it has loaded all models, by the same comparison (ValidateTensorConsistency in
    core/ensemble_utils.cc).
    """
    if not model.steps:
        return
    earlier: dict[str, Declaration] = {}
    times = Counter(link.tensor for link in graph(model).writes)  # `tensors` reports tensors that are written twice
    for tensor in (*model.config.input, *model.config.output):
        own = _declaration(tensor, model.config.max_batch_size > 0, "the ensemble")
        earlier.setdefault(tensor.name, own)
    for index, step in enumerate(model.steps):
        target = repository.models.get(step.model_name)
        size = _batch(target, expected.flags) if target is not None else None
        if target is None or target.config is None or size is None:
            continue
        for side, mapped in (("input", step.input_map), ("output", step.output_map)):
            declared = {tensor.name: tensor for tensor in getattr(target.config, side)}
            for own, tensor in sorted(mapped.items()):
                if own not in declared or declared[own].data_type == DataType.TYPE_INVALID or times[tensor] > 1:
                    continue
                now = _declaration(declared[own], size > 0, f"{side} {own!r} of {target.name!r}", reshaped=False)
                before = earlier.setdefault(tensor, now)
                at = _at(model, f"{side}_map", Link(index, own, tensor))
                yield from _compare(model, tensor, before, now, at)


def _batch(model: Model, flags: ServerFlags | None) -> int | None:
    """Returns the max_batch_size with which the server runs the model of a step; None if it is unknown."""
    if model.config is None and model.has_config:  # it can't be read
        return None
    if model.backend == "onnxruntime":
        sizes = possible_batches(model, flags)
        return next(iter(sizes)) if len(sizes) == 1 else None
    return int(model.config.max_batch_size) if model.config is not None else None


def _declaration(tensor: Any, batched: bool, whose: str, reshaped: bool = True) -> Declaration:
    dims = tuple(tensor.reshape.shape if reshaped and tensor.HasField("reshape") else tensor.dims)
    return Declaration(tensor.data_type, dims, (-1, *dims) if batched else dims, whose)


def _compare(model: Model, tensor: str, before: Declaration, now: Declaration, at: Node) -> Iterator[Finding]:
    if now.data_type != before.data_type:
        yield error(
            model.config_path,
            "TR414",
            f"the types of tensor {tensor!r} differ: {type_name(before.data_type)} for {before.whose}, "
            f"{type_name(now.data_type)} for {now.whose}",
            "set the same data_type in both",
            at,
        )
    elif before.dims and now.dims and not _match(before.full, now.full) and _match(before.dims, now.dims):
        if model.config.max_batch_size > 1 and len(before.full) != len(now.full):
            yield warning(
                model.config_path,
                "TR416",
                f"only one of {before.whose} and {now.whose} takes batches: requests with more than one element fail",
                "set max_batch_size to 1, or let both models take batches",
                at,
            )
    elif before.dims and now.dims and not (_match(before.dims, now.dims) or _match(before.full, now.full)):
        yield error(
            model.config_path,
            "TR415",
            f"the shapes of tensor {tensor!r} differ: {list(before.full)} for {before.whose}, "
            f"{list(now.full)} for {now.whose}",
            "make the dims equal; -1 matches any size; if max_batch_size is above 0, the first dim is the batch",
            at,
        )


def _match(dims: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(dims) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(dims, other, strict=True))


def batches(repository: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR416: the ensemble accepts larger batches than the model of a step."""
    for index, step in enumerate(model.steps):
        target = repository.models.get(step.model_name)
        size = _batch(target, expected.flags) if target is not None and not may_complete_config(target) else None
        if target is None or size is None:
            continue
        if 0 < size < model.config.max_batch_size:
            written = target.config is not None and target.config.max_batch_size == size
            yield error(
                model.config_path,
                "TR416",
                f"max_batch_size is {model.config.max_batch_size}, but that of {target.name!r} in step {index} "
                f"is only {size}{'' if written else ', to which the server completes it'}",
                f"lower it to {size}, or {'raise that of' if written else 'set it in'} {target.name!r}",
                model.where.find("max_batch_size"),
            )
        if target.config is not None:
            yield from _fixed_batch(model, index, step, target, size)


def _fixed_batch(model: Model, index: int, step: Any, target: Model, size: int) -> Iterator[Finding]:
    """TR416: one of the ensemble and a step takes batches, and the first dim of the other isn't such a batch size."""
    sizes = (model.config.max_batch_size, size)
    given = {tensor.name: tensor for tensor in model.config.input if not tensor.HasField("reshape")}
    for tensor in target.config.input if min(sizes) <= 0 < max(sizes) else ():
        outer = given.get(step.input_map.get(tensor.name, ""))
        if outer is None or abs(len(outer.dims) - len(tensor.dims)) != 1:
            continue
        batched, whole = (outer.dims, tensor.dims) if sizes[0] > 0 else (tensor.dims, outer.dims)
        if whole[0] <= 0 or not _match((-1, *batched), tuple(whole)) or not (whole[0] > max(sizes) or sizes[0] > 1):
            continue
        none = whole[0] > max(sizes)
        yield (error if none and not outer.optional else warning)(
            model.config_path,
            "TR416",
            f"input {outer.name!r} has a fixed batch size, the first dim {whole[0]} in "
            f"{(target if sizes[0] > 0 else model).config_path}, but max_batch_size is {max(sizes)} in "
            f"{(model if sizes[0] > 0 else target).config_path}: "
            + ("each request fails" if none else "requests with another batch size fail"),
            f"set max_batch_size to {whole[0]}, or make the first dim variable (-1)",
            _at(model, "input_map", Link(index, tensor.name, outer.name)),
        )


def optional(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR419: a request may leave out an input that a step needs, and fails then."""
    may_miss = {tensor.name for tensor in model.config.input if tensor.optional} if model.steps else set()
    for link in graph(model).reads if may_miss else ():
        target = repository.models.get(model.steps[link.step].model_name)
        if link.tensor not in may_miss or target is None or target.config is None or may_complete_config(target):
            continue
        if any(tensor.name == link.own and not tensor.optional for tensor in target.config.input):
            yield warning(
                model.config_path,
                "TR419",
                f"input {link.tensor!r} is optional, but not input {link.own!r} of {target.name!r} in step "
                f"{link.step}: requests without it fail",
                f"set optional: true in {target.config_path} too, or remove it here",
                _at(model, "input_map", link),
            )


def branches(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR418: a step joins tensors of different decoupled models, which may send different numbers of responses."""
    if not model.steps:
        return
    net = graph(model)
    needs, makes = _by_step(net.reads), _by_step(net.writes)
    readers: dict[str, list[int]] = {}
    for link in net.reads:
        readers.setdefault(link.tensor, []).append(link.step)
    source = dict.fromkeys(net.inputs, -1)
    queue = list(net.inputs)
    done: set[int] = set()
    while queue:
        for index in readers.get(queue.pop(), ()):
            if index in done or not needs[index] <= source.keys():
                continue
            done.add(index)
            origins = {source[tensor] for tensor in needs[index]}
            if len(origins) > 1:
                yield error(
                    model.config_path,
                    "TR418",
                    f"step {index} reads tensors that come different numbers of times: a decoupled model may send "
                    "any number of responses to one request",
                    "create all of them in one decoupled model, or pass the others through it",
                    model.where.find("ensemble_scheduling", 0, "step", index),
                )
                return
            target = repository.models.get(model.steps[index].model_name)
            decoupled = target is not None and is_decoupled(repository, target)
            origin = index if decoupled else next(iter(origins), -1)
            source.update(dict.fromkeys(makes.get(index, ()), origin))
            queue.extend(makes.get(index, ()))
    sources = {source[tensor] for tensor in net.outputs if tensor in source}
    if len(done) == len(model.steps) and len(sources) > 1:
        yield error(
            model.config_path,
            "TR418",
            "the ensemble's outputs come from different decoupled models, or from one and from a step before it",
            "pass all outputs through one decoupled model",
            model.where.find("output", 0),
        )


def _by_step(links: Sequence[Link]) -> dict[int, set[str]]:
    """Returns the ensemble's tensors in `links`, by step."""
    names: dict[int, set[str]] = {}
    for link in links:
        names.setdefault(link.step, set()).add(link.tensor)
    return names


def nested_in_itself(repository: Repository, _: Expected) -> Iterator[Finding]:
    """TR409: ensembles contain each other."""
    for ring in ensemble_cycles(repository):
        first = repository.models[ring[0]]
        follower = ring[1] if len(ring) > 1 else ring[0]
        index = next(i for i, step in enumerate(first.steps) if step.model_name == follower)
        yield error(
            first.config_path,
            "TR409",
            f"the ensemble contains itself: {' → '.join((*ring, ring[0]))}",
            "remove one of these steps",
            first.where.find("ensemble_scheduling", 0, "step", index).find("model_name"),
        )


def _at(model: Model, side: str, link: Link) -> Node:
    return model.where.find("ensemble_scheduling", 0, "step", link.step, side, link.own).find("value")


CHECKS: Checks = (
    ("ensemble: shape", each_model(shape)),
    ("ensemble: steps", each_model(steps)),
    ("ensemble: tensors", each_model(tensors)),
    ("ensemble: types and shapes", each_model_expected(types)),
    ("ensemble: batches", each_model_expected(batches)),
    ("ensemble: optional inputs", each_model(optional)),
    ("ensemble: decoupled branches", each_model(branches)),
    ("ensemble: cycles", nested_in_itself),
)
