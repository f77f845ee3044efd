"""What a request with many annotations costs the API server, with the policies and without them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import controlplane
from support.controlplane import ControlPlane
from support.costs import cost, many
from support.people import Team, refusal, tritonmodel
from support.thresholds import PREFIX

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def unguarded() -> Iterator[ControlPlane]:
    """An API server without policies."""
    with controlplane.running() as plane:
        plane.install_crds()
        yield plane


@pytest.mark.parametrize("what", ["annotations", "labels", "finalizers"])
def test_many_keys_cost_little_more_than_without_the_policies(
    what: str, plane: ControlPlane, unguarded: ControlPlane
) -> None:
    costs = [cost(control_plane, f"costs-{what}", many(what)) for control_plane in (plane, unguarded)]
    print(f"{what}: {costs[0]:.2f} s with the policies, {costs[1]:.2f} s without")
    # Old policies: a hundred times as much. The API server has other work too, so the bound is generous.
    assert costs[0] <= 4 * costs[1] + 0.5


def test_a_full_tritonmodel_takes_no_more_annotations(team: Team) -> None:
    keys: dict[str, str | None] = {f"example.com/k{n}": "v" for n in range(128)}
    api = team.plane.api.in_namespace(team.namespace)
    api.create(tritonmodel("full", keys))
    one_more = {"metadata": {"annotations": {"example.com/more": "v"}}}
    assert "at most 128 annotations" in refusal(lambda: api.patch("TritonModel", "full", one_more))
    api.patch("TritonModel", "full", {"metadata": {"annotations": {"example.com/k1": None, f"{PREFIX}max-qps": "8"}}})
