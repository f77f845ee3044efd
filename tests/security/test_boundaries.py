"""No spec makes the operator create or change objects outside of its own TritonModel."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.api import Object
from triton_operator.api import names
from triton_operator.promql import quote
from triton_operator.render import Facts, render
from triton_operator.render.children import KINDS

FOREIGN, PLAIN = "payments", "plain-name"
HOSTILE_SPEC: Object = {
    "replicas": 2,
    "networkPolicy": {},
    "monitoring": {"labels": {**names.labels(FOREIGN), "release": "x"}, "alertLabels": {"team": '{{ query "up" }}'}},
    "podTemplate": {
        "metadata": {
            "namespace": FOREIGN,
            "name": FOREIGN,
            "ownerReferences": [{"uid": "x"}],
            "labels": {**names.labels(FOREIGN), names.LABEL_NAME: FOREIGN, names.LABEL_MANAGED_BY: "helm"},
            "annotations": {names.ANNOTATION_TEMPLATE: "mine", f"{names.GROUP}/tools-image": "mine"},
        },
        "spec": {"metadata": {"namespace": FOREIGN}, "nodeSelector": {"a": "b"}},
    },
}
FACTS = Facts("operator:1", "Copy", entrypoint="detection", ensemble=True, replicas=2, prometheus="http://p")


def children(**spec: Any) -> list[Object]:
    return render(gen.model(**{**HOSTILE_SPEC, **spec}), FACTS)


def test_every_child_is_in_the_namespace_of_its_tritonmodel_and_owned_by_it() -> None:
    engines = [children(replicas=None, autoscaling={"max": 2, "engine": engine}) for engine in ("HPA", "KEDA")]
    explicit = children(server={"modelControl": "explicit", "loadModels": ["a"]}, entrypoint="a")
    routed = children(route={"gateway": {"name": "a"}, "hostnames": ["a.b"], "grpc": {"listener": "c"}})
    objects = children() + explicit + engines[0] + engines[1] + routed
    assert {o["kind"] for o in objects} == {kind.kind for kind in KINDS}
    for obj in objects:
        metadata = obj["metadata"]
        assert metadata["namespace"] == gen.NAMESPACE
        assert metadata["name"] in (gen.NAME, f"{gen.NAME}-headless", f"tritonmodel-{gen.NAME}")
        assert {k: metadata["labels"][k] for k in names.labels(gen.NAME)} == names.labels(gen.NAME)
        assert [(o["uid"], o["controller"]) for o in metadata["ownerReferences"]] == [(gen.UID, True)]


def test_selectors_match_only_the_pods_of_their_tritonmodel() -> None:
    own = names.selector(gen.NAME)
    by_kind = {o["kind"]: o["spec"] for o in children() if "spec" in o}
    assert by_kind["Service"]["selector"] == own
    assert by_kind["NetworkPolicy"]["podSelector"] == {"matchLabels": own}
    for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor"):
        assert by_kind[kind]["selector"] == {"matchLabels": own}


def test_pod_template_cannot_override_the_operators_labels_and_annotations() -> None:
    template = next(o for o in children() if o["kind"] == "Deployment")["spec"]["template"]
    assert set(template["metadata"]) == {"labels", "annotations"}
    assert template["metadata"]["labels"].items() >= names.labels(gen.NAME).items()
    assert FOREIGN not in template["metadata"]["labels"].values()
    assert template["metadata"]["annotations"][names.ANNOTATION_TEMPLATE] != "mine"


@pytest.mark.parametrize(
    "name",
    ['a"}_or_up{b="', "a\\", 'a\\"}', "$1", "${1}", "a\n}or_up", '"or"vector(1)#', "{{$labels.x}}", ".*|.+", "`up`"],
)
def test_model_name_cannot_inject_promql(name: str) -> None:
    """The rules differ from those of an ordinary name only in the quoted name."""
    ordinary, hostile = (exprs(entrypoint) for entrypoint in (PLAIN, name))
    assert any(quote(PLAIN) in expr for expr in ordinary)
    # In the replacement of label_replace, $ is escaped as $$.
    tagged, doubled = (f'"model", {quote(n)}, "", ""' for n in (PLAIN, name.replace("$", "$$")))
    assert hostile == [expr.replace(tagged, doubled).replace(quote(PLAIN), quote(name)) for expr in ordinary]


def exprs(entrypoint: str) -> list[str]:
    facts = Facts("operator:1", "Copy", entrypoint=entrypoint, ensemble=True, replicas=2)
    rule = next(o for o in render(gen.model(), facts) if o["kind"] == "PrometheusRule")
    return [r["expr"] for group in rule["spec"]["groups"] for r in group["rules"]]


def test_alert_labels_are_not_evaluated_as_templates() -> None:
    """Prometheus would run the user's query with its own access to all series."""
    rule = next(o for o in children() if o["kind"] == "PrometheusRule")
    alerts = [r for group in rule["spec"]["groups"] for r in group["rules"] if "alert" in r]
    assert alerts
    for alert in alerts:
        assert alert["labels"]["team"] == '{{"{{"}} query "up" }}'
