"""What a request with many annotations costs the API server, with the policies and without them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import controlplane
from support.controlplane import ControlPlane
from support.costs import OLD, cost, cost_of_patch, largest_variables, many, old_tritonmodel
from support.people import Team, refusal, tritonmodel
from support.thresholds import PREFIX

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def unguarded() -> Iterator[ControlPlane]:
    """An API server without policies."""
    with controlplane.running() as plane:
        plane.install_crds()
        yield plane


@pytest.mark.parametrize("what", ["annotations", "labels", "finalizers", "ownerReferences"])
def test_many_keys_cost_little_more_than_without_the_policies(
    what: str, plane: ControlPlane, unguarded: ControlPlane
) -> None:
    compare(what, *(cost(control_plane, f"costs-{what.lower()}", many(what)) for control_plane in (plane, unguarded)))


def test_an_old_tritonmodel_with_many_annotations_costs_little_more(
    plane: ControlPlane, unguarded: ControlPlane
) -> None:
    """It was stored before the policies were installed."""
    unguarded.api.create(old_tritonmodel())
    patch = {"metadata": {"labels": {"a": "b"}}}
    compare("old", *(cost_of_patch(p, p.api, OLD, patch) for p in (plane, unguarded)))


def test_the_variables_of_the_largest_spec_cost_little_more(team: Team, unguarded: ControlPlane) -> None:
    before, after = largest_variables()
    costs = []
    for plane, user in ((team.plane, team.api("developer")), (unguarded, unguarded.api)):
        plane.api.in_namespace(user.namespace).create(tritonmodel("large", **before))
        costs.append(cost_of_patch(plane, user, "large", {"spec": after}))
    compare("variables", *costs)


def compare(what: str, guarded: float, unguarded: float) -> None:
    print(f"{what}: {guarded:.2f} s with the policies, {unguarded:.2f} s without")
    # Loops over these keys took a hundred times as much. Five requests; the API server has other work too.
    assert guarded <= 2 * unguarded + 0.5


def test_a_full_tritonmodel_takes_no_more_annotations(team: Team) -> None:
    keys: dict[str, str | None] = {f"example.com/k{n}": "v" for n in range(128)}
    api = team.plane.api.in_namespace(team.namespace)
    api.create(tritonmodel("full", keys))
    one_more = {"metadata": {"annotations": {"example.com/more": "v"}}}
    assert "at most 128 annotations" in refusal(lambda: api.patch("TritonModel", "full", one_more))
    api.patch("TritonModel", "full", {"metadata": {"annotations": {"example.com/k1": None, f"{PREFIX}max-qps": "8"}}})
