"""Which Prometheus selects an object, by the rules of Kubernetes and prometheus-operator."""

from __future__ import annotations

from typing import Any

import pytest

from triton_operator.api.monitoring import Installed, Prometheus, Selection, describe, matches

LABELS = {"release": "prometheus", "team": "vision"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"matchLabels": {}}, True),
        ({"matchLabels": None, "matchExpressions": None}, True),
        ({"matchLabels": {"release": "prometheus"}}, True),
        ({"matchLabels": {"release": "prometheus", "team": "vision"}}, True),
        ({"matchLabels": {"release": "prometheus", "team": "other"}}, False),
        ({"matchLabels": {"absent": ""}}, False),
        (expression("team", "In", "speech", "vision"), True),
        (expression("team", "In", "speech"), False),
        (expression("absent", "In", "speech"), False),
        (expression("team", "NotIn", "speech"), True),
        (expression("team", "NotIn", "vision"), False),
        (expression("absent", "NotIn", "vision"), True),
        (expression("team", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("team", "DoesNotExist"), False),
        ({"matchLabels": {"release": "prometheus"}, **expression("team", "NotIn", "vision")}, False),
        ({"matchLabels": {"release": "other"}, **expression("team", "In", "vision")}, False),
    ],
)
def test_matches_label_selectors_as_kubernetes_does(selector: dict[str, Any], expected: bool) -> None:
    assert matches(selector, LABELS) is expected


@pytest.mark.parametrize(
    ("objects", "namespaces", "namespace", "expected"),
    [
        (None, {}, "vision", False),  # no object selector: selects nothing
        (None, None, "monitoring", False),
        ({}, None, "vision", False),  # no namespace selector: only its own namespace
        ({}, None, "monitoring", True),
        ({}, {}, "vision", True),  # empty namespace selector: all namespaces
        ({"matchLabels": {"release": "prometheus"}}, {}, "vision", True),
        ({"matchLabels": {"release": "other"}}, {}, "vision", False),
        ({}, {"matchLabels": {"watch": "me"}}, "vision", True),
        ({}, {"matchLabels": {"watch": "you"}}, "vision", False),
        ({}, {"matchLabels": {"watch": "me"}}, "monitoring", False),  # its own namespace doesn't match either
    ],
)
def test_selects_objects_as_prometheus_operator_does(
    objects: Any, namespaces: Any, namespace: str, expected: bool
) -> None:
    labels = {"watch": "me"} if namespace == "vision" else {}
    assert Selection(objects, namespaces).selects(LABELS, namespace, labels, "monitoring") is expected


ALL, NONE = Selection({}, {}), Selection(None, {})


def test_needs_a_prometheus_that_selects_rules_and_pod_monitors() -> None:
    def prometheus(name: str, rules: Selection, pods: Selection) -> Prometheus:
        return Prometheus("monitoring", name, f"http://{name}", rules, pods)

    both, rules, pods = prometheus("a", ALL, ALL), prometheus("b", ALL, NONE), prometheus("c", NONE, ALL)
    installed = Installed((pods, rules, both), {})
    assert [p.name for p in installed.selecting(LABELS, "vision")] == ["a"]


def test_matches_the_labels_of_the_namespace() -> None:
    chosen = Selection({}, {"matchLabels": {"team": "a"}})
    prometheus = Prometheus("monitoring", "x", "http://x", chosen, chosen)
    installed = Installed((prometheus,), {"first": {"team": "a"}, "second": {}})
    assert installed.selecting({}, "first") == [prometheus]
    assert installed.selecting({}, "second") == []
    assert installed.selecting({}, "unknown") == []
    assert Installed(None).selecting({}, "first") == []


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, "nothing"),
        ({}, "everything"),
        ({"matchLabels": {"release": "p", "a": "b"}}, "release=p, a=b"),
        (expression("team", "In", "a", "b"), "team In a,b"),
        ({"matchLabels": {"x": "y"}, **expression("team", "Exists")}, "x=y, team Exists"),
    ],
)
def test_describes_a_selector(selector: Any, text: str) -> None:
    assert describe(selector) == text
