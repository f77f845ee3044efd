"""Plans which parts to make, in which order, and estimates the duration. Pure functions: no clock, no processes."""

from __future__ import annotations

import functools
import graphlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .part import Part, Recipe, Source

# More than the number of cores: many parts wait for the network or the disk.
AT_ONCE = 3


@dataclass(frozen=True)
class Step:
    """A part and its recipe for the chosen source."""

    part: Part
    recipe: Recipe

    @property
    def name(self) -> str:
        return self.part.name


def closure(goals: Iterable[str], parts: Mapping[str, Part], source: Source) -> dict[str, Step]:
    """Returns the goals and all that they need, dependencies first. Raises ValueError if parts need each other."""
    steps: dict[str, Step] = {}
    pending = list(goals)
    while pending:
        part = parts[pending.pop()]
        recipe = part.recipe(source)
        if part.name not in steps and recipe is not None:
            steps[part.name] = Step(part, recipe)
            pending.extend(recipe.needs)
    try:
        order = list(graphlib.TopologicalSorter({n: needs(step, steps) for n, step in steps.items()}).static_order())
    except graphlib.CycleError as error:
        raise ValueError(f"parts need each other: {' → '.join(error.args[1])}") from None
    return {name: steps[name] for name in order}


def needs(step: Step, among: Collection[str]) -> set[str]:
    """Returns the direct dependencies of the step that are in `among`."""
    return {name for name in step.recipe.needs if name in among}


def chain(steps: Mapping[str, Step]) -> dict[str, int]:
    """Returns, for each part, the seconds from its start to the end of the last part that depends on it."""
    waiting: dict[str, list[str]] = {name: [] for name in steps}
    for name, step in steps.items():
        for need in needs(step, steps):
            waiting[need].append(name)

    @functools.cache
    def seconds(name: str) -> int:
        return steps[name].recipe.seconds + max((seconds(other) for other in waiting[name]), default=0)

    return {name: seconds(name) for name in steps}


def startable(todo: Mapping[str, Step], running: Collection[str], steps: Mapping[str, Step]) -> list[str]:
    """Returns the parts to start now, those with the longest chain of dependents first.

    `todo` are the parts that aren't done, including the running ones; `steps` are all parts.
    """
    chains = chain(steps)
    compiling = any(steps[name].recipe.compiles for name in running)
    free = AT_ONCE - len(running)
    chosen: list[str] = []
    for name in sorted(todo, key=lambda name: -chains[name]):
        if len(chosen) >= free:
            break
        compiles = todo[name].recipe.compiles
        if name in running or needs(todo[name], todo) or (compiles and compiling):
            continue
        compiling = compiling or compiles
        chosen.append(name)
    return chosen


def forecast(todo: Mapping[str, Step], running: Mapping[str, float]) -> float:
    """Returns an estimate of the seconds until all parts are made, from the longest chain and the work of two cores.

    `running` maps each running part to the seconds since its start.
    """
    left = {n: max(s.recipe.seconds - running.get(n, 0.0), 2.0) for n, s in todo.items()}
    spent = {n: s.recipe.seconds - left[n] for n, s in todo.items()}
    longest = max((seconds - spent[n] for n, seconds in chain(todo).items()), default=0.0)
    compiling = sum(seconds for n, seconds in left.items() if todo[n].recipe.compiles)
    others = sum(left.values()) - compiling
    return max(longest, compiling + others / 2)
