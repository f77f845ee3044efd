"""Thresholds with a real Prometheus: changes are live within seconds, are reported, and survive outages of the operator
and of Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

import pytest

from hack.world import settings
from kubectl_triton.forward import forward
from support import clock, evidence
from support.api import condition, eventually
from support.cluster import NAMESPACE, ROOT, Cluster, Namespace
from support.live import ANNOTATION, CYCLE_SECONDS, SPEC, Change, Subject, pause, percentile, restarts
from support.load import load
from support.prometheus import Monitoring, Sample, threshold

pytestmark = [pytest.mark.e2e, pytest.mark.operation]

PROMISED_SECONDS = 30
ALERT = "TritonModelQpsOverflow"
LIMIT, LOAD = 3, 12
GAP_SECONDS = 5 * CYCLE_SECONDS
"""The longest accepted gap between samples. A busy machine may miss some evaluations, which the alerts tolerate."""


@pytest.fixture(scope="module")
def subjects(cluster: Cluster, monitoring: Monitoring, shared_namespace: Namespace) -> dict[str, Subject]:
    """Deploys four TritonModels with a limit of 1000, and waits until Prometheus knows them."""
    names = ("echo", "other", "third", "fourth")
    for name in names:
        model = shared_namespace.model(name, cluster.image(), **SPEC)
        shared_namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": {ANNOTATION: "1000"}}})
    subjects = {name: Subject(monitoring, shared_namespace, name) for name in names}
    for name, subject in subjects.items():
        shared_namespace.wait_until_complete(name)
        subject.wait_for_metrics(hurry=True)
    return subjects


@pytest.fixture
def other(subjects: dict[str, Subject]) -> Subject:
    return subjects["other"]


@pytest.mark.path
def test_every_change_is_live_within_the_promised_time_and_restarts_nothing(
    subjects: dict[str, Subject], record_property: pytest.RecordProperty, capsys: pytest.CaptureFixture[str]
) -> None:
    lives = _lives(subjects)
    # Waiting for the rule takes a minute; meanwhile the limits of the other two TritonModels change repeatedly.
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(_changed, subjects[name], times=9) for name in ("echo", "other")]
        # (After the setup these two start just after an update by the kubelet, so they wait longer than most.)
        jobs += [pool.submit(_changed, subjects[name], times=1, rule=True) for name in ("third", "fourth")]
    changes = [change for job in jobs for change in job.result()]
    live, by_rule = [c.live_s for c in changes], [c.rule_s for c in changes if c.rule_s is not None]
    figures = {
        "p50_s": round(median(live), 2),
        "p99_s": round(percentile(live, 0.99), 2),
        "rule_path_s": [round(s, 1) for s in by_rule],
        "restarts": restarts(lives, _lives(subjects)),
    }
    record_property("threshold_live", json.dumps(figures))
    with capsys.disabled():
        print(f"\n{len(changes)} changes of a threshold: {json.dumps(figures)}")
    assert len(changes) == 20
    assert max(live) <= PROMISED_SECONDS
    assert figures["restarts"] == 0
    assert lives.keys() == _lives(subjects).keys()


def _changed(subject: Subject, times: int, rule: bool = False) -> list[Change]:
    changes = []
    for _ in range(times):
        pause()
        changes.append(subject.change(rule))
    return changes


def _lives(subjects: dict[str, Subject]) -> dict[str, int]:
    return {uid: count for subject in subjects.values() for uid, count in subject.lives().items()}


def test_reports_a_change_in_the_status_in_an_event_and_in_the_log(
    cluster: Cluster, shared_namespace: Namespace, other: Subject
) -> None:
    change = other.change()
    words = f"max-qps: {change.old:g} → {change.new:g}"

    def live() -> str:
        entry = condition(shared_namespace.api.get("TritonModel", "other"), "ThresholdLive")
        is_live = entry.get("status") == "True" and f"max-qps {change.new:g}" in entry["message"]
        return str(entry["message"]) if is_live else ""

    message = eventually(live, PROMISED_SECONDS, lambda: shared_namespace.conditions_text("other"))
    seconds = re.search(r"; ([\d.]+) s after it was set", message)
    assert seconds is not None, message
    assert float(seconds[1]) <= PROMISED_SECONDS
    eventually(lambda: words in shared_namespace.kubectl("events", "--for=tritonmodel/other"), 60, words)
    (line,) = [
        record
        for text in cluster.kubectl("-n", NAMESPACE, "logs", cluster.leader()).splitlines()
        if (record := _parsed(text)).get("threshold") == "max-qps" and record.get("new") == f"{change.new:g}"
    ]
    assert (line["key"], line["old"]) == (f"{shared_namespace.name}/other", f"{change.old:g}")


def _parsed(line: str) -> dict[str, object]:
    return json.loads(line) if line.startswith("{") else {}


def test_refuses_an_invalid_value_without_a_change(other: Subject, shared_namespace: Namespace) -> None:
    value = shared_namespace.api.get("TritonModel", "other")["metadata"]["annotations"][ANNOTATION]
    output = shared_namespace.kubectl("annotate", "tm/other", "--overwrite", f"{ANNOTATION}=80qps", check=False)
    assert f"{ANNOTATION}: '80qps' is not a plain number such as 80 or 12.5 (without a unit)" in output
    assert shared_namespace.api.get("TritonModel", "other")["metadata"]["annotations"][ANNOTATION] == value


def test_the_alias_and_its_removal_are_live_within_the_promised_time(other: Subject) -> None:
    other.annotate("max_qps=77", f"{ANNOTATION}-")
    try:
        eventually(lambda: other.value() == 77, PROMISED_SECONDS, lambda: f"77, not {other.value()}")
        other.annotate("max_qps-")
        eventually(lambda: other.value() is None, PROMISED_SECONDS, lambda: f"no limit, not {other.value()}")
    finally:
        other.annotate("max_qps-", f"{ANNOTATION}=1000")


@pytest.fixture(scope="module")
def called(subjects: dict[str, Subject], shared_namespace: Namespace) -> Iterator[Subject]:
    """Sends more requests than LIMIT to a server. None of them may fail, even without an operator."""
    with load(shared_namespace, "echo", LOAD) as traffic:
        yield subjects["echo"]
    with evidence.collected():
        assert traffic.failures() == []


@pytest.fixture
def overloaded(called: Subject, monitoring: Monitoring, shared_namespace: Namespace) -> Subject:
    """Sets the limit, and waits until the alert fires in Prometheus and the receiver has got it."""
    called.annotate(f"{ANNOTATION}={LIMIT}")
    labels = _about(shared_namespace)
    eventually(lambda: monitoring.fires(ALERT, **labels), 150, lambda: _seen(monitoring, shared_namespace), every=0.5)
    # After Prometheus loads its configuration, it finds no Alertmanager for some seconds. It sends missed alerts again
    # after a minute (--rules.alert.resend-delay).
    eventually(
        lambda: _last_notification(monitoring, shared_namespace) == "firing", 150, "the receiver to get the alert", 0.5
    )
    return called


@pytest.mark.path
def test_the_receiver_gets_the_alert_for_load_above_the_limit(
    overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    alert = monitoring.received(ALERT, **_about(shared_namespace))[-1]
    assert alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["summary"].startswith(f"{shared_namespace.name}/echo gets ")
    assert alert["annotations"]["summary"].endswith(f"more than its max-qps of {LIMIT}")
    # There is no alert for a TritonModel without load.
    assert not monitoring.alerts(ALERT, namespace=shared_namespace.name, tritonmodel="other")


def test_explain_alert_says_what_fires_and_how_to_change_the_limit(
    overloaded: Subject,
    cluster: Cluster,
    shared_namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv("PATH", f"{ROOT / '.venv' / 'bin'}:{settings.search_path()}")
    picture = tmp_path / "alert.svg"
    with forward("monitoring", "prometheus-triton-0", 9090) as address:
        command = ["kubectl", "triton", "explain-alert", "echo", "--prometheus", f"http://{address}", "--svg", picture]
        process = subprocess.run(
            [*command, "-n", shared_namespace.name], capture_output=True, text=True, check=False, timeout=60
        )
    assert process.returncode == 0, process.stdout + process.stderr
    words = " ".join(process.stdout.split())
    assert words.startswith(f"{ALERT} (critical) fires for {shared_namespace.name}/echo"), process.stdout
    assert f"threshold max-qps {LIMIT}, accepted" in words, process.stdout
    demand = re.search(r" demand ([\d.]+) requests/s", words)
    assert demand, process.stdout
    assert LIMIT < float(demand[1]) < 2 * LOAD, process.stdout
    assert f"kubectl annotate tm/echo -n {shared_namespace.name} {ANNOTATION}=" in words, process.stdout
    paths = [e for e in ElementTree.parse(picture).iter() if e.tag.endswith("path")]
    assert len(paths) == 3, "the demand, its limit, and the begin of the alert's condition"


def test_a_change_is_live_in_time_and_without_a_gap_while_there_is_no_leader(
    cluster: Cluster, overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    # The samples from here on begin with the limit.
    eventually(
        lambda: _values(_samples(monitoring, shared_namespace, since=time.time() - GAP_SECONDS)) == [LIMIT], 120,
        lambda: _samples(monitoring, shared_namespace, since=time.time() - GAP_SECONDS), every=1,
    )  # fmt: skip
    start = time.time() - GAP_SECONDS
    cluster.kill_leader()
    moment = clock.of_an_idle_machine()
    overloaded.annotate(f"{ANNOTATION}={LIMIT + 1}")
    eventually(lambda: overloaded.value() == LIMIT + 1, PROMISED_SECONDS, lambda: f"not {overloaded.value()}")
    assert clock.of_an_idle_machine() - moment <= PROMISED_SECONDS
    _operator(cluster, 2)
    samples = _samples_of_more_cycles(monitoring, shared_namespace, start, 2)
    assert _values(samples) == [LIMIT, LIMIT + 1], samples
    assert _longest_gap(samples) <= GAP_SECONDS, samples
    assert monitoring.fires(ALERT, **_about(shared_namespace))


def test_the_alert_keeps_firing_without_the_operator_and_after_a_restart_of_prometheus(
    cluster: Cluster, overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    eventually(lambda: overloaded.value() == LIMIT, 60)
    count = _times_resolved(monitoring, shared_namespace)
    selector = threshold(shared_namespace.api, overloaded.name, "triton_operator_threshold")
    start = time.time()
    try:
        _operator(cluster, 0)
        eventually(lambda: not monitoring.query(selector), 60, "the operator's metric is missing")
        # The rules use the last accepted value, and the alert keeps firing.
        old_samples = _samples_of_more_cycles(monitoring, shared_namespace, start, 3)
        assert not monitoring.query(selector)
        assert overloaded.value() == LIMIT
        assert monitoring.fires(ALERT, **_about(shared_namespace))

        restart_time = time.time()
        monitoring.restart()
        eventually(monitoring.answers, 180, "Prometheus answers", every=0.5)
        outage = time.time() - restart_time
        # Only the fallback value in the rule is left.
        eventually(lambda: overloaded.value() == LIMIT, 60)
        eventually(lambda: monitoring.fires(ALERT, **_about(shared_namespace)), 150, "the alert fires again", every=0.5)
        new_samples = _samples(monitoring, shared_namespace, since=restart_time)
    finally:
        _operator(cluster, 2)
    assert _values(old_samples) == _values(new_samples) == [LIMIT], (old_samples, new_samples)
    assert max(_longest_gap(old_samples), _longest_gap(new_samples)) <= GAP_SECONDS, (old_samples, new_samples)
    assert new_samples[0].at - old_samples[-1].at <= outage + 2 * GAP_SECONDS

    # The value doesn't change when the operator's metric returns.
    eventually(lambda: bool(monitoring.query(selector)), 60, "the operator's metric returns")
    samples = _samples_of_more_cycles(monitoring, shared_namespace, restart_time, 2)
    assert _values(samples) == [LIMIT], samples
    assert _longest_gap(samples) <= GAP_SECONDS, samples
    assert monitoring.fires(ALERT, **_about(shared_namespace))
    assert _times_resolved(monitoring, shared_namespace) == count


@pytest.mark.path
def test_a_higher_limit_resolves_the_alert(
    overloaded: Subject, monitoring: Monitoring, shared_namespace: Namespace
) -> None:
    overloaded.annotate(f"{ANNOTATION}=1000")
    eventually(lambda: not monitoring.alerts(ALERT, **_about(shared_namespace)), PROMISED_SECONDS, "no alert")
    eventually(
        lambda: _last_notification(monitoring, shared_namespace) == "resolved", 150, "the receiver to get it", 0.5
    )


def _operator(cluster: Cluster, replicas: int) -> None:
    """Scales the operator and waits until it works with this number of pods."""
    cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", f"--replicas={replicas}")
    cluster.wait_for_operator(replicas)


def _about(namespace: Namespace) -> dict[str, str]:
    return {"namespace": namespace.name, "tritonmodel": "echo"}


def _samples(monitoring: Monitoring, namespace: Namespace, since: float) -> list[Sample]:
    return monitoring.samples(threshold(namespace.api, "echo"), time.time() - since)


def _samples_of_more_cycles(monitoring: Monitoring, namespace: Namespace, since: float, cycles: int) -> list[Sample]:
    """Returns the samples after Prometheus has evaluated the rules for some more cycles."""
    until = time.time() + cycles * CYCLE_SECONDS

    def look() -> list[Sample]:
        samples = _samples(monitoring, namespace, since)
        return samples if samples and samples[-1].at > until else []

    return eventually(look, 120, f"samples until {until:.0f}", every=0.5)


def _values(samples: list[Sample]) -> list[float]:
    """Returns the values in order, without consecutive duplicates."""
    return [value for value, _ in groupby(s.value for s in samples)]


def _longest_gap(samples: list[Sample]) -> float:
    assert len(samples) > 1, samples
    return max(after.at - before.at for before, after in pairwise(samples))


def _last_notification(monitoring: Monitoring, namespace: Namespace) -> str:
    alerts = monitoring.received(ALERT, **_about(namespace))
    return str(alerts[-1]["status"]) if alerts else ""


def _times_resolved(monitoring: Monitoring, namespace: Namespace) -> int:
    return sum(a["status"] == "resolved" for a in monitoring.received(ALERT, **_about(namespace)))


def _seen(monitoring: Monitoring, namespace: Namespace) -> str:
    """Returns the inputs of the alert, for failure messages."""
    own = f'namespace="{namespace.name}",tritonmodel="echo"'
    demand = monitoring.query(f'tritonmodel:demand:rate1m{{version="",{own}}}')
    return f"demand {demand}, limit {monitoring.query(threshold(namespace.api, 'echo'))}, {monitoring.alerts(ALERT)}"


def test_the_on_call_role_may_set_only_thresholds_and_the_developer_role_all_else(
    cluster: Cluster, namespace: Namespace
) -> None:
    namespace.api.apply(namespace.model("guarded", cluster.image(), replicas=0))
    for user, role in (("dev", "developer"), ("anna", "oncall")):
        namespace.kubectl("create", "rolebinding", user, f"--clusterrole=tritonmodel-{role}", f"--user={user}")
        eventually(
            lambda user=user: "guarded" in namespace.kubectl(f"--as={user}", "get", "tm", check=False),
            60,
            "the binding",
        )

    def annotate(user: str, value: int) -> str:
        arguments = ("annotate", "tm/guarded", "--overwrite", f"{ANNOTATION}={value}")
        return namespace.kubectl(f"--as={user}", *arguments, check=False)

    def template(user: str, part: str) -> str:
        patch = f'{{"spec":{{"podTemplate":{part}}}}}'
        return namespace.kubectl(f"--as={user}", "patch", "tm/guarded", "--type=merge", "-p", patch, check=False)

    assert "annotated" in annotate("anna", 60)
    assert "annotated" in annotate("anna", 80)
    assert f"dev may not set thresholds ({ANNOTATION}: 80 → 1000)" in annotate("dev", 1000)
    note, host_network = '{"metadata":{"annotations":{"team":"vision"}}}', '{"spec":{"hostNetwork":true}}'
    assert "anna may set thresholds, but not change spec" in template("anna", note)
    assert "patched" in template("dev", note)
    assert "get a role with the verb create on pods" in template("dev", host_network)
    model = namespace.api.get("TritonModel", "guarded")
    assert model["metadata"]["annotations"][ANNOTATION] == "80"
    records = [
        ("anna", 200, f"{ANNOTATION}: none → 60"),
        ("anna", 200, f"{ANNOTATION}: 60 → 80"),
        ("dev", 403, f"{ANNOTATION}: 80 → 1000"),
    ]
    # The API server writes the log after it has answered.
    eventually(lambda: _audited(cluster, namespace.name) == records, 60, lambda: _audited(cluster, namespace.name))


def _audited(cluster: Cluster, namespace: str) -> list[tuple[str, int, str]]:
    """Returns the user, status and change of every threshold change in a namespace, from the audit log."""
    command = ["docker", "exec", cluster.node, "grep", "-F", namespace, "/var/log/kubernetes/audit.log"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    own = "thresholds.tritonoperator.io"
    return [
        (event["annotations"][f"{own}/changed-by"], event["responseStatus"]["code"], changes)
        for event in map(json.loads, lines)
        if event["objectRef"]["namespace"] == namespace
        and (changes := event.get("annotations", {}).get(f"{own}/changes"))
    ]
