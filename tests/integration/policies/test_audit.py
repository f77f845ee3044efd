"""The audit log records changes of thresholds."""

from __future__ import annotations

import pytest

from support.api import Object, eventually
from support.people import Team, refusal, tritonmodel
from support.thresholds import MAX_QPS, annotate

pytestmark = pytest.mark.integration


def changes(events: list[Object]) -> list[tuple[str, str, int, str, str]]:
    """Returns (verb, user, response code, changes, user as the policy records it) of each event with a change."""
    key = "thresholds.tritonoperator.io/"
    return [
        (e["verb"], e["user"]["username"], e["responseStatus"]["code"], a[f"{key}changes"], a[f"{key}changed-by"])
        for e in events
        if f"{key}changes" in (a := e.get("annotations", {}))
    ]


def test_audit_log_records_user_old_and_new_value_of_every_change(team: Team) -> None:
    oncall, developer, name = team.api("oncall"), team.api("developer"), "detector"
    developer.create(tritonmodel(name))
    refusal(lambda: annotate(developer, name, max_qps="1000"))
    annotate(oncall, name, max_qps="80")
    refusal(lambda: annotate(oncall, name, max_qps="fast"))
    annotate(oncall, name, max_qps="90")
    developer.patch("TritonModel", name, {"spec": {"replicas": 2}})
    oncall.request(
        "PATCH", oncall.path("TritonModel", name) + "?dryRun=All",
        {"metadata": {"annotations": {"max_qps": "95"}}}, "application/merge-patch+json",
    )  # fmt: skip
    annotate(oncall, name, max_qps=None)
    annotate(oncall, name, **{"max-qps.v2": "7"})
    developer.delete("TritonModel", name)
    team.api().create(tritonmodel(name, {MAX_QPS: "5"}))
    admin = "admin"
    expected = [
        ("patch", "developer", 403, "max_qps: none → 1000", "developer"),
        ("patch", "oncall", 200, "max_qps: none → 80", "oncall"),
        ("patch", "oncall", 422, "max_qps: 80 → fast", "oncall"),
        ("patch", "oncall", 200, "max_qps: 80 → 90", "oncall"),
        ("patch", "oncall", 200, "dry run: max_qps: 90 → 95", "oncall"),
        ("patch", "oncall", 200, "max_qps: 90 → none", "oncall"),
        ("patch", "oncall", 200, "tritonoperator.io/max-qps.v2: none → 7", "oncall"),
        ("delete", "developer", 200, "tritonoperator.io/max-qps.v2: 7 → none", "developer"),
        ("create", admin, 201, "tritonoperator.io/max-qps: none → 5", admin),
    ]
    eventually(lambda: changes(team.audited(name)) == expected, 60, lambda: changes(team.audited(name)))
    # The message of a rejected request is recorded too.
    refused = next(e for e in team.audited(name) if e["responseStatus"]["code"] == 403)
    failure = refused["annotations"]["validation.policy.admission.k8s.io/validation_failure"]
    assert "developer may not set thresholds" in failure
    writes = {e["verb"] for e in team.plane.audit_events()}
    assert writes <= {"create", "update", "patch", "delete", "deletecollection"}, "only writes are logged"


def test_one_request_with_several_changes_is_one_event(team: Team) -> None:
    team.api().create(tritonmodel("detector", {MAX_QPS: "80"}))
    annotate(team.api("oncall"), "detector", **{"max-qps": "70", "spike-factor": "4"})
    (_, change) = eventually(lambda: len(c := changes(team.audited("detector"))) == 2 and c, 60)
    assert set(change[3].split(", ")) == {
        "tritonoperator.io/max-qps: 80 → 70",
        "tritonoperator.io/spike-factor: none → 4",
    }
