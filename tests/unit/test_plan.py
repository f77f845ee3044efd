"""The plan: nothing is written where nothing would change, and nobody else's fields ever count."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator import plan as planning
from triton_operator.api import names
from triton_operator.plan import Apply, Delete, applied_record, difference, handover, plan, port_cleanup
from triton_operator.render import Choices, render

CHOICES = Choices("operator:1", "Copy")


def rendered(**spec: Any) -> dict[str, dict[str, Any]]:
    model = gen.model(**spec)
    replicas = spec.get("replicas", 1)
    objects = render(model, Choices("operator:1", "Copy", replicas))
    return {f"{o['kind']}/{o['metadata']['name']}": o for o in objects}


def deployment(**spec: Any) -> dict[str, Any]:
    return rendered(**spec)["Deployment/detection"]


def service() -> dict[str, Any]:
    return rendered()["Service/detection"]


def test_everything_is_applied_in_order_where_nothing_is() -> None:
    wanted = list(rendered(replicas=2).values())
    steps = plan(wanted, [], {})
    assert [(s.desired["kind"], s.why) for s in steps if isinstance(s, Apply)] == [
        ("ServiceAccount", "missing"), ("Service", "missing"), ("Service", "missing"), ("Deployment", "missing"),
        ("PodDisruptionBudget", "missing"), ("PodMonitor", "missing"),
    ]  # fmt: skip
    assert all(isinstance(s, Apply) and s.live is None for s in steps)


@pytest.mark.parametrize("spec", [{}, {"replicas": 3}, {"server": {"env": [{"name": "A", "value": "1"}]}}])
def test_nothing_is_written_at_rest(spec: dict[str, Any]) -> None:
    wanted = list(rendered(**spec).values())
    assert plan(wanted, [gen.live(o) for o in wanted], {}) == []


# What stands there and what is wanted: the path that differs, "" where none does.
IN_SYNC = {
    "own status": gen.put("status", {"replicas": 1}),
    "default of the API server": gen.put("spec.template.spec.schedulerName", "default-scheduler"),
    "annotation of another": gen.put("metadata.annotations.deployment-revision", "3"),
    "label of another": gen.put("metadata.labels.team", "vision"),
    "quantity written differently": gen.put("spec.template.spec.containers.0.resources.limits.cpu", "1"),
    "sidecar of another": lambda o: o["spec"]["template"]["spec"]["containers"].append({"name": "sidecar"}),
    "containers in another order": lambda o: o["spec"]["template"]["spec"]["containers"].insert(0, {"name": "proxy"}),
}


@pytest.mark.parametrize("change", IN_SYNC.values(), ids=IN_SYNC.keys())
def test_what_others_add_is_no_difference(change: gen.Modifier) -> None:
    wanted = deployment(server={"resources": {"limits": {"cpu": "1000m"}}})
    assert difference(wanted, gen.live(wanted, change)) == ""


DRIFT: dict[str, tuple[gen.Modifier, str]] = {
    "image": (gen.put("spec.template.spec.containers.0.image", "mine"), ".spec.template.spec.containers[0].image"),
    "label changed": (gen.put("metadata.labels", {"a": "b"}), ".metadata.labels.app.kubernetes.io/name"),
    "label gone": (lambda o: o["metadata"].pop("labels"), ".metadata.labels"),
    "owner gone": (gen.put("metadata.ownerReferences", []), ".metadata.ownerReferences[0]"),
    "container gone": (gen.put("spec.template.spec.containers", []), ".spec.template.spec.containers[0]"),
    "arg taken away": (lambda o: o["spec"]["template"]["spec"]["containers"][0]["args"].pop(),
                       ".spec.template.spec.containers[0].args"),
    "arg appended": (lambda o: o["spec"]["template"]["spec"]["containers"][0]["args"].append("--x"),
                     ".spec.template.spec.containers[0].args"),
    "probe gone": (lambda o: o["spec"]["template"]["spec"]["containers"][0].pop("readinessProbe"),
                   ".spec.template.spec.containers[0].readinessProbe"),
    "cpu": (gen.put("spec.template.spec.containers.0.resources.limits.cpu", "2"),
            ".spec.template.spec.containers[0].resources.limits.cpu"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "path"), DRIFT.values(), ids=DRIFT.keys())
def test_drift_is_told_by_its_path_and_repaired(change: gen.Modifier, path: str) -> None:
    wanted = deployment(server={"resources": {"limits": {"cpu": "1000m"}}})
    there = gen.live(wanted, change)
    assert difference(wanted, there).startswith(path)
    (step,) = plan([wanted], [there], {})
    assert isinstance(step, Apply)
    assert step.live is there


def test_a_port_of_another_stays_and_ours_is_put_back() -> None:
    wanted = service()
    foreign = {"name": "debug", "port": 9000, "protocol": "TCP"}
    assert difference(wanted, gen.live(wanted, lambda o: o["spec"]["ports"].insert(0, foreign))) == ""
    assert difference(wanted, gen.live(wanted, lambda o: o["spec"]["ports"].pop(0))) == ".spec.ports[0]"


def test_a_field_that_we_own_and_no_longer_want_is_a_difference() -> None:
    before = deployment(podTemplate={"spec": {"priorityClassName": "high"}})
    now = deployment()
    # The hash of the template tells first; without it managedFields still do.
    there = gen.live(before, gen.put("metadata.annotations", now["metadata"]["annotations"]))
    there["spec"]["template"]["metadata"]["annotations"] = now["spec"]["template"]["metadata"]["annotations"]
    assert difference(now, there) == ".spec.template.spec.priorityClassName"


def test_a_list_item_that_we_own_and_no_longer_want_is_a_difference() -> None:
    wanted = service()
    before = gen.modified(wanted, lambda o: o["spec"]["ports"].append({"name": "old", "port": 1, "protocol": "TCP"}))
    assert difference(wanted, gen.live(before)).startswith(".spec.ports[")


@pytest.mark.parametrize(
    ("manager", "operation"), [("helm", "Apply"), (names.FIELD_MANAGER, "Update"), (names.HANDOVER_MANAGER, "Apply")]
)
def test_a_field_that_another_owns_is_none(manager: str, operation: str) -> None:
    wanted = service()
    foreign = gen.managed(gen.modified(wanted, gen.put("spec.loadBalancerClass", "x")), manager, operation)
    there = gen.live(
        wanted, gen.put("spec.loadBalancerClass", "x"), lambda o: o["metadata"]["managedFields"].insert(0, foreign)
    )
    assert difference(wanted, there) == ""


def test_ownership_under_a_subresource_is_none() -> None:
    wanted = deployment()
    scaled = {**gen.managed(gen.modified(wanted, gen.put("spec.paused", True))), "subresource": "status"}
    there = gen.live(wanted, lambda o: o["metadata"]["managedFields"].insert(0, scaled))
    assert difference(wanted, there) == ""


def test_empty_values_are_the_same_as_none() -> None:
    wanted = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"name": "x", "namespace": "y"},
        "spec": {"a": {}, "b": [], "c": {"emptyDir": {}}},
    }
    assert difference(wanted, gen.live(wanted, gen.put("spec", {"c": {}}))) == ""


def test_what_is_added_to_a_map_that_is_owned_as_a_whole_is_a_change_of_ours() -> None:
    # The API server gives the whole selector to whoever adds a key to it; ours is then in nobody's name.
    def taken(there: dict[str, Any]) -> None:
        there["spec"]["selector"]["app"] = "other"
        ours = next(f for f in there["metadata"]["managedFields"] if f["manager"] == names.FIELD_MANAGER)
        del ours["fieldsV1"]["f:spec"]["f:selector"]

    wanted = service()
    assert difference(wanted, gen.live(wanted, taken)) == ".spec.selector"


def test_an_item_that_another_took_over_is_applied_again() -> None:
    def taken(there: dict[str, Any]) -> None:
        ours = next(f for f in there["metadata"]["managedFields"] if f["manager"] == names.FIELD_MANAGER)
        ports = ours["fieldsV1"]["f:spec"]["f:ports"]
        del ports[next(label for label in ports if "8001" in label)]

    wanted = service()
    assert difference(wanted, gen.live(wanted, taken)) == ".spec.ports[1]"


def test_what_only_the_api_server_writes_differently_is_applied_once() -> None:
    wanted = deployment(server={"env": [{"name": "A", "value": ""}]})
    answer = gen.live(wanted, lambda o: o["spec"]["template"]["spec"]["containers"][0]["env"][1].pop("value"))
    assert difference(wanted, answer) != ""
    applied = applied_record(wanted, answer)
    assert difference(wanted, answer, applied) == ""
    key = planning.identity(wanted)
    assert plan([wanted], [answer], {key: applied}) == []
    # The record excuses exactly that: not another value, not another object, not another intent.
    drifted = gen.modified(answer, gen.put("spec.template.spec.containers.0.image", "mine"))
    assert difference(wanted, drifted, applied) != ""
    assert difference(wanted, gen.modified(answer, gen.put("metadata.uid", "other")), applied) != ""
    other = deployment(server={"env": [{"name": "A", "value": ""}], "image": "triton:2"})
    assert difference(other, answer, applied) != ""


def test_what_is_no_longer_wanted_is_deleted_once() -> None:
    two, one = rendered(replicas=2), rendered(replicas=1)
    there = [gen.live(o) for o in two.values()]
    steps = [s for s in plan(one.values(), there, {}) if isinstance(s, Delete)]
    assert [s.live["kind"] for s in steps] == ["PodDisruptionBudget"]
    for obj in there:
        gen.deleting(obj)
    assert plan(one.values(), there, {}) == []  # all on their way: neither applied to nor deleted again


@pytest.mark.parametrize(("before", "now"), [({"replicas": 5}, {})])
def test_replicas_are_handed_over_before_they_are_let_go(before: dict[str, Any], now: dict[str, Any]) -> None:
    there = gen.live(deployment(**before))
    (step,) = plan([deployment(**now)], [there], {})
    assert isinstance(step, Apply)
    assert "replicas" not in step.desired["spec"]
    assert step.handover == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "detection", "namespace": "vision"},
        "spec": {"replicas": 5},
    }


def test_there_is_nothing_to_hand_over_where_we_keep_or_never_had_replicas() -> None:
    kept = gen.live(deployment(replicas=5))
    assert handover(deployment(replicas=3), kept) is None
    foreign = gen.live(deployment(), gen.put("spec.replicas", 7))
    assert handover(deployment(), foreign) is None
    assert difference(deployment(), foreign) == ""


def test_keys_that_are_no_names_are_compared_by_place() -> None:
    wanted = {"spec": {"containers": [{"name": {"odd": 1}}]}}
    assert difference({"metadata": {}, **wanted}, {"metadata": {}, "spec": {"containers": [{"name": "x"}]}}) != ""


def test_what_was_compared_before_is_not_compared_again_until_one_of_them_is_another() -> None:
    wanted, unchanged = deployment(), {}
    there = gen.live(wanted)
    assert plan([wanted], [there], {}, unchanged) == []
    # Nothing but the version tells that somebody else has written: without it there is nothing to compare.
    tampered = gen.modified(there, gen.put("spec.template.spec.terminationGracePeriodSeconds", 1))
    assert plan([wanted], [tampered], {}, unchanged) == []
    noticed = gen.modified(tampered, gen.put("metadata.resourceVersion", "11"))
    assert [s.why for s in plan([wanted], [noticed], {}, unchanged)] == [
        ".spec.template.spec.terminationGracePeriodSeconds"
    ]
    successor = gen.modified(tampered, gen.put("metadata.uid", "another"))
    assert len(plan([wanted], [successor], {}, unchanged)) == 1
    other = gen.modified(wanted, gen.put("spec.revisionHistoryLimit", 7))
    assert len(plan([other], [there], {}, unchanged)) == 1


def test_ports_of_others_are_in_the_way_only_where_they_have_the_name_of_ours() -> None:
    want = next(o for o in render(gen.model(), Choices("t", "Copy")) if o["kind"] == "Service")
    foreign = {"name": "debug", "port": 9000}
    assert port_cleanup(want, gen.live(want)) is None
    assert port_cleanup(want, gen.live(want, lambda o: o["spec"]["ports"].append(foreign))) is None
    edited = gen.live(want, lambda o: o["spec"]["ports"].extend([foreign, {"name": "http", "port": 80}]))
    found = port_cleanup(want, edited)
    assert found is not None
    assert found["spec"] == {"ports": [{"port": 80, "$patch": "delete"}, *want["spec"]["ports"]]}
