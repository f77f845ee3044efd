"""Which versions of models are in the PodMonitor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from triton_operator.api.status import ModelStatus
from triton_operator.render.series import Pair
from triton_operator.status.series import REMEMBERED, choose, fair_share, known

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ENTRY = "all"


def pairs(*models: str) -> list[Pair]:
    return [(name, version or "1") for name, _, version in (model.partition(":") for model in models)]


def chosen(*found: str, listed: dict[str, datetime] | None = None, room: int = 99, now: datetime = NOW) -> set[str]:
    before = {pair: at for model, at in (listed or {}).items() for pair in pairs(model)}
    return {f"{name}:{version}" for name, version in choose(before, pairs(*found), ENTRY, room, now)}


def test_lists_all_models_and_the_next_version_of_the_entry_model() -> None:
    assert chosen("all", "pre", "net:7") == {"all:1", "all:2", "pre:1", "net:7"}
    assert chosen("all:3", "all:4") == {"all:1", "all:3", "all:4", "all:5"}


def test_lists_the_entry_model_before_a_server_has_answered() -> None:
    assert chosen() == {"all:1", "all:2"}


def test_lists_models_without_an_entry_model() -> None:
    assert choose({}, pairs("net"), "", 9, NOW).keys() == {("net", "1")}


def test_the_entry_model_comes_first_if_not_all_fit() -> None:
    assert chosen(*(f"a{n}" for n in range(50)), "all:3", room=4) == {"all:1", "all:3", "all:4", "a0:1"}


def test_removes_a_version_three_hours_after_the_last_report() -> None:
    listed = {"all": NOW, "all:2": NOW, "gone": NOW}
    assert "gone:1" in chosen("all", listed=listed, now=NOW + REMEMBERED - timedelta(seconds=1))
    assert "gone:1" not in chosen("all", listed=listed, now=NOW + REMEMBERED)
    assert "gone:1" in chosen("all", "gone", listed=listed, now=NOW + REMEMBERED)


def test_a_server_that_reports_other_models_each_time_fills_only_its_room() -> None:
    listed: dict[Pair, datetime] = {}
    ever = set[Pair]()
    for turn in range(100):
        now = NOW + timedelta(minutes=turn)
        listed = choose(listed, pairs(*(f"m{turn}-{n}" for n in range(40)), f"all:{turn + 9}"), ENTRY, 10, now)
        ever |= listed.keys()
    assert len(ever) == 10


def test_known_versions_are_numbers() -> None:
    models = [ModelStatus(name="a", version=version, state="READY", pods="1/1") for version in ("", "x", "3")]
    assert known(models) == [("a", "3")]


@pytest.mark.parametrize(
    ("wants", "shares"),
    [
        ({"a": 10}, {"a": 10}),
        ({"a": 1000}, {"a": 100}),
        ({"a": 10, "b": 1000}, {"a": 10, "b": 90}),
        ({"a": 1000, "b": 1000, "c": 20}, {"a": 40, "b": 40, "c": 20}),
        (dict.fromkeys("abcdefgh", 1000), dict.fromkeys("abcdefgh", 12)),
    ],
)
def test_shares_are_fair(wants: dict[str, int], shares: dict[str, int]) -> None:
    assert {key: fair_share(100, wants, key) for key in wants} == shares
