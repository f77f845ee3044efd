"""The operator reconciles every accepted spec or reports the field, and keeps serving other TritonModels."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import urllib3
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support import controlplane, operator_process, specs
from support.api import Api, RefusedError, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.operator_process import Operator
from support.profiles import TIMES, batches, drawn, seed
from triton_operator.api import names, thresholds

pytestmark = pytest.mark.properties

Json = dict[str, Any]
RESYNC = 5
CANARIES = tuple((f"canary-{n}", f"canary-{n}-too") for n in range(8))
"""Pairs of ordinary TritonModels. They take turns, because the operator limits the rate of changes of one spec."""
MIN_WAIT_SECONDS = 180
"""The timeout of every wait. Usually a wait takes a second."""
_FIELD = re.compile(
    r"(^|[^a-zA-Z0-9])(spec|metadata|data)(\.|\[|:|/)|\.spec|\.metadata|request (body|entity) too large"
)
"""Matches a message that names a field."""
_numbers, _turns = itertools.count(1), itertools.cycle(CANARIES)


@dataclass
class Harness:
    plane: ControlPlane
    operator: Operator
    api: Api
    models: dict[str, Json] = field(default_factory=dict)
    """The accepted TritonModels, which are reconciled."""

    def model(self, name: str) -> Json:
        return self.api.get("TritonModel", name)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with controlplane.running() as plane:
        plane.install_crds()
        plane.install_monitoring()
        plane.install_keda()
        plane.install_routes()
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crowd"}})
        kubeconfig = operator_process.install(plane)
        folder = tmp_path_factory.mktemp("operator")
        with operator_process.running(kubeconfig, folder, RESYNC_SECONDS=str(RESYNC)) as operator:
            harness = Harness(plane, operator, plane.api.in_namespace("crowd"))
            for name in itertools.chain(*CANARIES):
                assert create(harness.api, {"modelImage": {"reference": "example.com/models:0"}}, name=name)[0]
            yield harness
            assert operator.stop() == 0
            assert "Traceback" not in operator.log


def create(api: Api, spec: Any, **metadata: Any) -> tuple[Json, str]:
    """Creates a TritonModel. Returns the stored object, or {} and the API server's refusal."""
    body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "spec": spec}
    try:
        return api.create({**body, "metadata": {**metadata, "namespace": api.namespace}}), ""
    except RefusedError as refusal:
        return {}, refusal.message


@pytest.mark.parametrize("number", range(3 * TIMES))
def test_reports_invalid_input_and_serves_others(harness: Harness, number: int) -> None:
    admitted: dict[str, Json] = {}
    for resource in drawn(specs.resources(), 15, seed() + number):
        name = resource["metadata"]["name"]
        if len(name) < 40:
            name = f"{name}-{next(_numbers)}" if name[-1:].isalnum() else name
        created, refusal = create(harness.api, resource["spec"], **{**resource["metadata"], "name": name})
        if created:
            admitted[name] = created
        else:
            assert _FIELD.search(refusal) or "already exists" in refusal, (resource, refusal)
    waiting = set(admitted)

    def all_are_handled() -> bool:
        waiting.difference_update([name for name in waiting if is_handled(harness, name)])
        return not waiting

    eventually(all_are_handled, MIN_WAIT_SECONDS, lambda: "\n\n".join(account(harness, name) for name in waiting))
    assert_canaries_work(harness)
    assert "Traceback" not in harness.operator.log
    harness.models |= admitted


def is_handled(harness: Harness, name: str) -> bool:
    """Returns whether each child of the TritonModel exists, or a condition explains why it doesn't."""
    model = harness.model(name)
    spec, status = model["spec"], model.get("status", {})
    if status.get("observedGeneration") != model["metadata"]["generation"]:
        return False
    condition_of = {
        ("ServiceAccount", names.account(name)): "Progressing",
        ("Service", name): "Progressing",
        ("Service", f"{name}-headless"): "Progressing",
        ("Deployment", name): "Progressing",
    }
    if spec.get("replicas", 1) > 1:
        condition_of["PodDisruptionBudget", name] = "Progressing"
    if spec["monitoring"]["enabled"]:
        condition_of["PodMonitor", name] = "MonitoringAvailable"
        if spec.get("entrypoint") and status.get("entrypointType"):
            condition_of["PrometheusRule", name] = "MonitoringAvailable"
    if spec.get("autoscaling", {}).get("engine") in ("HPA", "Direct"):
        condition_of["HorizontalPodAutoscaler", name] = "AutoscalerActive"
    if condition(model, "Progressing").get("reason") in ("SpecInvalid", "TooLarge"):
        return explained(condition(model, "Progressing"))
    return all(
        harness.api.find(kind, child) is not None or explained(condition(model, by))
        for (kind, child), by in condition_of.items()
    )


def account(harness: Harness, name: str) -> str:
    """Returns the TritonModel and its last log lines, for a failure message."""
    model, key = harness.model(name), f'"{harness.api.namespace}/{name}"'
    lines = [line[:3000] for line in harness.operator.log.splitlines() if key in line]
    return json.dumps([model["metadata"], model["spec"], model.get("status")])[:6000] + "\n" + "\n".join(lines[-5:])


def explained(reported: Json) -> bool:
    refused = reported.get("status") == "False" and reported.get("reason") in (
        "ApplyRefused", "SpecInvalid", "NameTaken", "TooLarge",
    )  # fmt: skip
    return refused and bool(_FIELD.search(reported["message"]) or reported["reason"] == "NameTaken")


def assert_canaries_work(harness: Harness) -> None:
    """Asserts that changes of ordinary TritonModels still reach their children."""
    image, canaries = f"example.com/triton:{next(_numbers)}", next(_turns)
    for name in canaries:
        harness.api.patch("TritonModel", name, {"spec": {"server": {"image": image}}})

    def follow(name: str) -> bool:
        deployment = harness.api.find("Deployment", name)
        return bool(deployment) and deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image

    for name in canaries:
        eventually(lambda n=name: follow(n), MIN_WAIT_SECONDS, lambda: harness.operator.log[-3000:])


@pytest.mark.parametrize("kilobytes", [250, 600, 1000, 1300, 1450, 2000, 4000])
def test_reports_objects_that_are_too_large(harness: Harness, kilobytes: int) -> None:
    """etcd's limit is 1.5 MiB. A Deployment is larger than its TritonModel, because it has managedFields."""
    name = f"large-{kilobytes}"
    env = [{"name": f"V{n}", "value": "v" * (kilobytes * 8)} for n in range(128)]
    spec = {"modelImage": {"reference": "a"}, "server": {"env": env}}
    created, refusal = create(harness.api, spec, name=name)
    if created:
        eventually(lambda: is_handled(harness, name), MIN_WAIT_SECONDS, lambda: account(harness, name)[-2000:])
        harness.api.delete("TritonModel", name)
    else:
        assert "too large" in refusal or "larger than max" in refusal, refusal
        assert kilobytes > 1000
    assert_canaries_work(harness)


DEEP = (300, 900, 3000, 9000)


def test_reports_deeply_nested_values(harness: Harness) -> None:
    """JSON parsers limit the depth. One object beyond a limit must not break every listing."""
    paths = {levels: harness.api.path("TritonModel", f"deep-{levels}") for levels in DEEP}
    with harness.plane.without_bounds():
        for levels in DEEP:
            spec = {"modelImage": {"reference": "a"}, "podTemplate": {"spec": {"deep": "HERE"}}}
            body = {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "metadata": {"name": f"deep-{levels}"},
                "spec": spec,
            }
            text = json.dumps(body).replace('"HERE"', '{"a":[' * (levels // 2) + "1" + "]}" * (levels // 2))
            assert send(harness, "POST", harness.api.path("TritonModel"), text).status == 201
        _assert_nesting_is_reported(harness, paths.values())


def _assert_nesting_is_reported(harness: Harness, paths: Collection[str]) -> None:
    def explained_as_text(path: str) -> bool:
        # The watch may have reported the object with the previous schema. It will report it again.
        patch = json.dumps({"metadata": {"annotations": {"touched": str(time.time_ns())}}})
        send(harness, "PATCH", path, patch, "application/merge-patch+json")
        # Python's parser limits the depth too, so this compares text.
        text = send(harness, "GET", path).data
        return b'"SpecInvalid"' in text and b"spec.podTemplate.spec: is nested deeper" in text

    for path in paths:
        eventually(lambda p=path: explained_as_text(p), MIN_WAIT_SECONDS, lambda: harness.operator.log[-2000:], every=2)
    passes = harness.operator.reconciles(result="ok")
    eventually(
        lambda: harness.operator.reconciles(result="ok") > passes + 4 * len(CANARIES),
        MIN_WAIT_SECONDS,
        "two listings",
    )
    assert_canaries_work(harness)
    for path in paths:
        assert send(harness, "DELETE", path).status == 200


def send(
    harness: Harness, method: str, path: str, body: str = "", content_type: str = "application/json"
) -> urllib3.BaseHTTPResponse:
    """Sends the text unchanged, because Python's encoder doesn't write all valid JSON."""
    headers = {"Authorization": "Bearer admin", "Content-Type": content_type}
    with urllib3.PoolManager(ca_certs=str(harness.plane.folder / "certs" / "apiserver.crt")) as pool:
        return pool.request(method, f"{harness.plane.url}{path}", body=body.encode(), headers=headers)


def test_accepts_unpaired_surrogates(harness: Harness) -> None:
    """JSON allows unpaired surrogates, UTF-8 doesn't. The API server replaces them; the operator accepts the result."""
    body = json.dumps(
        {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": "half", "annotations": {"a": "\ud800"}},
            "spec": {
                "modelImage": {"reference": "a\ud800"},
                "entrypoint": "\udfff\u0000",
                "server": {"env": [{"name": "A", "value": "\ud83d"}], "args": ["\udc00\ufffe\u0000"]},
                "podTemplate": {"metadata": {"annotations": {"b": "\ud800\u0000"}}},
            },
        }
    )
    answer = send(harness, "POST", harness.api.path("TritonModel"), body)
    assert answer.status == 201, answer.data
    eventually(lambda: is_handled(harness, "half"), MIN_WAIT_SECONDS, lambda: account(harness, "half"))


def test_names_the_field_that_only_the_schema_accepts(harness: Harness) -> None:
    """The state after an upgrade of the CRD without the operator."""
    crd = harness.plane.api.get("CustomResourceDefinition", f"{names.PLURAL}.{names.GROUP}")
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/entrypoint/pattern"
    change = [{"op": "replace", "path": path, "value": "."}]
    where = harness.plane.api.path("CustomResourceDefinition", crd["metadata"]["name"])
    harness.plane.api.request("PATCH", where, change, "application/json-patch+json")
    spec = {"modelImage": {"reference": "a"}, "entrypoint": "a/b"}
    try:
        eventually(lambda: create(harness.api, spec, name="odd")[0], MIN_WAIT_SECONDS, "the changed schema")
        eventually(
            lambda: condition(harness.model("odd"), "Progressing"),
            MIN_WAIT_SECONDS,
            lambda: account(harness, "odd"),
        )
        reported = condition(harness.model("odd"), "Progressing")
        assert (reported["status"], reported["reason"]) == ("False", "SpecInvalid")
        assert "spec.entrypoint" in reported["message"]
        assert_canaries_work(harness)
        harness.api.patch("TritonModel", "odd", {"spec": {"entrypoint": "a"}})
        eventually(lambda: is_handled(harness, "odd"), MIN_WAIT_SECONDS, lambda: account(harness, "odd"))
    finally:
        harness.api.delete("TritonModel", "odd")
        harness.plane.install_crds()


def test_nothing_is_written_afterwards(harness: Harness) -> None:
    """Refused writes are retried at growing intervals. The test deletes these TritonModels first."""
    for name in harness.models:
        model = harness.model(name)
        if any(c["reason"] == "ApplyRefused" for c in model["status"]["conditions"]):
            harness.api.delete("TritonModel", name)
    written = passes = before = 0.0

    def still() -> bool:
        nonlocal written, passes, before
        was, written = written, sum(harness.plane.writes().values())
        before, passes = passes, harness.operator.reconciles()
        return was == written

    eventually(still, MIN_WAIT_SECONDS, "no write for two resyncs", every=2 * RESYNC + 1)
    # Two or three listings in that time, and no hot loop: refused writes wait for their next retry.
    assert passes - before <= 5 * harness.operator.metric_sum("triton_operator_models")


@pytest.fixture(scope="module")
def policed(harness: Harness) -> Api:
    """A namespace with the policy `threshold-values`. The other namespaces don't have it."""
    root = "/apis/admissionregistration.k8s.io/v1"
    harness.plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "policed"}})
    policy, binding = yaml.safe_load_all((ROOT / "manifests/policies/threshold_values.yaml").read_text())
    only = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "policed"}}}
    binding["spec"]["matchResources"] = only
    harness.plane.api.request("POST", f"{root}/validatingadmissionpolicies", policy)
    harness.plane.api.request("POST", f"{root}/validatingadmissionpolicybindings", binding)
    api = harness.plane.api.in_namespace("policed")
    eventually(lambda: judged(api, {MAX_QPS: "fast"}, ""), MIN_WAIT_SECONDS, "the policy in effect")
    return api


MAX_QPS = f"{thresholds.PREFIX}max-qps"


def judged(api: Api, annotations: dict[str, str], counter: str) -> str:
    """Returns the refusal of a TritonModel with these annotations; "" if the API server accepts it."""
    monitoring = {"monitoring": {"tokenCounter": counter}} if counter else {}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "probe", "annotations": annotations},
        "spec": {"modelImage": {"reference": "a"}, **monitoring},
    }
    try:
        api.request("POST", api.path("TritonModel") + "?dryRun=All", body)
    except RefusedError as refusal:
        return refusal.message
    return ""


@batches(150)
@given(annotations=specs.ANNOTATIONS, counter=st.sampled_from(["", "tokens_total"]))
def test_the_policy_and_the_operator_agree(policed: Api, annotations: dict[str, str], counter: str) -> None:
    """The policy accepts what the operator can parse. It refuses invalid values and misspelled names of thresholds."""
    refusal = judged(policed, annotations, counter)
    if refusal and "threshold-values" not in refusal:
        assert "metadata.annotations" in refusal  # Kubernetes itself rejects the key
        return
    invalid = thresholds.parse(annotations, {"tokenCounter": counter}).invalid
    kinds = {kind.name for kind in thresholds.KINDS}
    nearly = [
        key
        for key in annotations
        if not thresholds.is_threshold(key)
        and (key.startswith(thresholds.PREFIX) or key.split(".")[0].replace("_", "-") in kinds)
    ]
    assert bool(refusal) == bool(invalid or nearly), (annotations, counter, refusal, invalid)
