"""Which parts are made, and in which order."""

from __future__ import annotations

import pytest

from hack.world import schedule
from hack.world.part import Part, Recipe
from hack.world.parts import ALL, GOALS


def recipe(*needs: str, seconds: int = 10, compiles: bool = False) -> Recipe:
    return Recipe(made_from="thin air", make=lambda job: None, seconds=seconds, needs=needs, compiles=compiles)


def world(**recipes: Recipe) -> dict[str, Part]:
    return {name: Part(name, name, "", registry=None, packages=made) for name, made in recipes.items()}


@pytest.mark.parametrize("source", ["registry", "packages"])
@pytest.mark.parametrize("goal", sorted(GOALS))
def test_every_goal_can_be_ordered(goal: str, source: schedule.Source) -> None:
    order = list(schedule.closure(GOALS[goal], ALL, source))
    steps = schedule.closure(GOALS[goal], ALL, source)
    for name, step in steps.items():
        assert all(order.index(need) < order.index(name) for need in schedule.needs(step, steps))


@pytest.mark.parametrize("source", ["registry", "packages"])
def test_every_need_names_a_part(source: schedule.Source) -> None:
    recipes = [part.recipe(source) for part in ALL.values()]
    assert {need for found in recipes if found for need in found.needs} <= ALL.keys()


def test_the_demo_builds_no_prometheus() -> None:
    names = schedule.closure(GOALS["demo"], ALL, "packages").keys()
    assert not [name for name in names if "prometheus" in name or "adapter" in name or "keda" in name]


def test_the_registry_world_compiles_nothing() -> None:
    for goal in GOALS.values():
        steps = schedule.closure(goal, ALL, "registry")
        assert not [name for name, step in steps.items() if step.recipe.compiles]


def test_parts_that_need_one_another_are_told() -> None:
    with pytest.raises(ValueError, match="need one another"):
        schedule.closure(["a"], world(a=recipe("b"), b=recipe("a")), "packages")


def test_the_longest_chain_starts_first_and_one_compiler_runs() -> None:
    steps = schedule.closure(
        ["end", "small"],
        world(end=recipe("long"), long=recipe(seconds=60, compiles=True), small=recipe(seconds=5, compiles=True)),
        "packages",
    )
    assert schedule.startable(steps, [], steps) == ["long"]
    assert schedule.startable({n: s for n, s in steps.items() if n != "long"}, [], steps) == ["end", "small"]


def test_what_waits_for_a_running_part_does_not_start() -> None:
    steps = schedule.closure(["b"], world(a=recipe(), b=recipe("a")), "packages")
    assert schedule.startable(steps, ["a"], steps) == []


def test_the_forecast_is_never_shorter_than_the_longest_chain() -> None:
    steps = schedule.closure(["c"], world(a=recipe(seconds=30), b=recipe("a", seconds=20), c=recipe("b")), "packages")
    assert schedule.forecast(steps, {}) == 60
    assert schedule.forecast(steps, {"a": 25.0}) == 35
