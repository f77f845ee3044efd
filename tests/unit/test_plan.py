"""The plan: compares desired and live objects, and ignores fields that others own."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from triton_operator import plan as planning
from triton_operator.api import names
from triton_operator.plan import Apply, Delete, applied_record, difference, handover, plan, port_cleanup
from triton_operator.render import Facts, render

FACTS = Facts("operator:1", "Copy")


def rendered(**spec: Any) -> dict[str, dict[str, Any]]:
    model = gen.model(**spec)
    replicas = spec.get("replicas", 1)
    objects = render(model, Facts("operator:1", "Copy", replicas))
    return {f"{o['kind']}/{o['metadata']['name']}": o for o in objects}


def deployment(**spec: Any) -> dict[str, Any]:
    return rendered(**spec)["Deployment/detection"]


def service() -> dict[str, Any]:
    return rendered()["Service/detection"]


def test_applies_missing_objects_in_order() -> None:
    desired = list(rendered(replicas=2).values())
    steps = plan(desired, [], {}).writes
    assert [(s.desired["kind"], s.why) for s in steps if isinstance(s, Apply)] == [
        ("ServiceAccount", "missing"), ("Deployment", "missing"), ("Service", "missing"), ("Service", "missing"),
        ("PodDisruptionBudget", "missing"), ("PodMonitor", "missing"),
    ]  # fmt: skip
    assert all(isinstance(s, Apply) and s.live is None for s in steps)


SAME_KEY = {
    "topologySpreadConstraints": [
        {"topologyKey": "zone", "maxSkew": n, "whenUnsatisfiable": when}
        for n, when in ((1, "DoNotSchedule"), (2, "ScheduleAnyway"))
    ],
    "containers": [
        {"name": "dns", "image": "d:1", "ports": [{"containerPort": 53, "protocol": p} for p in ("TCP", "UDP")]}
    ],
}
"""Items of lists that differ only in the second field of their key."""
ROUTE = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"], "grpc": {"listener": "grpc"}}
"""A policy has an HTTPRoute and a GRPCRoute with the same name in a list."""


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"replicas": 3},
        {"server": {"env": [{"name": "A", "value": "1"}]}},
        {"podTemplate": {"spec": SAME_KEY}},
        {"route": ROUTE},
    ],
)
def test_writes_nothing_if_live_equals_desired(spec: dict[str, Any]) -> None:
    desired = list(rendered(**spec).values())
    assert plan(desired, [gen.live(o) for o in desired], {}).writes == ()


# Changes to the live object that the plan ignores.
IN_SYNC = {
    "status of the object": gen.put("status", {"replicas": 1}),
    "default of the API server": gen.put("spec.template.spec.schedulerName", "default-scheduler"),
    "annotation of another manager": gen.put("metadata.annotations.deployment-revision", "3"),
    "label of another manager": gen.put("metadata.labels.team", "vision"),
    "quantity written differently": gen.put("spec.template.spec.containers.0.resources.limits.cpu", "1"),
    "sidecar of another manager": lambda o: o["spec"]["template"]["spec"]["containers"].append({"name": "sidecar"}),
    "containers in another order": lambda o: o["spec"]["template"]["spec"]["containers"].insert(0, {"name": "proxy"}),
}


@pytest.mark.parametrize("change", IN_SYNC.values(), ids=IN_SYNC.keys())
def test_ignores_additions_of_others(change: gen.Modifier) -> None:
    desired = deployment(server={"resources": {"limits": {"cpu": "1000m"}}})
    assert difference(desired, gen.live(desired, change)) == ""


DRIFT: dict[str, tuple[gen.Modifier, str]] = {
    "image changed": (gen.put("spec.template.spec.containers.0.image", "mine"),
                      ".spec.template.spec.containers[0].image"),
    "label changed": (gen.put("metadata.labels", {"a": "b"}), ".metadata.labels.app.kubernetes.io/name"),
    "labels removed": (lambda o: o["metadata"].pop("labels"), ".metadata.labels"),
    "owner reference removed": (gen.put("metadata.ownerReferences", []), ".metadata.ownerReferences[0]"),
    "container removed": (gen.put("spec.template.spec.containers", []), ".spec.template.spec.containers[0]"),
    "arg removed": (lambda o: o["spec"]["template"]["spec"]["containers"][0]["args"].pop(),
                    ".spec.template.spec.containers[0].args"),
    "arg appended": (lambda o: o["spec"]["template"]["spec"]["containers"][0]["args"].append("--x"),
                     ".spec.template.spec.containers[0].args"),
    "probe removed": (lambda o: o["spec"]["template"]["spec"]["containers"][0].pop("readinessProbe"),
                      ".spec.template.spec.containers[0].readinessProbe"),
    "cpu limit changed": (gen.put("spec.template.spec.containers.0.resources.limits.cpu", "2"),
                          ".spec.template.spec.containers[0].resources.limits.cpu"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "path"), DRIFT.values(), ids=DRIFT.keys())
def test_reports_the_path_of_drift_and_applies_the_object(change: gen.Modifier, path: str) -> None:
    desired = deployment(server={"resources": {"limits": {"cpu": "1000m"}}})
    live = gen.live(desired, change)
    assert difference(desired, live).startswith(path)
    (step,) = plan([desired], [live], {}).writes
    assert isinstance(step, Apply)
    assert step.live is live


def client(pods: dict[str, str] | None = None, namespaces: dict[str, str] | None = None) -> dict[str, Any]:
    """Returns a peer of a NetworkPolicy, which selects by these labels; None leaves the selector out."""
    selectors = (("podSelector", pods), ("namespaceSelector", namespaces))
    return {key: {"matchLabels": labels} if labels else {} for key, labels in selectors if labels is not None}


CLIENTS = {
    "a decimal": (client({"release": "1.10"}), client({"release": "1.1"})),
    "an exponent": (client({"commit": "1e3"}), client({"commit": "1000"})),
    "a suffix": (client({"size": "1k"}), client({"size": "1000"})),
    "20 digits": (client({"tenant": "12345678901234567890"}), client({"tenant": "98765432109876543210"})),
    "all namespaces": (client({"app": "a"}), client({"app": "a"}, {})),
    "only this namespace": (client({"app": "a"}, {}), client({"app": "a"})),
    "one label less": (client({"app": "a", "tier": "b"}), client({"app": "a"})),
    "some pods instead of all": (client({}), client({"app": "a"})),
}


@pytest.mark.parametrize(("before", "now"), CLIENTS.values(), ids=CLIENTS.keys())
def test_reports_another_client(before: dict[str, Any], now: dict[str, Any]) -> None:
    old, new = (rendered(networkPolicy={"clients": [clients]})["NetworkPolicy/detection"] for clients in (before, now))
    assert difference(new, gen.live(new)) == ""
    assert difference(new, gen.live(old)).startswith(".spec.ingress")
    (step,) = plan([new], [gen.live(old)], {}).writes
    assert isinstance(step, Apply)


TEXTS = {
    "label": (gen.put("metadata.labels.release", "1.10"), gen.put("metadata.labels.release", "1.1")),
    "annotation": (gen.put("metadata.annotations.size", "1k"), gen.put("metadata.annotations.size", "1000")),
    "environment": tuple(gen.put("spec.template.spec.containers.0.env.0.value", text) for text in ("1e3", "1000")),
    "argument": tuple(gen.put("spec.template.spec.containers.0.args.0", text) for text in ("0.50", "0.5")),
    "image": tuple(gen.put("spec.template.spec.containers.0.image", text) for text in ("1.10", "1.1")),
}


@pytest.mark.parametrize(("before", "now"), TEXTS.values(), ids=TEXTS.keys())
def test_reports_another_text_that_would_be_the_same_quantity(before: gen.Modifier, now: gen.Modifier) -> None:
    desired = deployment()
    assert difference(gen.modified(desired, now), gen.live(gen.modified(desired, before))) != ""


def test_keeps_a_port_of_another_manager_and_restores_ours() -> None:
    desired = service()
    foreign = {"name": "debug", "port": 9000, "protocol": "TCP"}
    assert difference(desired, gen.live(desired, lambda o: o["spec"]["ports"].insert(0, foreign))) == ""
    assert difference(desired, gen.live(desired, lambda o: o["spec"]["ports"].pop(0))) == ".spec.ports[0]"


def test_reports_an_owned_field_that_is_no_longer_desired() -> None:
    before = deployment(podTemplate={"spec": {"priorityClassName": "high"}})
    now = deployment()
    # The template hash is made equal, so that only managedFields show the difference.
    live = gen.live(before, gen.put("metadata.annotations", now["metadata"]["annotations"]))
    live["metadata"]["labels"] = now["metadata"]["labels"]
    live["spec"]["template"]["metadata"]["annotations"] = now["spec"]["template"]["metadata"]["annotations"]
    assert difference(now, live) == ".spec.template.spec.priorityClassName"


def test_reports_an_owned_list_item_that_is_no_longer_desired() -> None:
    desired = service()
    before = gen.modified(desired, lambda o: o["spec"]["ports"].append({"name": "old", "port": 1, "protocol": "TCP"}))
    assert difference(desired, gen.live(before)).startswith(".spec.ports[")


@pytest.mark.parametrize(
    ("manager", "operation"), [("helm", "Apply"), (names.FIELD_MANAGER, "Update"), (names.HANDOVER_MANAGER, "Apply")]
)
def test_ignores_fields_of_other_managers(manager: str, operation: str) -> None:
    desired = service()
    foreign = gen.managed(gen.modified(desired, gen.put("spec.loadBalancerClass", "x")), manager, operation)
    live = gen.live(
        desired, gen.put("spec.loadBalancerClass", "x"), lambda o: o["metadata"]["managedFields"].insert(0, foreign)
    )
    assert difference(desired, live) == ""


def test_ignores_ownership_of_a_subresource() -> None:
    desired = deployment()
    scaled = {**gen.managed(gen.modified(desired, gen.put("spec.paused", True))), "subresource": "status"}
    live = gen.live(desired, lambda o: o["metadata"]["managedFields"].insert(0, scaled))
    assert difference(desired, live) == ""


def test_treats_empty_values_as_absent() -> None:
    desired = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"name": "x", "namespace": "y", "labels": {"a": "b"}},
        "spec": {"nodeSelector": {}, "tolerations": [], "affinity": {"labels": {}}},
    }
    assert difference(desired, gen.live(desired, gen.put("spec", {"affinity": {}}))) == ""


def test_reports_a_key_that_another_manager_added_to_an_atomic_map() -> None:
    # A selector is atomic: the manager that adds a key owns all of it, and our entry disappears.
    def take_ownership(live: dict[str, Any]) -> None:
        live["spec"]["selector"]["app"] = "other"
        ours = next(f for f in live["metadata"]["managedFields"] if f["manager"] == names.FIELD_MANAGER)
        del ours["fieldsV1"]["f:spec"]["f:selector"]

    desired = service()
    assert difference(desired, gen.live(desired, take_ownership)) == ".spec.selector"


def test_reports_a_list_item_that_another_manager_took_over() -> None:
    def take_ownership(live: dict[str, Any]) -> None:
        ours = next(f for f in live["metadata"]["managedFields"] if f["manager"] == names.FIELD_MANAGER)
        ports = ours["fieldsV1"]["f:spec"]["f:ports"]
        del ports[next(label for label in ports if "8001" in label)]

    desired = service()
    assert difference(desired, gen.live(desired, take_ownership)) == ".spec.ports[1]"


def test_applies_once_if_the_api_server_stores_a_value_differently() -> None:
    desired = deployment(server={"env": [{"name": "A", "value": ""}]})
    answer = gen.live(desired, lambda o: o["spec"]["template"]["spec"]["containers"][0]["env"][1].pop("value"))
    assert difference(desired, answer) != ""
    applied = applied_record(desired, answer)
    assert difference(desired, answer, applied) == ""
    key = planning.identity(desired)
    assert plan([desired], [answer], {key: applied}).writes == ()
    # The record covers only this live object and this desired object.
    drifted = gen.modified(answer, gen.put("spec.template.spec.containers.0.image", "mine"))
    assert difference(desired, drifted, applied) != ""
    assert difference(desired, gen.modified(answer, gen.put("metadata.uid", "other")), applied) != ""
    other = deployment(server={"env": [{"name": "A", "value": ""}], "image": "triton:2"})
    assert difference(other, answer, applied) != ""


def test_deletes_undesired_objects_once() -> None:
    double, single = rendered(replicas=2), rendered(replicas=1)
    live = [gen.live(o) for o in double.values()]
    steps = [s for s in plan(single.values(), live, {}).writes if isinstance(s, Delete)]
    assert [s.live["kind"] for s in steps] == ["PodDisruptionBudget"]
    for obj in live:
        gen.deleting(obj)
    assert plan(single.values(), live, {}).writes == ()  # all are being deleted: no second delete, no apply


@pytest.mark.parametrize(("before", "now"), [({"replicas": 5}, {})])
def test_hands_replicas_over_before_it_gives_up_the_field(before: dict[str, Any], now: dict[str, Any]) -> None:
    live = gen.live(deployment(**before))
    (step,) = plan([deployment(**now)], [live], {}).writes
    assert isinstance(step, Apply)
    assert "replicas" not in step.desired["spec"]
    assert step.handover == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "detection", "namespace": "vision"},
        "spec": {"replicas": 5},
    }


def test_hands_nothing_over_if_it_keeps_or_never_owned_replicas() -> None:
    live = gen.live(deployment(replicas=5))
    assert handover(deployment(replicas=3), live) is None
    foreign = gen.live(deployment(), gen.put("spec.replicas", 7))
    assert handover(deployment(), foreign) is None
    assert difference(deployment(), foreign) == ""


def test_compares_list_items_by_position_if_their_key_is_not_a_string() -> None:
    desired = {"spec": {"containers": [{"name": {"odd": 1}}]}}
    assert difference({"metadata": {}, **desired}, {"metadata": {}, "spec": {"containers": [{"name": "x"}]}}) != ""


def test_skips_the_comparison_until_either_object_changes() -> None:
    desired = deployment()
    live = gen.live(desired)
    writes, unchanged = plan([desired], [live], {})
    assert writes == ()
    # Only a new resourceVersion shows that another client wrote, so without one nothing is compared.
    tampered = gen.modified(live, gen.put("spec.template.spec.terminationGracePeriodSeconds", 1))
    assert plan([desired], [tampered], {}, unchanged).writes == ()
    noticed = gen.modified(tampered, gen.put("metadata.resourceVersion", "11"))
    assert [s.why for s in plan([desired], [noticed], {}, unchanged).writes] == [
        ".spec.template.spec.terminationGracePeriodSeconds"
    ]
    successor = gen.modified(tampered, gen.put("metadata.uid", "another"))
    assert len(plan([desired], [successor], {}, unchanged).writes) == 1
    other = gen.modified(desired, gen.put("spec.revisionHistoryLimit", 7))
    assert len(plan([other], [live], {}, unchanged).writes) == 1


def test_removes_foreign_ports_only_if_they_have_the_name_of_ours() -> None:
    desired = next(o for o in render(gen.model(), Facts("t", "Copy")) if o["kind"] == "Service")
    foreign = {"name": "debug", "port": 9000}
    assert port_cleanup(desired, gen.live(desired)) is None
    assert port_cleanup(desired, gen.live(desired, lambda o: o["spec"]["ports"].append(foreign))) is None
    edited = gen.live(desired, lambda o: o["spec"]["ports"].extend([foreign, {"name": "http", "port": 80}]))
    patch = port_cleanup(desired, edited)
    assert patch is not None
    assert patch["spec"] == {"ports": [{"port": 80, "$patch": "delete"}, *desired["spec"]["ports"]]}


# Scalers


def scalers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the HorizontalPodAutoscaler and the ScaledObject of the same TritonModel."""
    facts = Facts("operator:1", "Copy", prometheus="http://p")
    by_kind = {
        o["kind"]: o
        for engine in ("HPA", "KEDA")
        for o in render(gen.model(autoscaling={"max": 4, "engine": engine}), facts)
    }
    return by_kind["HorizontalPodAutoscaler"], by_kind["ScaledObject"]


@pytest.mark.parametrize("ends", [[], [gen.deleting]])
def test_no_second_scaler_is_applied_while_the_first_exists(ends: list[Any]) -> None:
    for old, new in (scalers(), scalers()[::-1]):
        steps = plan([new], [gen.live(old, *ends)], {}).writes
        assert [type(s) for s in steps] == ([] if ends else [Delete])
        assert [type(s) for s in plan([new], [], {}).writes] == [Apply]


def test_keda_and_the_operator_do_not_undo_each_others_writes() -> None:
    _, desired = scalers()

    def written_by_keda(obj: dict[str, Any]) -> None:
        obj["metadata"]["finalizers"] = ["finalizer.keda.sh"]
        obj["metadata"]["labels"]["scaledobject.keda.sh/name"] = gen.NAME
        obj["spec"]["advanced"]["scalingModifiers"] = {}
        obj["status"] = {"conditions": []}

    assert plan([desired], [gen.live(desired, written_by_keda)], {}).writes == ()
    assert plan([desired], [gen.live(desired, gen.put("spec.maxReplicaCount", 9))], {}).writes != ()


_CONTAINER = ".spec.template.spec.containers[0]"


def test_items_without_keys_are_dropped_only_where_the_list_is_shorter() -> None:
    def with_rules(*ports: int) -> dict[str, Any]:
        return {
            "kind": "NetworkPolicy",
            "metadata": {"name": "a", "uid": "1"},
            "spec": {"ingress": [{"p": p} for p in ports]},
        }

    assert applied_record(with_rules(1, 2), with_rules(1)).dropped == (".spec.ingress",)
    assert applied_record(with_rules(1, 2), with_rules(0, 1, 2)).dropped == ()


@pytest.mark.parametrize(
    ("change", "dropped"),
    [
        ({}, ()),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}},
            (".spec.template.spec.containers[0].lifecycle.stopSignal",),
        ),
        ({"lifecycle": None}, (".spec.template.spec.containers[0].lifecycle",)),
        # Empty values, zeros and false may be missing in what the API server stores.
        ({"tty": None, "env": None, "terminationMessagePath": None}, ()),
    ],
    ids=["nothing", "a field", "an object", "what means nothing"],
)
def test_records_what_the_api_server_dropped(change: dict[str, Any], dropped: tuple[str, ...]) -> None:
    lifecycle = {"preStop": {"sleep": {"seconds": 5}}, "stopSignal": "SIGTERM"}
    container = {"name": "triton", "lifecycle": lifecycle, "tty": False, "env": [], "terminationMessagePath": ""}

    def with_container(container: dict[str, Any]) -> dict[str, Any]:
        spec = {"template": {"spec": {"containers": [container]}}}
        return {"kind": "Deployment", "metadata": {"name": "a", "uid": "1"}, "spec": spec}

    stored = {name: value for name, value in {**container, **change}.items() if value is not None}
    # Containers of webhooks come first.
    answer = with_container(stored)
    answer["spec"]["template"]["spec"]["containers"].insert(0, {"name": "mesh"})
    assert applied_record(with_container(container), answer).dropped == dropped
