"""What an ensemble connects. Triton says the same, without the place, and one fault a start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from triton_operator.repository.findings import Finding
from triton_operator.repository.graph import Link, graph, rings
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.places import Node
from triton_operator.repository.rules.base import Expected, error
from triton_operator.repository.rules.source import completes_itself
from triton_operator.repository.schema import DataType

_NOT_FOR_ENSEMBLES = ("instance_group", "optimization", "model_warmup")


def shape(_: Repository, model: Model) -> Iterator[Finding]:
    """TR411, TR412: what an ensemble must have, and may not."""
    if not model.is_ensemble:
        return
    if model.config.platform != "ensemble":
        yield error(
            model.config_path,
            "TR411",
            'ensemble_scheduling without platform: "ensemble"',
            'add platform: "ensemble"',
            model.where.find("ensemble_scheduling"),
        )
    if not model.steps:
        yield error(
            model.config_path,
            "TR411",
            "an ensemble without a step",
            "add ensemble_scheduling { step [ … ] }",
            model.where.find("ensemble_scheduling"),
        )
    for name in _NOT_FOR_ENSEMBLES:
        if name in model.where.fields:
            yield error(
                model.config_path,
                "TR412",
                f"an ensemble takes no {name}",
                "set it in the models of its steps",
                model.where.find(name),
            )


def steps(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR401-TR404, TR413: each step against the model that it calls."""
    for index, step in enumerate(model.steps):
        at = model.where.find("ensemble_scheduling", 0, "step", index)
        target = repository.models.get(step.model_name)
        if target is None:
            near = next(iter(get_close_matches(step.model_name, repository.models, 1)), "")
            yield error(
                model.config_path,
                "TR401",
                f"step {index} calls model {step.model_name!r}, which the repository doesn't hold",
                f"did you mean {near!r}?" if near else "add the model, or correct model_name",
                at.find("model_name"),
            )
            continue
        # 0 is what a step without model_version has; Triton reads it as a version. -1 is the latest.
        if step.model_version > 0 and step.model_version not in target.served:
            yield error(
                model.config_path,
                "TR413",
                f"step {index} wants version {step.model_version} of {target.name!r}, which isn't served",
                f"use -1, or one of {', '.join(map(str, target.served)) or 'none'}",
                at.find("model_version"),
            )
        if target.config is not None and not completes_itself(target):
            yield from _tensors(model, index, step, target, at)


def _tensors(model: Model, index: int, step: object, target: Model, at: Node) -> Iterator[Finding]:
    """The names on the left of input_map and output_map; what a backend may complete isn't judged."""
    inputs = {tensor.name: tensor for tensor in target.config.input}
    outputs = {tensor.name for tensor in target.config.output}
    given, taken = step.input_map, step.output_map  # type: ignore[attr-defined]
    for code, side, mapped, declared in (
        ("TR402", "input", given, set(inputs)),
        ("TR403", "output", taken, outputs),
    ):
        for own in sorted(mapped) if declared else ():
            if own not in declared:
                yield error(
                    model.config_path,
                    code,
                    f"step {index} maps {side} {own!r}, which {target.name!r} doesn't declare",
                    f"it declares: {', '.join(sorted(declared))}",
                    at.find(f"{side}_map", own).find("key"),
                )
    for own, tensor in sorted(inputs.items()):
        if own not in given and not tensor.optional:
            yield error(
                model.config_path,
                "TR404",
                f"step {index} leaves out input {own!r} of {target.name!r}",
                "add an input_map for it, or declare it optional: true in that model",
                at,
            )


def tensors(_: Repository, model: Model) -> Iterator[Finding]:
    """TR405-TR408, TR410: the ensemble's own tensors: each written once, and read."""
    if not model.steps:
        return
    net = graph(model)
    unknown = net.consumed - net.produced
    for link in net.reads:
        if link.tensor in unknown:
            near = next(iter(get_close_matches(link.tensor, net.produced, 1)), "")
            yield error(
                model.config_path,
                "TR405",
                f"step {link.step} reads tensor {link.tensor!r}, which neither a step nor the request brings",
                f"did you mean {near!r}?" if near else "map a step's output to it, or declare it as an input",
                _at(model, "input_map", link),
            )
    times = Counter(link.tensor for link in net.writes)
    for link in net.writes:
        if times[link.tensor] > 1:
            yield error(
                model.config_path,
                "TR410",
                f"step {link.step} writes tensor {link.tensor!r}, which another step writes too",
                "give each step's output a name of its own",
                _at(model, "output_map", link),
            )
        elif link.tensor not in net.consumed | net.wanted:
            yield error(
                model.config_path,
                "TR406",
                f"step {link.step} writes tensor {link.tensor!r}, which nobody reads",
                "take this output_map out, or use the tensor",
                _at(model, "output_map", link),
            )
    written = set(times)
    for side, names, known, code, text in (
        ("input", net.given, net.consumed, "TR406", "is read by no step"),
        ("output", net.wanted, written, "TR407", "is written by no step"),
    ):
        declared = [tensor.name for tensor in getattr(model.config, side)]
        for name in sorted(names - known):
            yield error(
                model.config_path,
                code,
                f"the ensemble's {side} {name!r} {text}",
                f"map it in a step, or take it out of {side}",
                model.where.find(side, declared.index(name)).find("name"),
            )
    if stuck := net.stuck():
        yield error(
            model.config_path,
            "TR408",
            f"steps {', '.join(map(str, stuck))} wait for each other's outputs",
            "break the circle: a step can only read what an earlier one writes",
            model.where.find("ensemble_scheduling", 0, "step", stuck[0]),
        )


def types(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR414: a tensor is one type for who writes it and another for who reads it. Triton tells once all is loaded."""
    if not model.steps:
        return
    said = {tensor.name: (tensor.data_type, "the ensemble") for tensor in (*model.config.input, *model.config.output)}
    for index, step in enumerate(model.steps):
        target = repository.models.get(step.model_name)
        if target is None or target.config is None:
            continue
        for side, mapped in (("input", step.input_map), ("output", step.output_map)):
            declared = {tensor.name: tensor.data_type for tensor in getattr(target.config, side)}
            for own, tensor in sorted(mapped.items()):
                kind = declared.get(own, DataType.TYPE_INVALID)
                if kind == DataType.TYPE_INVALID:
                    continue
                before, whose = said.setdefault(tensor, (kind, f"{target.name!r}"))
                if kind != before:
                    yield error(
                        model.config_path,
                        "TR414",
                        f"tensor {tensor!r} is {DataType.Name(before)} for {whose}, "
                        f"and {DataType.Name(kind)} for {side} {own!r} of {target.name!r}",
                        "make the types equal",
                        _at(model, f"{side}_map", Link(index, own, tensor)),
                    )


def circles(repository: Repository, _: Expected) -> Iterator[Finding]:
    """TR409: ensembles that contain one another."""
    for ring in rings(repository):
        first = repository.models[ring[0]]
        follower = ring[1] if len(ring) > 1 else ring[0]
        index = next(i for i, step in enumerate(first.steps) if step.model_name == follower)
        yield error(
            first.config_path,
            "TR409",
            f"the ensemble contains itself: {' → '.join((*ring, ring[0]))}",
            "take one of these steps out",
            first.where.find("ensemble_scheduling", 0, "step", index).find("model_name"),
        )


def _at(model: Model, side: str, link: Link) -> Node:
    return model.where.find("ensemble_scheduling", 0, "step", link.step, side, link.own).find("value")
