"""What the operator makes of the world, on a real API server with the rights that it is installed with.

No kubelet and no controllers run here: where a test needs a pod's status, it writes it as the kubelet would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from support import gen, operator_process
from support.api import Api, Object, RefusedError, condition, eventually
from support.controlplane import ControlPlane
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make
from triton_operator.api import names

pytestmark = pytest.mark.integration

SOON = 10.0
CHILDREN = [("ServiceAccount", ""), ("Service", ""), ("Service", "-headless"), ("Deployment", "")]


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    kubeconfig = operator_process.install(control_plane)
    with operator_process.running(kubeconfig, tmp_path_factory.mktemp("operator")) as process:
        yield process
        assert process.stop() == 0
        # Whatever the tests of this module did, it never met what it can't deal with.
        assert "Traceback" not in process.log
        assert '"level": "ERROR"' not in process.log


def model(api: Api, name: str = gen.NAME) -> Object:
    return api.get("TritonModel", name)


def settled(api: Api, name: str = gen.NAME) -> Object:
    """The TritonModel as soon as its status is about its spec and its Deployment is there."""

    def look() -> Object | None:
        found = model(api, name)
        seen = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        return found if seen and condition(found, "Ready") else None

    return eventually(look, SOON, lambda: model(api, name))


def version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def progressing(api: Api, reason: str, name: str = gen.NAME) -> Object:
    """The condition Progressing as soon as it has this reason."""

    def look() -> Object | None:
        found = condition(model(api, name), "Progressing")
        return found if found.get("reason") == reason else None

    return eventually(look, SOON, lambda: model(api, name).get("status"))


# Making


def test_every_child_is_made_with_one_write(api: Api, operator: Operator) -> None:
    before = operator.writes()
    uid = make(api, replicas=2)["metadata"]["uid"]
    settled(api)
    for kind, suffix in [*CHILDREN, ("PodDisruptionBudget", "")]:
        child = api.get(kind, gen.NAME + suffix)
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True)
        ours = [f for f in child["metadata"]["managedFields"] if f["manager"] == names.FIELD_MANAGER]
        assert [f["operation"] for f in ours] == ["Apply"]
        assert child["metadata"].get("generation", 1) == 1
    time.sleep(1)
    # Five children; the status once, and once more at most where the Deployment's event came in between.
    assert 6 <= operator.writes() - before <= 7


def test_the_first_status_says_everything(api: Api, operator: Operator) -> None:
    make(api, entrypoint="detection")
    status = settled(api)["status"]
    assert {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]} == {
        "Ready": ("False", "Creating"), "Progressing": ("True", "RollingOut"),
        "ModelsLoaded": ("Unknown", "NoServerAnswers"),
        "ThresholdLive": ("Unknown", "NotMonitored"), "MonitoringAvailable": ("False", "CRDsMissing"),
    }  # fmt: skip
    assert status["endpoint"] == f"http://detection.{api.namespace}.svc:8000"
    assert status["selector"] == "app.kubernetes.io/name=triton,app.kubernetes.io/instance=detection"
    assert status["entrypoint"] == "detection"
    assert status["image"] == {"reference": gen.IMAGE, "digest": "", "delivery": "Copy"}


def test_a_change_of_the_spec_reaches_the_deployment(api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
    settled(api)
    assert api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["containers"][0]["image"] == "triton:2"


def test_a_field_that_the_spec_no_longer_has_goes(api: Api, operator: Operator) -> None:
    make(api, podTemplate={"spec": {"priorityClassName": "high", "nodeSelector": {"a": "b"}}})
    settled(api)
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None}})
    settled(api)
    pod = api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]
    assert "priorityClassName" not in pod
    assert not pod.get("nodeSelector")


def collect_the_servers(api: Api) -> None:
    """What Kubernetes' collector does, which doesn't run here: nothing is left of what the Deployment owned."""

    def told_to_go() -> bool:
        return "foregroundDeletion" in api.get("Deployment", gen.NAME)["metadata"].get("finalizers", ())

    eventually(told_to_go, 10 + SOON)
    api.patch("Deployment", gen.NAME, {"metadata": {"finalizers": None}})


def test_a_second_life_of_the_same_name_takes_away_what_the_first_has_left(api: Api, operator: Operator) -> None:
    """The second wants no network policy."""
    before = make(api, networkPolicy={})["metadata"]["uid"]
    settled(api)
    eventually(lambda: api.find("NetworkPolicy", gen.NAME), SOON)
    api.delete("TritonModel", gen.NAME)
    time.sleep(0.5)
    uid = make(api)["metadata"]["uid"]
    collect_the_servers(api)
    progressing(api, "RollingOut")
    for kind, suffix in CHILDREN:
        owner = api.get(kind, gen.NAME + suffix)["metadata"]["ownerReferences"][0]
        assert owner["uid"] == uid != before
    eventually(lambda: api.find("NetworkPolicy", gen.NAME) is None, SOON)


def test_what_lost_its_label_is_found_by_its_name_and_taken_away_too(api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    api.delete("TritonModel", gen.NAME)
    for kind, suffix in CHILDREN:
        api.patch(kind, gen.NAME + suffix, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
    uid = make(api)["metadata"]["uid"]
    collect_the_servers(api)
    progressing(api, "RollingOut")
    for kind, suffix in CHILDREN:
        assert api.get(kind, gen.NAME + suffix)["metadata"]["ownerReferences"][0]["uid"] == uid


def test_what_a_former_life_has_left_and_somebody_holds_is_told_with_who_holds_it(api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    api.patch("ServiceAccount", gen.NAME, {"metadata": {"finalizers": ["example.com/keep"]}})
    api.delete("TritonModel", gen.NAME)
    time.sleep(0.5)
    make(api)
    collect_the_servers(api)
    told = progressing(api, "FormerNotGone")["message"]
    assert f"ServiceAccount {api.namespace}/detection of a former TritonModel" in told
    assert "finalizers of others: example.com/keep" in told
    assert not api.find("Deployment", gen.NAME)
    assert api.find("Service", gen.NAME)
    api.patch("ServiceAccount", gen.NAME, {"metadata": {"finalizers": None}})
    progressing(api, "RollingOut")


# Keeping


@pytest.mark.parametrize(("kind", "suffix"), CHILDREN)
def test_a_deleted_child_is_made_again(kind: str, suffix: str, api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    before = api.get(kind, gen.NAME + suffix)["metadata"]["uid"]
    api.delete(kind, gen.NAME + suffix)
    again = eventually(lambda: api.find(kind, gen.NAME + suffix), SOON)
    assert again["metadata"]["uid"] != before


def test_an_edited_child_is_put_back_and_what_is_not_ours_stays(api: Api, operator: Operator) -> None:
    make(api, replicas=2)
    settled(api)
    debug = {"name": "debug", "port": 9000, "targetPort": 9000, "protocol": "TCP"}
    ports = api.get("Service", gen.NAME)["spec"]["ports"]
    foreign = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}
    api.patch("Service", gen.NAME, {**foreign, "spec": {"ports": [ports[0] | {"targetPort": 1}, debug]}})
    api.patch("Deployment", gen.NAME, {**foreign, "spec": {"progressDeadlineSeconds": 1}})
    api.patch("PodDisruptionBudget", gen.NAME, {"spec": {"maxUnavailable": 2}})
    api.patch("ServiceAccount", gen.NAME, {"automountServiceAccountToken": True})

    def repaired() -> bool:
        service, deployment = api.get("Service", gen.NAME), api.get("Deployment", gen.NAME)
        return (
            {p["name"]: p["targetPort"] for p in service["spec"]["ports"]}
            == {"http": "http", "grpc": "grpc", "metrics": "metrics", "debug": 9000}
            and deployment["spec"]["progressDeadlineSeconds"] == 1800
            and api.get("PodDisruptionBudget", gen.NAME)["spec"]["maxUnavailable"] == 1
            and api.get("ServiceAccount", gen.NAME)["automountServiceAccountToken"] is False
        )

    eventually(repaired, SOON, lambda: api.get("Service", gen.NAME))
    for kind in ("Service", "Deployment"):
        metadata = api.get(kind, gen.NAME)["metadata"]
        assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("a", "b")


@pytest.mark.parametrize("edit", [{"port": 80}, {"protocol": "UDP"}, {"port": 80, "protocol": "UDP"}], ids=str)
def test_a_port_whose_number_was_edited_is_put_back(edit: Object, api: Api, operator: Operator) -> None:
    """To the API server it is another port, that stands in the way of ours by its name."""
    make(api)
    settled(api)
    before = api.get("Service", gen.NAME)
    ports = before["spec"]["ports"]
    debug = {"name": "debug", "port": 9000, "targetPort": 9000, "protocol": "TCP"}
    api.patch("Service", gen.NAME, {"spec": {"ports": [ports[0] | edit, *ports[1:], debug]}})

    def now() -> list[Object]:
        return sorted(api.get("Service", gen.NAME)["spec"]["ports"], key=str)

    eventually(lambda: now() == sorted([*ports, debug], key=str), SOON, lambda: operator.log[-2000:])
    # And where nothing else is left.
    api.patch("Service", gen.NAME, {"spec": {"ports": [ports[0] | edit]}})
    eventually(lambda: now() == sorted(ports, key=str), SOON, lambda: operator.log[-2000:])
    assert api.get("Service", gen.NAME)["metadata"]["uid"] == before["metadata"]["uid"]
    assert progressing(api, "RollingOut")


def test_a_child_that_lost_its_label_is_found_again(api: Api, operator: Operator) -> None:
    """The watches select by the label: without it the object looks deleted."""
    make(api)
    settled(api)
    api.patch("Service", gen.NAME, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
    eventually(lambda: names.LABEL_MANAGED_BY in api.get("Service", gen.NAME)["metadata"]["labels"], SOON)


def test_a_child_that_lost_its_label_and_then_went_is_made_again(api: Api, operator: Operator) -> None:
    """No watch tells of its end; the operator learns of it when it puts the label back."""
    make(api)
    settled(api)
    for kind, suffix in CHILDREN:
        before = api.get(kind, gen.NAME + suffix)["metadata"]["uid"]
        api.patch(kind, gen.NAME + suffix, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
        time.sleep(0.2)  # it has been found again by then, and is not yet mended
        api.delete(kind, gen.NAME + suffix)
        again = eventually(lambda k=kind, s=suffix: api.find(k, gen.NAME + s), SOON, lambda: operator.log[-2000:])
        assert again["metadata"]["uid"] != before


def test_a_budget_comes_and_goes_with_the_second_replica(api: Api, operator: Operator) -> None:
    make(api, replicas=1)
    settled(api)
    assert api.find("PodDisruptionBudget", gen.NAME) is None
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 2}})
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON)
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 1}})
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME) is None, SOON)


def test_a_network_policy_comes_changes_and_goes_with_its_field(api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    assert api.find("NetworkPolicy", gen.NAME) is None
    api.patch("TritonModel", gen.NAME, {"spec": {"networkPolicy": {}}})
    made = eventually(lambda: api.find("NetworkPolicy", gen.NAME), SOON, lambda: operator.log)
    operators = {"matchLabels": {"kubernetes.io/metadata.name": operator_process.NAMESPACE}}
    assert made["spec"]["ingress"][-1]["from"][0]["namespaceSelector"] == operators
    assert "egress" not in made["spec"]
    api.patch("TritonModel", gen.NAME, {"spec": {"networkPolicy": {"egress": [{"ports": [{"port": 443}]}]}}})
    eventually(lambda: api.get("NetworkPolicy", gen.NAME)["spec"].get("egress"), SOON, lambda: operator.log)
    # Opened by somebody, it is closed again; unchanged, it is left alone.
    api.patch("NetworkPolicy", gen.NAME, {"spec": {"ingress": [{}]}})
    eventually(lambda: len(api.get("NetworkPolicy", gen.NAME)["spec"]["ingress"]) == 3, SOON, lambda: operator.log)
    settled(api)
    before = version(api.get("NetworkPolicy", gen.NAME))
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 2}})
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON)
    assert version(api.get("NetworkPolicy", gen.NAME)) == before
    api.patch("TritonModel", gen.NAME, {"spec": {"networkPolicy": None}})
    eventually(lambda: api.find("NetworkPolicy", gen.NAME) is None, SOON, lambda: operator.log)


# What belongs to others


@pytest.mark.parametrize("owned", [False, True], ids=["nobody's", "another's"])
def test_an_object_of_that_name_is_never_touched(owned: bool, api: Api, operator: Operator) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "controller": True}
    metadata = {"name": gen.NAME, "namespace": api.namespace, "labels": names.labels(gen.NAME) if owned else {}}
    foreign = api.create({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata | ({"ownerReferences": [owner]} if owned else {}),
        "spec": {"ports": [{"port": 1}]},
    })  # fmt: skip
    make(api)
    found = progressing(api, "NameTaken")
    assert found["status"] == "False"
    assert f"Service {api.namespace}/detection exists and doesn't belong to this TritonModel" in found["message"]
    assert version(api.get("Service", gen.NAME)) == version(foreign)
    # One refusal doesn't keep the others from being made.
    assert api.find("Deployment", gen.NAME)
    api.delete("Service", gen.NAME)
    made = eventually(lambda: api.find("Service", gen.NAME), SOON, lambda: operator.log)
    assert len(made["spec"]["ports"]) == 3
    progressing(api, "RollingOut")


def test_no_server_runs_as_an_account_of_somebody_else(api: Api, operator: Operator) -> None:
    """A TritonModel named after an account would have its rights, by the cloud's word even without a token."""
    foreign = api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": gen.NAME}})
    make(api)
    assert f"ServiceAccount {api.namespace}/detection exists" in progressing(api, "NameTaken")["message"]
    assert api.find("Service", gen.NAME)
    assert not api.find("Deployment", gen.NAME)
    assert version(api.get("ServiceAccount", gen.NAME)) == version(foreign)
    # Who may create pods may name an account.
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": {"spec": {"serviceAccountName": "other"}}}})
    eventually(lambda: api.find("Deployment", gen.NAME), SOON, lambda: operator.log)
    changed = api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None}})["metadata"]["generation"]

    def looked() -> bool:
        return bool(condition(api.get("TritonModel", gen.NAME), "Progressing").get("observedGeneration") == changed)

    eventually(looked, SOON, lambda: operator.log)
    template = api.get("Deployment", gen.NAME)["spec"]["template"]
    assert template["spec"]["serviceAccountName"] == "other"
    api.delete("ServiceAccount", gen.NAME)

    def own() -> bool:
        return bool(api.get("Deployment", gen.NAME)["spec"]["template"]["spec"]["serviceAccountName"] == gen.NAME)

    eventually(own, SOON, lambda: operator.log)
    assert api.get("ServiceAccount", gen.NAME)["metadata"]["ownerReferences"]


# Replicas


def test_replicas_are_handed_over_without_a_moment_at_one(api: Api, operator: Operator) -> None:
    make(api, replicas=4)
    settled(api)
    start = version(api.get("Deployment", gen.NAME))
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": None}})
    settled(api)
    api.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
    time.sleep(0.5)
    api.patch("TritonModel", gen.NAME, {"spec": {"server": {"image": "triton:2"}}})
    settled(api)
    # Every state there was, in order: the watch cache keeps them.
    seen = []
    for _, _, obj in api.watch("Deployment", version=start, seconds=2):
        seen.append(obj["spec"]["replicas"])
    assert set(seen) == {4, 5}
    assert seen == sorted(seen)
    ours = [
        f for f in api.get("Deployment", gen.NAME)["metadata"]["managedFields"] if f["manager"] == "triton-operator"
    ]
    assert all("f:replicas" not in f["fieldsV1"].get("f:spec", {}) for f in ours)
    # And back: the number of the spec counts again.
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 2}})
    eventually(lambda: api.get("Deployment", gen.NAME)["spec"]["replicas"] == 2, SOON)


def test_a_scaler_of_the_deployment_is_left_alone_and_its_fleet_gets_a_budget(api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    assert api.get("Deployment", gen.NAME)["spec"]["replicas"] == 1
    api.patch("Deployment", gen.NAME, {"spec": {"replicas": 5}}, "scale")
    eventually(lambda: api.find("PodDisruptionBudget", gen.NAME), SOON)
    time.sleep(0.5)
    assert api.get("Deployment", gen.NAME)["spec"]["replicas"] == 5


def test_the_scale_subresource_of_the_model(api: Api, operator: Operator) -> None:
    make(api, replicas=1)
    settled(api)
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 3}}, "scale")
    eventually(lambda: api.get("Deployment", gen.NAME)["spec"]["replicas"] == 3, SOON)
    scale = api.request("GET", api.path("TritonModel", gen.NAME) + "/scale")
    assert scale["status"]["selector"] == "app.kubernetes.io/name=triton,app.kubernetes.io/instance=detection"
    api.patch("TritonModel", gen.NAME, {"spec": {"replicas": 0}}, "scale")
    eventually(lambda: condition(model(api), "Ready").get("reason") == "ScaledToZero", SOON)


# What the API server refuses later


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"spec": {"restartPolicy": "Never"}}, 'Unsupported value: "Never"'),
        ({"spec": {"fieldOfNobody": 1}}, "field not declared in schema"),
        ({"spec": {"containers": "triton"}}, "expected list"),
        ({"spec": {"containers": [{"name": {"odd": 1}}]}}, "failed to create typed patch object"),
        ({"spec": {"volumes": [{"name": "a"}, {"name": "🚦"}]}}, "🚦"),
        ({"metadata": {"annotations": {"a b": "x"}}}, "name part must consist of"),
        ({"metadata": {"annotations": {"huge": "ä" * 200_000}}}, "may not be more than 262144 bytes"),
    ],
    ids=["value", "field", "type", "name", "unicode", "annotation", "huge"],
)
def test_a_refused_pod_template_is_told_and_the_last_good_one_stays(
    template: Object, words: str, api: Api, operator: Operator
) -> None:
    make(api)
    settled(api)
    before = api.get("Deployment", gen.NAME)
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": template}})
    found = progressing(api, "ApplyRefused")
    assert found["status"] == "False"
    assert found["message"].startswith(f"the API server refuses Deployment {api.namespace}/detection: ")
    assert words in found["message"]
    assert model(api)["status"]["observedGeneration"] == 2
    assert version(api.get("Deployment", gen.NAME)) == version(before)
    eventually(lambda: "ApplyRefused" in events(api), SOON)
    api.patch("TritonModel", gen.NAME, {"spec": {"podTemplate": None}})
    progressing(api, "RollingOut")


def test_any_character_reaches_the_pods(api: Api, operator: Operator) -> None:
    text = 'ä 漢字 🚦 \u0085 \x7f "\\ud83d" \n'
    make(api, podTemplate={"metadata": {"annotations": {"note": text}}})
    settled(api)
    assert api.get("Deployment", gen.NAME)["spec"]["template"]["metadata"]["annotations"]["note"] == text


# Pods


def events(api: Api) -> list[str]:
    """Reasons of the Events on TritonModels, in order."""
    found = [e for e in api.list("Event") if e["involvedObject"]["kind"] == "TritonModel"]
    return [e["reason"] for e in sorted(found, key=lambda e: int(version(e)))]


def ready(api: Api, reason: str) -> Object:
    def look() -> Object | None:
        found = condition(model(api), "Ready")
        return found if found.get("reason") == reason else None

    return eventually(look, SOON, lambda: model(api)["status"])


OOM = {"reason": "OOMKilled"}
FINDING = {"code": "TR101", "severity": "error", "file": "pre/config.pbtxt", "line": 7, "column": 3,
           "message": "a bracket is missing", "remedy": "close it"}  # fmt: skip


def test_the_life_of_a_pod_is_told_as_it_goes(api: Api, operator: Operator) -> None:
    import json

    make(api, entrypoint="detection", server={"resources": {"limits": {"memory": "8Gi"}}})
    settled(api)
    add_pod(api, gen.unschedulable("0/1 nodes are available: 1 Insufficient memory."))
    assert "Insufficient memory" in ready(api, "Unschedulable")["message"]
    add_pod(api, gen.waiting("fetch", "ImagePullBackOff", "Back-off pulling image: not found"))
    assert "not found" in ready(api, "ImagePullFailed")["message"]
    # The same trouble in other words is the same trouble: no second Event.
    add_pod(api, gen.waiting("fetch", "ErrImagePull", "manifest unknown"))
    eventually(lambda: "manifest unknown" in condition(model(api), "Ready")["message"], SOON)
    add_pod(api, gen.ended("check", 1, json.dumps(gen.report("pre", findings=[FINDING]))))
    assert "pre/config.pbtxt:7:3" in ready(api, "RepositoryInvalid")["message"]
    assert condition(model(api), "ModelsLoaded")["reason"] == "RepositoryInvalid"
    add_pod(api, gen.ended("triton", 137, **OOM))
    assert "limit of 8Gi" in ready(api, "OutOfMemory")["message"]
    since = condition(model(api), "Ready")["lastTransitionTime"]
    time.sleep(1.1)  # conditions have whole seconds
    good = gen.report("pre", "detection", entrypoint="detection")
    add_pod(api, gen.checked(good), gen.put("status.podIP", ""))
    assert ready(api, "EntrypointAnswers")["lastTransitionTime"] > since
    status = model(api)["status"]
    assert status["image"]["digest"] == gen.DIGEST
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    told = events(api)
    assert told == ["Unschedulable", "ImagePullFailed", "RepositoryInvalid", "OutOfMemory", "EntrypointAnswers"]


def test_bad_new_pods_beside_old_ones_that_serve(api: Api, operator: Operator) -> None:
    make(api, entrypoint="detection")
    settled(api)
    add_pod(api, gen.put("status.podIP", ""), name="old")
    ready(api, "EntrypointAnswers")
    api.patch("TritonModel", gen.NAME, {"spec": {"modelImage": {"reference": "r:typo"}}})
    settled(api)
    add_pod(api, gen.waiting("fetch", "ImagePullBackOff", "not found"), name="new")
    found = progressing(api, "ImagePullFailed")
    assert found["message"].endswith("the servers of the previous spec keep serving")
    assert condition(model(api), "Ready")["status"] == "True"
    assert api.find("Pod", "old")


def test_an_event_with_many_bytes_is_posted(api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    add_pod(api, gen.ended("triton", 1, "🚦" * 500))
    ready(api, "ServerCrashed")
    eventually(lambda: "ServerCrashed" in events(api), SOON, lambda: operator.log[-2000:])


def test_status_of_others_is_not_ours_to_keep(api: Api, operator: Operator) -> None:
    make(api)
    settled(api)
    api.patch("TritonModel", gen.NAME, {"status": {"loaded": "7/7"}}, "status")
    eventually(lambda: model(api)["status"].get("loaded") != "7/7", SOON)


def test_there_is_no_right_beyond_what_is_needed(control_plane: ControlPlane, operator: Operator) -> None:
    mine = Api.of(operator_process.install(control_plane))
    for kind in ("Secret", "ConfigMap"):
        with pytest.raises(RefusedError, match="forbidden"):
            mine.list(kind)
    with pytest.raises(RefusedError, match="forbidden"):
        mine.patch("TritonModel", "x", {"spec": {}})
    with pytest.raises(RefusedError, match="forbidden"):
        mine.patch("Pod", "x", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(RefusedError, match="forbidden"):
        mine.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}})
