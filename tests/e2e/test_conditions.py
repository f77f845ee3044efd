"""The API server refuses bad specs, and conditions report other errors with what to do."""

from __future__ import annotations

import pytest

from support.api import RefusedError, condition, eventually
from support.cluster import Cluster, Namespace

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"modelImage": {"reference": ""}}, "modelImage.reference"),
        ({"modelImage": {"path": "models"}}, "modelImage.path"),
        ({"modelImage": {"delivery": "Carrier"}}, 'supported values: "Auto", "Copy", "ImageVolume"'),
        ({"replicas": -1}, "replicas"),
        ({"server": {"args": ["--http-port=1"]}}, "args has a flag, or the abbreviation of a flag"),
        ({"server": {"loadModels": ["echo"]}}, "modelControl: explicit needs at least one model in loadModels"),
        ({"server": {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}}, "above its limit"),
        ({"rollout": {"maxSurge": 0, "maxUnavailable": 0}}, "can't both be 0"),
    ],
)
def test_refuses_a_bad_spec_with_the_reason(
    cluster: Cluster, shared_namespace: Namespace, spec: dict[str, object], words: str
) -> None:
    with pytest.raises(RefusedError) as refusal:
        shared_namespace.api.create(shared_namespace.model("bad", cluster.image(), **spec))
    assert words in refusal.value.message
    assert shared_namespace.api.find("TritonModel", "bad") is None


def test_kubectl_refuses_an_unknown_field(cluster: Cluster, shared_namespace: Namespace) -> None:
    import json

    model = shared_namespace.model("bad", cluster.image(), modelimage={"reference": "x"})
    output = shared_namespace.kubectl("apply", "-f", "-", stdin=json.dumps(model), check=False)
    assert 'unknown field "spec.modelimage"' in output


# The server allocates more of /dev/shm for its Python models than the memory limit allows.
HUNGRY = {
    "sharedMemory": "200Mi",
    "resources": {"limits": {"memory": "200Mi"}},
    "args": [f"--backend-config=python,shm-default-byte-size={198 << 20}"],
}
# It gets no requests, so it doesn't need to drain before a restart.
IMPATIENT = {"startupSeconds": 10, "drainSeconds": 1, "exitSeconds": 1}
LAST_WORDS = {"name": "triton", "command": ["sh", "-c", "echo there is no such GPU; exit 3"], "args": None}


@pytest.fixture(scope="module")
def wrong(cluster: Cluster, shared_namespace: Namespace) -> Namespace:
    """Applies TritonModels that can't become ready, each for another reason. They run in parallel to save time."""
    image = cluster.image()
    for model in (
        shared_namespace.model("slow", cluster.image(change="sleeps"), rollout=IMPATIENT),
        shared_namespace.model("hungry", image, server=HUNGRY),
        shared_namespace.model("crashing", image, podTemplate={"spec": {"containers": [LAST_WORDS]}}),
        shared_namespace.model("lost", image, modelImage={"path": "/elsewhere", "delivery": "Copy"}),
        shared_namespace.model("huge", image, server={"resources": {"requests": {"cpu": "1000"}}}),
    ):
        shared_namespace.api.apply(model)
    return shared_namespace


def test_reports_a_server_that_no_node_can_run(wrong: Namespace) -> None:
    message = wrong.wait_for_condition("huge", "Ready", "False", "Unschedulable")
    assert "Insufficient cpu" in message


def test_reports_the_exit_code_and_log_of_a_crashing_server(wrong: Namespace) -> None:
    message = wrong.wait_for_condition("crashing", "Ready", "False", "ServerCrashed")
    assert "exit code 3" in message
    assert "there is no such GPU" in message


def test_reports_a_path_that_is_not_in_the_image(wrong: Namespace) -> None:
    message = wrong.wait_for_condition("lost", "Ready", "False", "RepositoryNotCopied")
    assert "/elsewhere" in message
    assert "spec.modelImage.path" in message


def test_reports_out_of_memory_with_the_limit_to_raise(cluster: Cluster, wrong: Namespace) -> None:
    message = wrong.wait_for_condition("hungry", "Ready", "False", "OutOfMemory")
    assert "200Mi" in message
    assert "spec.server.resources.limits.memory" in message
    wrong.deploy("hungry", cluster.image(), server={**HUNGRY, "args": []})


def test_reports_a_startup_timeout_for_a_model_that_never_loads(wrong: Namespace) -> None:
    message = wrong.wait_for_condition("slow", "Ready", "False", "StartupTimeout")
    assert "within 10 s" in message
    assert "spec.rollout.startupSeconds" in message


def test_kubectl_wait_returns_when_the_server_is_ready(cluster: Cluster, namespace: Namespace) -> None:
    namespace.api.apply(namespace.model("echo", cluster.image()))
    namespace.kubectl("wait", "--for=condition=Ready", "tritonmodel/echo", "--timeout=120s")
    (pod,) = namespace.pods("echo")
    assert pod["status"]["containerStatuses"][0]["started"]
    # A busy kubelet may call a server not ready again for a moment just after its start.
    eventually(lambda: condition(namespace.pods("echo")[0], "Ready").get("status") == "True", 60)
    # The operator posts the Event after it writes the status, so kubectl wait may return first.
    arguments = "events", "--for=tritonmodel/echo"
    eventually(lambda: "EntrypointAnswers" in namespace.kubectl(*arguments), 60)


def test_reports_a_name_conflict_and_keeps_the_foreign_object(cluster: Cluster, namespace: Namespace) -> None:
    port = {"name": "http", "port": 80}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo"}, "spec": {"ports": [port]}}
    service = namespace.api.create(body)
    namespace.api.apply(namespace.model("echo", cluster.image()))
    message = namespace.wait_for_condition("echo", "Progressing", "False", "NameTaken")
    assert f"Service {namespace.name}/echo" in message
    assert namespace.api.get("Service", "echo")["metadata"]["resourceVersion"] == service["metadata"]["resourceVersion"]
    # After the foreign object is deleted, the TritonModel becomes ready.
    namespace.api.delete("Service", "echo")
    namespace.wait_until_complete("echo")
