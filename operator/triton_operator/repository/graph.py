"""What an ensemble connects, and which model clients call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from triton_operator.repository.model import Model, Repository


class EntrypointError(LookupError):
    """No model can be told to be the entrypoint; the text names the candidates and the field to set."""


@dataclass(frozen=True, slots=True)
class Link:
    """One line of a step's map: the step's own tensor, and the ensemble's tensor it is tied to."""

    step: int
    own: str
    tensor: str


@dataclass(frozen=True)
class Graph:
    """An ensemble's tensors: who writes and who reads them."""

    given: frozenset[str]
    """The ensemble's declared inputs."""
    wanted: frozenset[str]
    """Its declared outputs."""
    reads: tuple[Link, ...]
    writes: tuple[Link, ...]

    @property
    def produced(self) -> frozenset[str]:
        """Tensors that the request or a step brings."""
        return self.given | {link.tensor for link in self.writes}

    @property
    def consumed(self) -> frozenset[str]:
        """Tensors that a step takes."""
        return frozenset(link.tensor for link in self.reads)

    def stuck(self) -> tuple[int, ...]:
        """Steps, ascending, that can never start though each of their inputs is produced by someone: they wait for
        one another, or for those that do."""
        waiting: dict[int, set[str]] = {link.step: set() for link in (*self.reads, *self.writes)}
        readers: dict[str, set[int]] = {}
        makes: dict[int, set[str]] = {}
        for link in self.reads:
            waiting[link.step].add(link.tensor)
            readers.setdefault(link.tensor, set()).add(link.step)
        for link in self.writes:
            makes.setdefault(link.step, set()).add(link.tensor)
        # What nobody produces is a fault of its own; taken as there, it doesn't show as a cycle too.
        there = [*self.given, *(self.consumed - self.produced)]
        runnable = [step for step, needs in waiting.items() if not needs]
        while there or runnable:
            while runnable:
                del waiting[step := runnable.pop()]
                there.extend(makes.get(step, ()))
            while there:
                tensor = there.pop()
                for step in readers.pop(tensor, ()):
                    waiting[step].discard(tensor)
                    if not waiting[step]:
                        runnable.append(step)
        return tuple(sorted(waiting))


def graph(ensemble: Model) -> Graph:
    """The tensors of `ensemble`, by its own config.pbtxt alone; empty for any other model."""
    config = ensemble.config
    return Graph(
        given=frozenset(t.name for t in config.input) if config is not None else frozenset(),
        wanted=frozenset(t.name for t in config.output) if config is not None else frozenset(),
        reads=tuple(Link(i, k, v) for i, step in enumerate(ensemble.steps) for k, v in step.input_map.items()),
        writes=tuple(Link(i, k, v) for i, step in enumerate(ensemble.steps) for k, v in step.output_map.items()),
    )


def parts(repository: Repository, name: str) -> frozenset[str]:
    """The names of all models that a request to `name` passes through, itself included, missing ones too."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            model = repository.models.get(current)
            todo.extend(step.model_name for step in (model.steps if model else ()))
    return frozenset(seen)


def loaded(repository: Repository, load_models: Collection[str]) -> frozenset[str]:
    """The names of what Triton loads at start: `load_models` (spec.server.loadModels) and all their parts; where that
    is empty, every model of the repository."""
    if not load_models:
        return frozenset(repository.models)
    return frozenset().union(*(parts(repository, name) for name in load_models))


def rings(repository: Repository) -> Iterator[tuple[str, ...]]:
    """Ensembles that contain one another, each ring once, from its alphabetically first member."""
    for name in sorted(repository.models):
        if (ring := _way_back(repository, name)) and min(ring) == name:
            yield ring


def _way_back(repository: Repository, start: str) -> tuple[str, ...]:
    """The shortest chain of steps from `start` to itself; empty where there is none."""
    chains: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while chains:
        chain = chains.pop(0)
        model = repository.models.get(chain[-1])
        for step in model.steps if model else ():
            if step.model_name == start:
                return chain
            if step.model_name not in seen:
                seen.add(step.model_name)
                chains.append((*chain, step.model_name))
    return ()


def entrypoint(repository: Repository, wanted: str | None, loaded: Collection[str] = ()) -> str:
    """The model that clients call: `wanted`, or else the only ensemble, or else the only model.

    `loaded` narrows the choice to what is loaded at start (spec.server.loadModels); empty means all. An ensemble that
    is a step of another one is no candidate. Raises EntrypointError where `wanted` isn't in the repository, and where
    there is no single candidate.
    """
    if wanted is not None:
        if wanted in repository.models:
            return wanted
        raise EntrypointError(
            f"spec.entrypoint names {wanted!r}, which the repository doesn't hold; it has {_listed(repository.models)}"
        )
    models = [m for name, m in repository.models.items() if not loaded or name in loaded]
    inner = {step.model_name for model in models for step in model.steps}
    ensembles = [model.name for model in models if model.is_ensemble and model.name not in inner]
    candidates = ensembles or [model.name for model in models]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise EntrypointError("the repository holds no model that spec.entrypoint could name")
    kind = "ensembles" if ensembles else "models, and no ensemble"
    raise EntrypointError(
        f"the repository holds {len(candidates)} {kind}: set spec.entrypoint to one of {_listed(candidates)}"
    )


def _listed(names: Iterable[str], most: int = 10) -> str:
    """`a, b and 3 more`: a few names, for a sentence."""
    known = sorted(names)
    text = ", ".join(known[:most]) or "no model"
    return text + (f" and {len(known) - most} more" if len(known) > most else "")
