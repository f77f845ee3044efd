"""How long writes wait that another writer undoes, and what is said about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen
from triton_operator.decisions.contests import Contest, Contested, Place, count, hold_back, problems
from triton_operator.plan import Apply, Delete, applied_record, changed_by, identity
from triton_operator.render import Facts, render

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Object = dict[str, Any]


def desired(kind: str = "Deployment", **spec: Any) -> Object:
    return next(obj for obj in render(gen.model(**spec), Facts("operator:1", "Copy", 1)) if obj["kind"] == kind)


def edited(obj: Object, *fields: str) -> Object:
    """Returns the live object after another writer has changed these fields."""
    return gen.live(obj, *(gen.put(field.removeprefix("."), 77) for field in fields))


class Fight:
    """Another writer that changes fields at once whenever the operator has set them back; without any, the object."""

    def __init__(self, *fields: str, kind: str = "Deployment") -> None:
        self.object, self.fields = desired(kind), fields
        self.applied = {identity(self.object): applied_record(self.object, gen.live(self.object))}
        self.contests: Mapping[Place, Contest] = {}

    def change(self, at: float) -> Contested:
        """The other writer has changed the fields, and a reconcile runs `at` seconds."""
        now = NOW + timedelta(seconds=at)
        live = edited(self.object, *self.fields) if self.fields else None
        step = Apply(self.object, live, self.fields[0] if self.fields else "missing")
        contested = hold_back([step], self.applied, self.contests, now)
        self.contests = count(contested.set_back, contested.contests, now)
        return contested

    def writes(self, seconds: int) -> list[int]:
        """Returns the seconds at which the operator writes."""
        return [at for at in range(seconds) if self.change(at).writes]

    def reported(self, at: float) -> tuple[int, int]:
        """Returns the number of reported problems and of notes."""
        refused, notes = problems(self.contests, NOW + timedelta(seconds=at))
        return len(refused), len(notes)


TEMPLATE = ".spec.template.spec.enableServiceLinks"


@pytest.mark.parametrize(
    ("field", "kind", "times"),
    [
        (TEMPLATE, "Deployment", [0, 20, 60, 140, 300, 620, 1260]),
        (".spec.replicas", "Deployment", [0, 1, 2, 7, 17, 37, 77, 157, 317, 637, 1237]),
        (".metadata.labels.app", "Service", [0, 1, 2, 7, 17, 37, 77, 157, 317, 637, 1237]),
        ("", "Service", [0, 1, 2, 7, 17, 37, 77, 157, 317, 637, 1237]),
    ],
)
def test_each_time_waits_longer(field: str, kind: str, times: list[int]) -> None:
    obj = desired(kind, replicas=2)
    fight = Fight(*filter(None, [field]), kind=kind)
    if field == ".metadata.labels.app":
        obj["metadata"]["labels"]["app"] = "ours"
    fight.object = obj
    fight.applied = {identity(obj): applied_record(obj, gen.live(obj))}
    assert fight.writes(1300) == times


def test_a_writer_every_eleven_minutes_gets_slower_too() -> None:
    fight = Fight(TEMPLATE)
    assert sum(bool(fight.change(660 * n).writes) for n in range(131)) < 35
    assert fight.reported(660 * 130)[0] == 1


def test_tells_when_it_is_due() -> None:
    fight = Fight(TEMPLATE)
    assert (fight.change(0).requeue_after, fight.change(5).requeue_after) == (None, 15)
    assert fight.change(20).writes
    assert fight.change(21).requeue_after == 39


def test_one_change_is_set_back_without_a_word() -> None:
    fight = Fight(TEMPLATE)
    fight.change(0)
    assert fight.reported(1) == (0, 0)


def test_is_a_problem_while_a_write_waits_and_then_a_note() -> None:
    fight = Fight(TEMPLATE)
    fight.change(0)
    assert fight.change(1).held
    assert fight.reported(1) == (1, 0)
    assert fight.change(20).writes
    # Twice the 40 s, and a minute.
    assert (fight.reported(20 + 139), fight.reported(20 + 141)) == ((0, 1), (0, 0))


def test_labels_are_only_a_note() -> None:
    label = ".metadata.labels.app"
    fight = Fight(label, kind="Service")
    fight.object["metadata"]["labels"]["app"] = "ours"
    fight.applied = {identity(fight.object): applied_record(fight.object, gen.live(fight.object))}
    assert [bool(fight.change(at).held) for at in range(4)] == [False, False, False, True]
    assert fight.reported(4) == (0, 1)


def test_a_day_of_silence_ends_it() -> None:
    fight = Fight(TEMPLATE)
    day = 24 * 3600
    assert [bool(fight.change(at).writes) for at in (0, 1, day - 1, 2 * day, 2 * day + 1)] == [
        True, False, True, True, False,
    ]  # fmt: skip


def test_a_clock_that_is_set_back_ends_it() -> None:
    fight = Fight(TEMPLATE)
    fight.change(0)
    assert fight.change(-3600).writes


def test_another_field_is_set_back_at_once_together_with_the_contested_one() -> None:
    fight = Fight(TEMPLATE)
    fight.change(0)
    fight.fields = (TEMPLATE, ".spec.revisionHistoryLimit")
    assert fight.change(1).writes
    assert [contest.times for contest in fight.contests.values()] == [2, 1]


def test_a_change_of_what_is_desired_is_written_at_once_and_ends_the_contest() -> None:
    fight = Fight(TEMPLATE)
    fight.change(0)
    fight.object = desired(server={"image": "triton:2"})
    assert fight.change(1).writes
    assert fight.contests == {}


def test_what_this_leader_has_not_applied_is_no_change_by_others() -> None:
    fight = Fight(TEMPLATE)
    fight.applied.clear()
    assert [len(fight.change(at).writes) for at in range(5)] == [1] * 5
    assert fight.contests == {}


def test_a_refused_write_does_not_count() -> None:
    fight = Fight(TEMPLATE)
    step = Apply(fight.object, edited(fight.object, TEMPLATE), TEMPLATE)
    for _ in range(3):
        assert hold_back([step], fight.applied, fight.contests, NOW).writes


def test_deletions_are_never_held_back() -> None:
    fight = Fight()
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
    assert changed_by(desired(), live, ".spec") == (".spec.revisionHistoryLimit", "kubectl-edit")


def test_names_the_newest_writer_of_the_contested_field() -> None:
    live = managed("revisionHistoryLimit", 99, "older", time="2026-01-01T00:00:00Z")
    fields = {"f:spec": {"f:revisionHistoryLimit": {}}}
    newer = {"manager": "newer", "operation": "Update", "fieldsV1": fields, "time": "2026-01-02T00:00:00Z"}
    live["metadata"]["managedFields"].append(newer)
    assert changed_by(desired(), live, ".spec.revisionHistoryLimit")[1] == "newer"
    assert changed_by(desired(), live, ".spec.template") == ("", "")


def test_names_the_subresource() -> None:
    live = managed("revisionHistoryLimit", 99, "hpa", subresource="scale")
    assert changed_by(desired(), live, ".spec") == (".spec.revisionHistoryLimit", "hpa (scale)")


def test_a_manager_with_the_same_value_is_not_named() -> None:
    live = managed("revisionHistoryLimit", desired()["spec"]["revisionHistoryLimit"], "argocd")
    assert changed_by(desired(), live, ".spec") == ("", "")


def test_nobody_owns_a_field_that_was_removed() -> None:
    live = gen.live(desired())
    del live["spec"]["revisionHistoryLimit"]
    assert changed_by(desired(), live, ".spec") == ("", "")


@pytest.mark.parametrize(
    "entry", [{}, {"manager": "x"}, {"manager": "x", "fieldsV1": {}}, {"fieldsV1": {"f:spec": {}}}]
)
def test_every_field_of_an_entry_is_optional(entry: Object) -> None:
    live = gen.live(desired())
    live["metadata"]["managedFields"].append(entry)
    assert changed_by(desired(), live, ".spec")[0] in ("", ".spec")
