"""Checks the dashboard files without a Prometheus. tests/rules runs their queries."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "manifests" / "monitoring" / "dashboards"
DASHBOARDS = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
EACH_DASHBOARD = pytest.mark.parametrize("dashboard", [pytest.param(d, id=name) for name, d in DASHBOARDS.items()])


def panels_without_rows(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_every_dashboard_is_in_a_config_map_that_the_sidecar_finds() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = [file for generator in kustomization["configMapGenerator"] for file in generator["files"]]
    assert sorted(files) == [f"{name}.json" for name in DASHBOARDS]
    options = kustomization["generatorOptions"]
    assert options["labels"] == {"grafana_dashboard": "1"}
    assert options["disableNameSuffixHash"]


def test_dashboards_have_unique_ids() -> None:
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert len(set(uids)) == len(uids) == 4


@EACH_DASHBOARD
def test_every_panel_has_a_unique_id_a_description_and_a_unit(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels_without_rows(dashboard):
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@EACH_DASHBOARD
def test_every_query_of_a_panel_has_a_unique_ref_id_and_a_legend(dashboard: dict[str, Any]) -> None:
    for panel in panels_without_rows(dashboard):
        ref_ids = [target["refId"] for target in panel["targets"]]
        assert ref_ids, panel["title"]
        assert len(set(ref_ids)) == len(ref_ids)
        assert all(target["legendFormat"] for target in panel["targets"])


@EACH_DASHBOARD
def test_panels_do_not_overlap_or_leave_the_grid(dashboard: dict[str, Any]) -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in dashboard["panels"]]
    for (title, a), (other, b) in combinations(places, 2):
        apart_across = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_down = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_across or apart_down, (title, other)
    assert all(place["x"] + place["w"] <= 24 for _, place in places)
    assert all(a["y"] <= b["y"] for (_, a), (_, b) in pairwise(places))


@EACH_DASHBOARD
def test_all_queries_use_the_selected_data_source(dashboard: dict[str, Any]) -> None:
    with_datasource = [
        *panels_without_rows(dashboard),
        *(target for panel in panels_without_rows(dashboard) for target in panel["targets"]),
        *dashboard["annotations"]["list"],
        *(v for v in dashboard["templating"]["list"] if v["type"] == "query"),
    ]
    assert {part["datasource"]["uid"] for part in with_datasource} == {"${datasource}"}
