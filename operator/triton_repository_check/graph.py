"""The tensor graph of an ensemble, and the entrypoint of a repository."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from triton_repository_check.model import Model, Repository

Node = TypeVar("Node", bound=Hashable)


class EntrypointError(LookupError):
    """The entrypoint is missing or ambiguous. The message names the candidates and the field to set."""


@dataclass(frozen=True, slots=True)
class Link:
    """One entry of a step's input_map or output_map: the tensor of the step's model, and the ensemble's tensor."""

    step: int
    own: str
    tensor: str


@dataclass(frozen=True)
class Graph:
    """An ensemble's tensors, and the steps that write and read them.

    - `inputs`: the ensemble's declared inputs.
    - `outputs`: its declared outputs.
    """

    inputs: frozenset[str]
    outputs: frozenset[str]
    reads: tuple[Link, ...]
    writes: tuple[Link, ...]

    @property
    def produced(self) -> frozenset[str]:
        """Tensors that the request or a step provides."""
        return self.inputs | {link.tensor for link in self.writes}

    @property
    def consumed(self) -> frozenset[str]:
        """Tensors that a step reads."""
        return frozenset(link.tensor for link in self.reads)

    def stuck(self) -> tuple[int, ...]:
        """Returns the steps, ascending, that can never run because of a cycle: members, and steps that wait for them.

        Ignores inputs that no step produces.
        """
        waiting: dict[int, set[str]] = {link.step: set() for link in (*self.reads, *self.writes)}
        readers: dict[str, set[int]] = {}
        makes: dict[int, set[str]] = {}
        for link in self.reads:
            waiting[link.step].add(link.tensor)
            readers.setdefault(link.tensor, set()).add(link.step)
        for link in self.writes:
            makes.setdefault(link.step, set()).add(link.tensor)
        # TR405 reports tensors that no step produces. Treat them as available so that they don't look like a cycle.
        tensors = [*self.inputs, *(self.consumed - self.produced)]
        runnable = [step for step, needs in waiting.items() if not needs]
        while tensors or runnable:
            while runnable:
                del waiting[step := runnable.pop()]
                tensors.extend(makes.get(step, ()))
            while tensors:
                tensor = tensors.pop()
                for step in readers.pop(tensor, ()):
                    waiting[step].discard(tensor)
                    if not waiting[step]:
                        runnable.append(step)
        return tuple(sorted(waiting))


def graph(ensemble: Model) -> Graph:
    """Returns the tensors of `ensemble` from its own config.pbtxt. Models that aren't ensembles have no links."""
    config = ensemble.config
    return Graph(
        inputs=frozenset(t.name for t in config.input) if config is not None else frozenset(),
        outputs=frozenset(t.name for t in config.output) if config is not None else frozenset(),
        reads=tuple(Link(i, k, v) for i, step in enumerate(ensemble.steps) for k, v in step.input_map.items()),
        writes=tuple(Link(i, k, v) for i, step in enumerate(ensemble.steps) for k, v in step.output_map.items()),
    )


def parts(repository: Repository, name: str) -> frozenset[str]:
    """Returns the names of all models that a request to `name` uses, including `name` and missing models."""
    names: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop()
        if current not in names:
            names.add(current)
            model = repository.models.get(current)
            todo.extend(step.model_name for step in (model.steps if model else ()))
    return frozenset(names)


def loaded(repository: Repository, load_models: Collection[str]) -> frozenset[str]:
    """Returns the names of the models that Triton loads at start.

    These are `load_models` (spec.server.loadModels) and all models of their steps. If it is empty, Triton loads every
    model of the repository.
    """
    if not load_models:
        return frozenset(repository.models)
    return frozenset().union(*(parts(repository, name) for name in load_models))


def ensemble_cycles(repository: Repository) -> Iterator[tuple[str, ...]]:
    """Returns the cycles of ensembles that contain each other, each from its alphabetically first member.

    Of cycles that share an ensemble, or lead to each other, only one.
    """
    edges = {name: [step.model_name for step in model.steps] for name, model in repository.models.items()}
    members: dict[int, list[str]] = {}
    for name, number in components(edges).items():
        members.setdefault(number, []).append(name)
    for first in sorted(map(min, members.values())):
        if ring := way(edges, first, first):
            yield ring[:-1]


def components(edges: Mapping[Node, Collection[Node]]) -> dict[Node, int]:
    """Returns the number of each node's strongly connected component, in linear time (Kosaraju's algorithm).

    Two nodes of a component reach each other. `edges`: node → the nodes that follow it.
    """
    before: dict[Node, list[Node]] = {node: [] for node in edges}
    for node, followers in edges.items():
        for follower in before.keys() & followers:
            before[follower].append(node)
    numbers: dict[Node, int] = {}
    for number, start in enumerate(reversed(_by_end(edges))):
        ahead = [start]
        while ahead:
            node = ahead.pop()
            if node not in numbers:
                numbers[node] = number
                ahead += before[node]
    return numbers


def _by_end(edges: Mapping[Node, Collection[Node]]) -> list[Node]:
    """Returns the nodes in the order in which a depth-first search leaves them."""
    order: list[Node] = []
    seen: set[Node] = set()
    for start in edges:
        ways = [] if start in seen else [(start, iter(edges[start]))]
        seen.add(start)
        while ways:
            ahead = next((node for node in ways[-1][1] if node in edges and node not in seen), None)
            if ahead is None:
                order.append(ways.pop()[0])
            else:
                seen.add(ahead)
                ways.append((ahead, iter(edges[ahead])))
    return order


def way(edges: Mapping[Node, Collection[Node]], start: Node, end: Node) -> tuple[Node, ...]:
    """Returns the shortest way from `start` to `end`, both included, with one step at least; empty if there is none."""
    before: dict[Node, Node] = {}
    ahead = deque([start])
    while ahead and end not in before:
        node = ahead.popleft()
        for follower in edges.get(node, ()):
            if follower not in before:
                before[follower] = node
                ahead.append(follower)
    if end not in before:
        return ()
    path = [end, before[end]]
    while path[-1] != start:
        path.append(before[path[-1]])
    return tuple(reversed(path))


def entrypoint(repository: Repository, choice: str | None, loaded: Collection[str] = ()) -> str:
    """Returns the model that clients call: `choice`, else the only ensemble, else the only model.

    `loaded` restricts the candidates to these models (spec.server.loadModels); empty means all models. An ensemble
    that is a step of another one isn't a candidate. Raises EntrypointError if `choice` isn't in the repository, or if
    there isn't exactly one candidate.
    """
    if choice is not None:
        if choice in repository.models:
            return choice
        raise EntrypointError(
            f"spec.entrypoint names {choice!r}, which isn't in the repository; it contains {_listed(repository.models)}"
        )
    models = [m for name, m in repository.models.items() if (not loaded or name in loaded) and m.looks_like_model()]
    inner = {step.model_name for model in models for step in model.steps}
    ensembles = [model.name for model in models if model.is_ensemble and model.name not in inner]
    candidates = ensembles or [model.name for model in models]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise EntrypointError("the repository contains no model for spec.entrypoint")
    kind = "ensembles" if ensembles else "models and no ensemble"
    raise EntrypointError(
        f"the repository contains {len(candidates)} {kind}: set spec.entrypoint to one of {_listed(candidates)}"
    )


def _listed(names: Iterable[str], limit: int = 10) -> str:
    """Returns the first names as text for a message: `a, b and 3 more`."""
    words = sorted(names)
    text = ", ".join(words[:limit]) or "no model"
    return text + (f" and {len(words) - limit} more" if len(words) > limit else "")


def is_decoupled(repository: Repository, model: Model) -> bool:
    """Whether the model may send several responses to a request. An ensemble may if the model of a step may."""
    ahead, seen = [model], {model.name}
    while ahead:
        part = ahead.pop()
        if part.is_decoupled:
            return True
        names = {step.model_name for step in part.steps} - seen
        seen |= names
        ahead += [repository.models[name] for name in names if name in repository.models]
    return False
