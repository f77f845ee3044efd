"""Which parts must be made, in which order, and how long that will take. Pure: no clock, no processes."""

from __future__ import annotations

import functools
import graphlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .part import Part, Recipe, Source

# More at a time than cores: many parts wait for a network or a disk.
AT_ONCE = 3


@dataclass(frozen=True)
class Step:
    """A part with the recipe that its source has for it."""

    part: Part
    recipe: Recipe

    @property
    def name(self) -> str:
        return self.part.name


def closure(goals: Iterable[str], parts: Mapping[str, Part], source: Source) -> dict[str, Step]:
    """The goals and everything they need, each after what it needs. ValueError where parts need one another."""
    found: dict[str, Step] = {}
    pending = list(goals)
    while pending:
        part = parts[pending.pop()]
        recipe = part.recipe(source)
        if part.name not in found and recipe is not None:
            found[part.name] = Step(part, recipe)
            pending.extend(recipe.needs)
    try:
        order = list(graphlib.TopologicalSorter({n: needs(step, found) for n, step in found.items()}).static_order())
    except graphlib.CycleError as error:
        raise ValueError(f"parts need one another: {' → '.join(error.args[1])}") from None
    return {name: found[name] for name in order}


def needs(step: Step, among: Collection[str]) -> set[str]:
    """What it needs of these parts."""
    return {name for name in step.recipe.needs if name in among}


def chain(steps: Mapping[str, Step]) -> dict[str, int]:
    """For each part the seconds from its start to the end of all that waits for it."""
    waiting: dict[str, list[str]] = {name: [] for name in steps}
    for name, step in steps.items():
        for need in needs(step, steps):
            waiting[need].append(name)

    @functools.cache
    def seconds(name: str) -> int:
        return steps[name].recipe.seconds + max((seconds(other) for other in waiting[name]), default=0)

    return {name: seconds(name) for name in steps}


def startable(todo: Mapping[str, Step], running: Collection[str], steps: Mapping[str, Step]) -> list[str]:
    """Which parts to start now: those with the longest chain behind them first.

    `todo` are the parts that are not done, with those that run among them; `steps` are all.
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
    """Seconds until all is made, roughly: by the longest chain, or by the work that two cores can do.

    `running` has for each running part the seconds since its start.
    """
    left = {n: max(s.recipe.seconds - running.get(n, 0.0), 2.0) for n, s in todo.items()}
    spent = {n: s.recipe.seconds - left[n] for n, s in todo.items()}
    longest = max((seconds - spent[n] for n, seconds in chain(todo).items()), default=0.0)
    compiling = sum(seconds for n, seconds in left.items() if todo[n].recipe.compiles)
    others = sum(left.values()) - compiling
    return max(longest, compiling + others / 2)
