"""The budget of series of a namespace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from support import gen
from triton_operator.api.servers import IndexEntry
from triton_operator.api.status import MONITORING_AVAILABLE, TOO_MANY_SERIES, Condition, ModelStatus, TritonModelStatus
from triton_operator.reconcile.series import SeriesBudget
from triton_operator.render.choices import Choices
from triton_operator.render.pod_monitor import pod_monitor
from triton_operator.render.series import samples
from triton_operator.status.observation import Listed

CHOICES = Choices("operator:1", "Copy")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 6, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)


def reported(*models: str) -> TritonModelStatus:
    return TritonModelStatus(models=[ModelStatus(name=m, version="1", state="READY", pods="1/1") for m in models])


def many(number: int, first: int = 0) -> list[str]:
    return [f"m{n}" for n in range(first, first + number)]


def ask(
    budget: SeriesBudget, *models: str, name: str = "a", monitor: Any = None, choices: Choices = CHOICES, **spec: Any
) -> Listed:
    model = gen.model(gen.put("metadata.name", name), entrypoint="all", **spec)
    return budget.choose(model, choices, reported(*models), {}, monitor)


def test_new_models_are_listed_after_half_a_minute_at_most() -> None:
    clock = Clock()
    budget = SeriesBudget(10_000, clock)
    assert ask(budget).pairs == (("all", "1"), ("all", "2"))
    first = ask(budget, "all", "net")
    assert ("net", "1") in first.pairs
    clock.later(seconds=10)
    held = ask(budget, "all", "net", "new")
    assert (held.pairs, held.missing, held.again) == (first.pairs, 0, 20)
    clock.later(seconds=20)
    assert ("new", "1") in ask(budget, "all", "net", "new").pairs


def test_a_restart_of_the_operator_changes_no_list() -> None:
    clock = Clock()
    wanted = ["all", *many(20)]
    before = ask(SeriesBudget(10_000, clock), *wanted)
    monitor = pod_monitor(gen.model(), Choices("operator:1", "Copy", series=before.pairs))
    restarted = SeriesBudget(10_000, clock)
    assert ask(restarted, monitor=monitor) == Listed(before.pairs)
    clock.later(hours=1)
    assert ask(restarted, *wanted, monitor=monitor) == before


def test_an_upgrade_lists_all_known_models_at_once() -> None:
    monitor = pod_monitor(gen.model(), CHOICES)
    monitor["spec"]["podMetricsEndpoints"][0]["metricRelabelings"] = []
    assert len(ask(SeriesBudget(10_000, Clock()), "all", *many(20), monitor=monitor).pairs) == 22


def test_the_sum_of_a_namespace_stays_within_the_budget() -> None:
    clock = Clock()
    budget = SeriesBudget(10_000, clock)
    found: dict[str, Listed] = {}
    for _ in range(3):
        for number in range(60):
            found[f"t{number}"] = ask(budget, *many(1900), name=f"t{number}")
            clock.later(seconds=1)
    model = gen.model()
    assert sum(samples(model, len(listed.pairs)) for listed in found.values()) <= 60 * samples(model, 3) + 10_000
    assert all(("all", "1") in listed.pairs and listed.missing for listed in found.values())
    sizes = {len(listed.pairs) for listed in found.values()}
    assert max(sizes) - min(sizes) <= 1, "the TritonModels have equal shares"


def test_a_large_tritonmodel_gives_room_to_a_new_one() -> None:
    clock = Clock()
    budget = SeriesBudget(10_000, clock)
    alone = ask(budget, *many(1900), name="large")
    assert alone.missing > 1000
    new = ask(budget, "all", *many(50), name="new")
    assert len(new.pairs) == 3
    assert new.again == 60
    clock.later(minutes=10)
    assert len(ask(budget, *many(1900), name="large").pairs) < len(alone.pairs)
    assert ask(budget, "all", *many(50), name="new").missing == 0


def test_a_deleted_or_unmonitored_tritonmodel_gives_its_share_back() -> None:
    for give_back in (
        lambda budget: budget.forget(f"{gen.NAMESPACE}/large"),
        lambda budget: ask(budget, name="large", monitoring={"enabled": False}),
    ):
        budget = SeriesBudget(10_000, Clock())
        ask(budget, *many(1900), name="large")
        give_back(budget)
        assert ask(budget, "all", *many(50)).missing == 0


def test_namespaces_have_budgets_of_their_own() -> None:
    budget = SeriesBudget(10_000, Clock())
    ask(budget, *many(1900))
    other = gen.model(gen.put("metadata.namespace", "other"), entrypoint="all")
    assert budget.choose(other, CHOICES, reported(*many(100)), {}, None).missing == 0


def test_a_server_that_alternates_does_not_change_the_shares_of_others() -> None:
    clock = Clock()
    budget = SeriesBudget(10_000, clock)
    wanted = ["all", *many(300)]
    ask(budget, *many(1900), name="liar")
    first = ask(budget, *wanted)
    for turn in range(10):
        clock.later(minutes=2)
        ask(budget, *many(1 if turn % 2 else 1900), name="liar")
        found = ask(budget, *wanted)
        assert len(found.pairs) >= len(first.pairs)
        first = found


def test_lists_models_that_the_status_leaves_out() -> None:
    index = tuple(IndexEntry(name, "1", "READY", "") for name in many(300))
    budget, model = SeriesBudget(10_000, Clock()), gen.model(entrypoint="all")
    found = budget.choose(model, CHOICES, reported("m0"), {"a-1": index}, None)
    assert {name for name, _ in found.pairs} == {"all", *many(300)}


def test_more_servers_leave_room_for_fewer_models() -> None:
    one, forty = (ask(SeriesBudget(10_000, Clock()), *many(1900), replicas=n) for n in (1, 40))
    assert len(one.pairs) > 300
    assert 5 <= len(forty.pairs) < 12


def test_a_restart_does_not_change_what_the_status_says_about_the_budget() -> None:
    clock = Clock()
    full = ask(SeriesBudget(600, clock), *many(100))
    monitor = pod_monitor(gen.model(), Choices("operator:1", "Copy", series=full.pairs))
    for reason, missing in ((TOO_MANY_SERIES, full.missing), ("Selected", 0)):
        said = Condition(type=MONITORING_AVAILABLE, status="False", reason=reason, message="")
        before = reported(*many(100)).model_copy(update={"conditions": [said]})
        found = SeriesBudget(600, clock).choose(gen.model(entrypoint="all"), CHOICES, before, {}, monitor)
        assert (found.pairs, found.missing, found.again) == (full.pairs, missing, 30)


def test_lists_the_entry_model_that_the_repository_check_has_just_found() -> None:
    """The status doesn't have it yet, and no reconcile follows its write."""
    found = SeriesBudget(10_000, Clock()).choose(
        gen.model(), Choices("operator:1", "Copy", entrypoint="all"), TritonModelStatus(), {}, None
    )
    assert found.pairs == (("all", "1"), ("all", "2"))
