"""The selection and the order of the parts to make."""

from __future__ import annotations

import pytest

from hack.world import schedule
from hack.world.part import Part, Recipe
from hack.world.parts import ALL, GOALS


def recipe(*needs: str, seconds: int = 10, compiles: bool = False) -> Recipe:
    return Recipe(made_from="nothing", make=lambda job: None, seconds=seconds, needs=needs, compiles=compiles)


def parts(**recipes: Recipe) -> dict[str, Part]:
    return {name: Part(name, name, "", registry=None, packages=packages) for name, packages in recipes.items()}


@pytest.mark.parametrize("source", ["registry", "packages"])
@pytest.mark.parametrize("goal", sorted(GOALS))
def test_orders_dependencies_first_for_every_goal(goal: str, source: schedule.Source) -> None:
    order = list(schedule.closure(GOALS[goal], ALL, source))
    steps = schedule.closure(GOALS[goal], ALL, source)
    for name, step in steps.items():
        assert all(order.index(need) < order.index(name) for need in schedule.needs(step, steps))


@pytest.mark.parametrize("source", ["registry", "packages"])
def test_every_dependency_is_a_known_part(source: schedule.Source) -> None:
    recipes = [part.recipe(source) for part in ALL.values()]
    assert {need for recipe in recipes if recipe for need in recipe.needs} <= ALL.keys()


def test_the_demo_needs_no_monitoring_and_no_keda() -> None:
    names = schedule.closure(GOALS["demo"], ALL, "packages").keys()
    assert not [name for name in names if "prometheus" in name or "adapter" in name or "keda" in name]


def test_the_registry_source_compiles_nothing() -> None:
    for goal in GOALS.values():
        steps = schedule.closure(goal, ALL, "registry")
        assert not [name for name, step in steps.items() if step.recipe.compiles]


def test_rejects_parts_that_need_each_other() -> None:
    with pytest.raises(ValueError, match="need each other"):
        schedule.closure(["a"], parts(a=recipe("b"), b=recipe("a")), "packages")


def test_starts_the_longest_chain_first_and_only_one_compiler() -> None:
    steps = schedule.closure(
        ["end", "small"],
        parts(end=recipe("long"), long=recipe(seconds=60, compiles=True), small=recipe(seconds=5, compiles=True)),
        "packages",
    )
    assert schedule.startable(steps, [], steps) == ["long"]
    assert schedule.startable({n: s for n, s in steps.items() if n != "long"}, [], steps) == ["end", "small"]


def test_does_not_start_a_part_before_its_dependency_is_done() -> None:
    steps = schedule.closure(["b"], parts(a=recipe(), b=recipe("a")), "packages")
    assert schedule.startable(steps, ["a"], steps) == []


def test_estimates_at_least_the_duration_of_the_longest_chain() -> None:
    steps = schedule.closure(["c"], parts(a=recipe(seconds=30), b=recipe("a", seconds=20), c=recipe("b")), "packages")
    assert schedule.forecast(steps, {}) == 60
    assert schedule.forecast(steps, {"a": 25.0}) == 35
