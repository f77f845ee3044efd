"""Thresholds in a real Prometheus: in effect within seconds, told to whom it concerns, and still there while the
operator or Prometheus is not."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, pairwise
from statistics import median

import pytest

from support.api import condition, eventually
from support.cluster import NAMESPACE, Cluster, Namespace
from support.live import ANNOTATION, CYCLE_SECONDS, SPEC, Change, Subject, pause, percentile, restarts
from support.load import load
from support.prometheus import Monitoring, Sample, threshold

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

PROMISED_SECONDS = 30
ALERT = "TritonModelQpsOverflow"
LIMIT, LOAD = 3, 12
GAP_SECONDS = 5 * CYCLE_SECONDS
"""Some evaluations may be missed on a busy machine: a rate over a minute and Alertmanager bear that."""


@pytest.fixture(scope="module")
def subjects(cluster: Cluster, monitoring: Monitoring, shared_namespace: Namespace) -> dict[str, Subject]:
    """Four TritonModels, served, and known to Prometheus with a limit of 1000."""
    names = ("echo", "other", "third", "fourth")
    for name in names:
        model = shared_namespace.model(name, cluster.image(), **SPEC)
        shared_namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": {ANNOTATION: "1000"}}})
    found = {name: Subject(monitoring, shared_namespace, name) for name in names}
    for name, subject in found.items():
        shared_namespace.settled(name)
        subject.known(hurry=True)
    return found


@pytest.fixture
def other(subjects: dict[str, Subject]) -> Subject:
    return subjects["other"]


def test_twenty_changes_are_each_in_effect_within_the_time_promised_and_restart_nothing(
    subjects: dict[str, Subject], record_property: pytest.RecordProperty, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _lives(subjects)
    # The usual way takes a minute; meanwhile the limits of the other two are changed again and again.
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(_changed, subjects[name], times=9) for name in ("echo", "other")]
        # (By the setup these two begin just after the kubelet has looked, and so wait longer than most.)
        jobs += [pool.submit(_changed, subjects[name], times=1, rule=True) for name in ("third", "fourth")]
    changes = [change for job in jobs for change in job.result()]
    live, by_rule = [c.live_s for c in changes], [c.rule_s for c in changes if c.rule_s is not None]
    figures = {
        "p50_s": round(median(live), 2),
        "p99_s": round(percentile(live, 0.99), 2),
        "rule_path_s": [round(s, 1) for s in by_rule],
        "restarts": restarts(before, _lives(subjects)),
    }
    record_property("threshold_live", json.dumps(figures))
    with capsys.disabled():
        print(f"\n{len(changes)} changes of a threshold: {json.dumps(figures)}")
    assert len(changes) == 20
    assert max(live) <= PROMISED_SECONDS
    assert figures["restarts"] == 0
    assert before.keys() == _lives(subjects).keys()


def _changed(subject: Subject, times: int, rule: bool = False) -> list[Change]:
    changes = []
    for _ in range(times):
        pause()
        changes.append(subject.change(rule))
    return changes


def _lives(subjects: dict[str, Subject]) -> dict[str, int]:
    return {uid: count for subject in subjects.values() for uid, count in subject.lives().items()}


def test_a_change_is_told_in_the_status_in_an_event_and_in_the_log(
    cluster: Cluster, shared_namespace: Namespace, other: Subject
) -> None:
    change = other.change()
    words = f"max-qps: {change.old:g} → {change.new:g}"

    def live() -> str:
        found = condition(shared_namespace.api.get("TritonModel", "other"), "ThresholdLive")
        good = found.get("status") == "True" and f"max-qps {change.new:g}" in found["message"]
        return str(found["message"]) if good else ""

    told = eventually(live, PROMISED_SECONDS, lambda: shared_namespace.told("other"))
    seconds = re.search(r"; ([\d.]+) s after it was set", told)
    assert seconds is not None, told
    assert float(seconds[1]) <= PROMISED_SECONDS
    eventually(lambda: words in shared_namespace.kubectl("events", "--for=tritonmodel/other"), 10, words)
    (line,) = [
        found
        for text in cluster.kubectl("-n", NAMESPACE, "logs", cluster.leader()).splitlines()
        if (found := _parsed(text)).get("threshold") == "max-qps" and found.get("new") == f"{change.new:g}"
    ]
    assert (line["key"], line["old"]) == (f"{shared_namespace.name}/other", f"{change.old:g}")


def _parsed(line: str) -> dict[str, object]:
    return json.loads(line) if line.startswith("{") else {}


def test_a_value_that_means_nothing_is_refused_and_nothing_changes(other: Subject, shared_namespace: Namespace) -> None:
    before = shared_namespace.api.get("TritonModel", "other")["metadata"]["annotations"][ANNOTATION]
    told = shared_namespace.kubectl("annotate", "tm/other", "--overwrite", f"{ANNOTATION}=80qps", check=False)
    assert f"{ANNOTATION}: '80qps' is not a plain number such as 80 or 12.5 (without a unit)" in told
    assert shared_namespace.api.get("TritonModel", "other")["metadata"]["annotations"][ANNOTATION] == before


def test_the_other_spelling_is_in_effect_as_soon_and_so_is_the_removal(other: Subject) -> None:
    other.annotate("max_qps=77", f"{ANNOTATION}-")
    try:
        eventually(lambda: other.value() == 77, PROMISED_SECONDS, lambda: f"77, not {other.value()}")
        other.annotate("max_qps-")
        eventually(lambda: other.value() == float("inf"), PROMISED_SECONDS, lambda: f"no limit, not {other.value()}")
    finally:
        other.annotate("max_qps-", f"{ANNOTATION}=1000")


@pytest.fixture(scope="module")
def called(subjects: dict[str, Subject], shared_namespace: Namespace) -> Iterator[Subject]:
    """A server that gets more requests than LIMIT allows. None of them fails, whatever becomes of the operator."""
    with load(shared_namespace, "echo", LOAD) as during:
        yield subjects["echo"]
    assert during.failures() == []


@pytest.fixture
def overloaded(called: Subject, monitoring: Monitoring, shared_namespace: Namespace) -> Subject:
    """That server while the alert fires in Prometheus and its receiver was told."""
    called.annotate(f"{ANNOTATION}={LIMIT}")
    about = _about(shared_namespace)
    eventually(lambda: monitoring.fires(ALERT, **about), 150, lambda: _seen(monitoring, shared_namespace), every=0.5)
    eventually(lambda: _last_told(monitoring, shared_namespace) == "firing", 60, "the receiver to be told", every=0.5)
    return called


def test_load_over_the_limit_reaches_the_receiver(
    overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    told = monitoring.received(ALERT, **_about(shared_namespace))[-1]
    assert told["labels"]["severity"] == "critical"
    assert told["annotations"]["summary"].startswith(f"{shared_namespace.name}/echo gets ")
    assert told["annotations"]["summary"].endswith(f"its max-qps is {LIMIT}")
    # Of a model without load nobody is told.
    assert not monitoring.alerts(ALERT, namespace=shared_namespace.name, tritonmodel="other")


def test_without_a_leader_there_is_no_gap_and_a_change_is_in_effect_as_soon(
    cluster: Cluster, overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    start = time.time() - GAP_SECONDS
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", cluster.leader(), "--force", "--grace-period=0", "--wait=false")
    changed = time.monotonic()
    overloaded.annotate(f"{ANNOTATION}={LIMIT + 1}")
    eventually(lambda: overloaded.value() == LIMIT + 1, PROMISED_SECONDS, lambda: f"not {overloaded.value()}")
    assert time.monotonic() - changed <= PROMISED_SECONDS
    _operator(cluster, 2)
    time.sleep(2 * CYCLE_SECONDS)
    samples = _samples(monitoring, shared_namespace, since=start)
    assert _values(samples) == [LIMIT, LIMIT + 1], samples
    assert _longest_gap(samples) <= GAP_SECONDS, samples
    assert monitoring.fires(ALERT, **_about(shared_namespace))


def test_without_operator_and_with_a_prometheus_that_knows_nothing_the_alert_is_neither_silent_nor_wrong(
    cluster: Cluster, overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    eventually(lambda: overloaded.value() == LIMIT, PROMISED_SECONDS)
    resolved = _times_resolved(monitoring, shared_namespace)
    start = time.time()
    try:
        _operator(cluster, 0)
        eventually(lambda: overloaded.value("triton:threshold:live") is None, 60, "the operator's value to be gone")
        time.sleep(3 * CYCLE_SECONDS)
        # The last value that the operator told stays in force, and the alert goes on.
        assert overloaded.value("triton:threshold:live") is None
        assert overloaded.value("triton:threshold:last") == LIMIT
        assert monitoring.fires(ALERT, **_about(shared_namespace))
        before = _samples(monitoring, shared_namespace, since=start)

        down = time.time()
        monitoring.restart()
        eventually(monitoring.answers, 180, "Prometheus to be back", every=0.5)
        took = time.time() - down
        # Now nobody knows but the rule itself.
        eventually(lambda: overloaded.value("triton:threshold:last") is None and overloaded.value() == LIMIT, 60)
        eventually(lambda: monitoring.fires(ALERT, **_about(shared_namespace)), 150, "the alert again", every=0.5)
        after = _samples(monitoring, shared_namespace, since=down)
    finally:
        _operator(cluster, 2)
    assert _values(before) == _values(after) == [LIMIT], (before, after)
    assert max(_longest_gap(before), _longest_gap(after)) <= GAP_SECONDS, (before, after)
    assert after[0].at - before[-1].at <= took + 2 * GAP_SECONDS

    # The operator takes over again without a step.
    eventually(lambda: overloaded.value("triton:threshold:live") == LIMIT, 60, "the operator's value again")
    time.sleep(2 * CYCLE_SECONDS)
    whole = _samples(monitoring, shared_namespace, since=down)
    assert _values(whole) == [LIMIT], whole
    assert _longest_gap(whole) <= GAP_SECONDS, whole
    assert monitoring.fires(ALERT, **_about(shared_namespace))
    assert _times_resolved(monitoring, shared_namespace) == resolved


def test_a_higher_limit_ends_the_alert(
    overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    overloaded.annotate(f"{ANNOTATION}=1000")
    eventually(lambda: not monitoring.alerts(ALERT, **_about(shared_namespace)), PROMISED_SECONDS, "no alert")
    # A Prometheus that has just loaded its rules knows no Alertmanager for some seconds. What it couldn't tell it tells
    # again after a minute (--rules.alert.resend-delay).
    eventually(
        lambda: _last_told(monitoring, shared_namespace) == "resolved", 150, "the receiver to be told", every=0.5
    )


def _operator(cluster: Cluster, replicas: int) -> None:
    """Scales the operator and waits until so many are there."""
    cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", f"--replicas={replicas}")
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/triton-operator", "--timeout=90s")
    mine = "app.kubernetes.io/name=triton-operator"
    eventually(
        lambda: len(cluster.api.list("Pod", mine, NAMESPACE)) == replicas, 90, f"{replicas} pods of the operator"
    )


def _about(namespace: Namespace) -> dict[str, str]:
    return {"namespace": namespace.name, "tritonmodel": "echo"}


def _samples(monitoring: Monitoring, namespace: Namespace, since: float) -> list[Sample]:
    return monitoring.samples(threshold(namespace.api, "echo"), time.time() - since)


def _values(samples: list[Sample]) -> list[float]:
    """The values in their order, each as often as it came anew."""
    return [value for value, _ in groupby(s.value for s in samples)]


def _longest_gap(samples: list[Sample]) -> float:
    assert len(samples) > 1, samples
    return max(after.at - before.at for before, after in pairwise(samples))


def _last_told(monitoring: Monitoring, namespace: Namespace) -> str:
    told = monitoring.received(ALERT, **_about(namespace))
    return str(told[-1]["status"]) if told else ""


def _times_resolved(monitoring: Monitoring, namespace: Namespace) -> int:
    return sum(a["status"] == "resolved" for a in monitoring.received(ALERT, **_about(namespace)))


def _seen(monitoring: Monitoring, namespace: Namespace) -> str:
    """What the alert is made from, for a failure's message."""
    own = f'namespace="{namespace.name}",tritonmodel="echo"'
    demand = monitoring.query(f"triton:demand:rate1m{{{own}}}")
    return f"demand {demand}, limit {monitoring.query(threshold(namespace.api, 'echo'))}, {monitoring.alerts(ALERT)}"


def test_an_on_call_engineer_may_set_thresholds_and_nothing_else_and_a_developer_the_rest(
    cluster: Cluster, namespace: Namespace
) -> None:
    namespace.api.apply(namespace.model("guarded", cluster.image(), replicas=0))
    for user, role in (("dev", "developer"), ("anna", "oncall")):
        namespace.kubectl("create", "rolebinding", user, f"--clusterrole=tritonmodel-{role}", f"--user={user}")
    eventually(lambda: "guarded" in namespace.kubectl("--as=anna", "get", "tm", check=False), 20, "the bindings")

    def annotate(user: str, value: int) -> str:
        arguments = ("annotate", "tm/guarded", "--overwrite", f"{ANNOTATION}={value}")
        return namespace.kubectl(f"--as={user}", *arguments, check=False)

    def template(user: str, part: str) -> str:
        patch = f'{{"spec":{{"podTemplate":{part}}}}}'
        return namespace.kubectl(f"--as={user}", "patch", "tm/guarded", "--type=merge", "-p", patch, check=False)

    assert "annotated" in annotate("anna", 60)
    assert "annotated" in annotate("anna", 80)
    assert f"dev may not set thresholds ({ANNOTATION}: 80 → 1000)" in annotate("dev", 1000)
    noted, on_the_node = '{"metadata":{"annotations":{"team":"vision"}}}', '{"spec":{"hostNetwork":true}}'
    assert "anna may set thresholds only, and not change spec" in template("anna", noted)
    assert "patched" in template("dev", noted)
    assert "ask for the verb create on pods" in template("dev", on_the_node)
    found = namespace.api.get("TritonModel", "guarded")
    assert found["metadata"]["annotations"][ANNOTATION] == "80"
    assert _audited(cluster, namespace.name) == [
        ("anna", 200, f"{ANNOTATION}: none → 60"),
        ("anna", 200, f"{ANNOTATION}: 60 → 80"),
        ("dev", 403, f"{ANNOTATION}: 80 → 1000"),
    ]


def _audited(cluster: Cluster, namespace: str) -> list[tuple[str, int, str]]:
    """Who changed which threshold of a namespace, or tried to, by the API server's audit log."""
    command = ["docker", "exec", cluster.node, "grep", "-F", namespace, "/var/log/kubernetes/audit.log"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    own = "thresholds.tritonoperator.io"
    return [
        (event["annotations"][f"{own}/changed-by"], event["responseStatus"]["code"], changes)
        for event in map(json.loads, lines)
        if event["objectRef"]["namespace"] == namespace
        and (changes := event.get("annotations", {}).get(f"{own}/changes"))
    ]
