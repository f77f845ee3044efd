"""How long writes wait that another writer undoes, and what is said about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from triton_operator.plan import Apply, Delete, applied_record, changed_by, identity
from triton_operator.reconcile.contests import Contest, Contested, Place, count, hold_back, problems
from triton_operator.render import Choices, render

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Object = dict[str, Any]


def desired(kind: str = "Deployment", **spec: Any) -> Object:
    return next(obj for obj in render(gen.model(**spec), Choices("operator:1", "Copy", 1)) if obj["kind"] == kind)


class Fight:
    """Another writer that changes one field at once whenever the operator has set it back."""

    def __init__(self, why: str, kind: str = "Deployment") -> None:
        self.object, self.why = desired(kind), why
        self.applied = {identity(self.object): applied_record(self.object, gen.live(self.object))}
        self.contests: dict[Place, Contest] = {}

    def change(self, at: float) -> Contested:
        """The other writer has changed the field, and a reconcile runs `at` seconds."""
        now = NOW + timedelta(seconds=at)
        live = None if self.why == "missing" else gen.live(self.object)
        contested = hold_back([Apply(self.object, live, self.why)], self.applied, self.contests, now)
        count(contested.set_back, self.contests, now)
        return contested

    def writes(self, seconds: int) -> list[int]:
        """Returns the seconds at which the operator writes."""
        return [at for at in range(seconds) if self.change(at).writes]

    def reported(self, at: float) -> list[str]:
        refused, notes = problems(self.contests, NOW + timedelta(seconds=at))
        return [*(problem.message for problem in refused.values()), *notes.values()]


@pytest.mark.parametrize(
    ("why", "kind", "times"),
    [
        (".spec.template.spec.containers[0].image", "Deployment", [0, 20, 60, 140, 300, 620, 1220]),
        (".spec.replicas", "Deployment", [0, 1, 2, 7, 17, 37, 77, 157, 317, 637, 1237]),
        (".metadata.labels.app", "Service", [0, 1, 2, 7, 17, 37, 77, 157, 317, 637, 1237]),
        ("missing", "Service", [0, 1, 2, 7, 17, 37, 77, 157, 317, 637, 1237]),
    ],
)
def test_each_time_waits_longer(why: str, kind: str, times: list[int]) -> None:
    assert Fight(why, kind).writes(1240) == times


def test_tells_when_it_is_due() -> None:
    fight = Fight(".spec.template.spec.hostname")
    assert (fight.change(0).again, fight.change(5).again) == (None, 15)
    assert fight.change(20).writes
    assert fight.change(21).again == 39


def test_one_change_is_set_back_without_a_word() -> None:
    fight = Fight(".spec.template.spec.hostname")
    fight.change(0)
    assert fight.reported(1) == []


def test_is_reported_until_the_other_writer_has_been_silent() -> None:
    fight = Fight(".spec.template.spec.hostname")
    fight.change(0)
    assert fight.change(1).held
    assert fight.reported(1)
    assert fight.change(20).writes
    # Twice the 40 s, and a minute.
    assert (bool(fight.reported(20 + 139)), bool(fight.reported(20 + 141))) == (True, False)


def test_an_hour_of_silence_ends_it() -> None:
    fight = Fight(".spec.template.spec.hostname")
    assert [bool(fight.change(at).writes) for at in (0, 1, 3599, 3599 + 3601, 3599 + 3602)] == [
        True, False, True, True, False,
    ]  # fmt: skip


def test_a_clock_that_is_set_back_ends_it() -> None:
    fight = Fight(".spec.template.spec.hostname")
    fight.change(0)
    assert fight.change(-3600).writes


def test_other_fields_are_set_back_at_once() -> None:
    fight = Fight(".spec.template.spec.hostname")
    fight.change(0)
    fight.why = ".spec.replicas"
    assert fight.change(1).writes


def test_a_change_of_what_is_desired_is_written_at_once() -> None:
    fight = Fight(".spec.template.spec.hostname")
    fight.change(0)
    fight.object = desired(server={"image": "triton:2"})
    assert fight.change(1).writes
    assert fight.change(1).set_back == ()


def test_what_this_leader_has_not_applied_is_no_change_by_others() -> None:
    fight = Fight(".spec.template.spec.hostname")
    fight.applied.clear()
    assert [len(fight.change(at).writes) for at in range(5)] == [1] * 5
    assert fight.contests == {}


def test_a_refused_write_does_not_count() -> None:
    fight = Fight(".spec.template.spec.hostname")
    step = Apply(fight.object, gen.live(fight.object), fight.why)
    for _ in range(3):
        assert hold_back([step], fight.applied, fight.contests, NOW).writes


def test_deletions_are_never_held_back() -> None:
    fight = Fight("")
    step = Delete(gen.live(fight.object))
    assert hold_back([step] * 9, fight.applied, fight.contests, NOW).writes == (step,) * 9


# Who it was


def managed(field: str, value: Any, manager: str, **entry: Any) -> Object:
    """The live Deployment after another manager has set one field of its spec."""
    live = gen.live(desired(), gen.put(f"spec.{field}", value))
    live["metadata"]["managedFields"].append(
        {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {f"f:{field}": {}}}, **entry}
    )
    return live


def test_names_the_field_and_its_manager() -> None:
    live = managed("revisionHistoryLimit", 99, "kubectl-edit")
    assert changed_by(desired(), live) == (".spec.revisionHistoryLimit", "kubectl-edit")


def test_names_the_subresource() -> None:
    live = managed("revisionHistoryLimit", 99, "hpa", subresource="scale")
    assert changed_by(desired(), live) == (".spec.revisionHistoryLimit", "hpa (scale)")


def test_a_manager_with_the_same_value_is_not_named() -> None:
    live = managed("revisionHistoryLimit", desired()["spec"]["revisionHistoryLimit"], "argocd")
    assert changed_by(desired(), live) == ("", "")


def test_nobody_owns_a_field_that_was_removed() -> None:
    live = gen.live(desired())
    del live["spec"]["revisionHistoryLimit"]
    assert changed_by(desired(), live) == ("", "")


@pytest.mark.parametrize(
    "entry", [{}, {"manager": "x"}, {"manager": "x", "fieldsV1": {}}, {"fieldsV1": {"f:spec": {}}}]
)
def test_every_field_of_an_entry_is_optional(entry: Object) -> None:
    live = gen.live(desired())
    live["metadata"]["managedFields"].append(entry)
    assert changed_by(desired(), live)[0] in ("", ".spec")
