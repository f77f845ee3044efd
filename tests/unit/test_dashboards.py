"""The dashboards' files, as far as that can be told without a Prometheus (tests/rules asks one)."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "manifests" / "monitoring" / "dashboards"
DASHBOARDS = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
EACH = pytest.mark.parametrize("dashboard", [pytest.param(d, id=name) for name, d in DASHBOARDS.items()])


def drawn(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_each_is_in_a_config_map_that_the_sidecar_finds() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = [file for made in kustomization["configMapGenerator"] for file in made["files"]]
    assert sorted(files) == [f"{name}.json" for name in DASHBOARDS]
    options = kustomization["generatorOptions"]
    assert options["labels"] == {"grafana_dashboard": "1"}
    assert options["disableNameSuffixHash"]


def test_ids_are_unique() -> None:
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert len(set(uids)) == len(uids) == 4


@EACH
def test_every_panel_has_its_own_id_and_says_how_it_is_computed(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in drawn(dashboard):
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@EACH
def test_every_query_of_a_panel_has_its_own_letter_and_a_legend(dashboard: dict[str, Any]) -> None:
    for panel in drawn(dashboard):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters, panel["title"]
        assert len(set(letters)) == len(letters)
        assert all(target["legendFormat"] for target in panel["targets"])


@EACH
def test_no_two_panels_overlap_and_none_leaves_the_grid(dashboard: dict[str, Any]) -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in dashboard["panels"]]
    for (one, a), (other, b) in combinations(places, 2):
        apart_across = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_down = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_across or apart_down, (one, other)
    assert all(place["x"] + place["w"] <= 24 for _, place in places)
    assert all(a["y"] <= b["y"] for (_, a), (_, b) in pairwise(places))


@EACH
def test_only_the_chosen_prometheus_is_asked(dashboard: dict[str, Any]) -> None:
    asking = [
        *drawn(dashboard),
        *(target for panel in drawn(dashboard) for target in panel["targets"]),
        *dashboard["annotations"]["list"],
        *(v for v in dashboard["templating"]["list"] if v["type"] == "query"),
    ]
    assert {one["datasource"]["uid"] for one in asking} == {"${datasource}"}
