"""The engine Direct: the operator adds servers by their counters. There is no Prometheus, and no controller runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kubernetes
import pytest

from integration.monitoring.steps import AUTOSCALER, P, events, serving, wait_for_condition
from integration.monitoring.test_autoscaler import ABLE, ACTIVE, write_autoscaler_status
from support import counting_server, gen, operator_process
from support.api import Api, Object, eventually, states
from support.controlplane import ControlPlane
from support.counting_server import CountingServer
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make
from triton_operator.api import kinds
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.reconcile.scale import OTHERS_SCALED
from triton_operator.render import Facts, render

pytestmark = pytest.mark.integration

MODEL = "detection"
LIMIT = 20
"""max-qps-per-replica."""
RATE = 83
"""Requests per second that need 6 servers, and 6 also if the operator measures 8 % more or 9 % less: it divides by the
time between two polls, which aren't exactly then on a busy machine."""
NUMBER = r"(3\.(7[5-9]|[89])|4)[.\d]*"
"""Above 3.75 and up to 4.5, in servers: the load for which 6 run at a utilization of 0.75."""
LOAD = f"the load of {NUMBER}"
LIMITS = {f"{P}max-qps-per-replica": str(LIMIT)}
WANTS_FEWER = ("ScalingLimited", "True", "TooFewReplicas")
AT_ONCE = {"scaleUp": {"policies": [{"type": "Pods", "value": 20, "periodSeconds": 15}]}}
POLLS = 3
"""Polls in which nothing is written at rest."""
_numbers = itertools.count(1)

Serve = Callable[[], CountingServer]


class Scene:
    """A TritonModel with the engine Direct and one server."""

    def __init__(self, api: Api, host: Callable[[], str], stack: contextlib.ExitStack) -> None:
        self.api, self._host, self._stack = api, host, stack
        self._pods = itertools.count(1)
        self.start = ""

    def create(
        self,
        operator: Operator,
        annotations: dict[str, str] = LIMITS,
        monitoring: Object | None = None,
        **scaling: object,
    ) -> CountingServer:
        make(self.api, annotations=annotations, monitoring=monitoring or {},
             autoscaling={"engine": "Direct", "max": 12, "behavior": AT_ONCE, **scaling})  # fmt: skip
        serving(self.api, operator)
        server = self.add_server("detection-abc-1")
        self.decided("LeftToHPA")
        self.start = self.api.get("Deployment", gen.NAME)["metadata"]["resourceVersion"]
        return server

    def add_server(self, pod: str = "") -> CountingServer:
        """Adds a ready pod with a server that answers."""
        host, name = self._host(), pod or f"detection-abc-{next(self._pods) + 1}"
        server = self._stack.enter_context(counting_server.running(host, MODEL))
        report = gen.report("pre", MODEL, entrypoint=MODEL)
        add_pod(self.api, gen.checked(report), gen.put("status.podIP", host), name=name)
        eventually(lambda: server.polls >= 2, 60, lambda: self.api.get("TritonModel", gen.NAME)["status"])
        return server

    def decided(self, reason: str, desired: int | None = None) -> Object:
        """Waits until the status has this decision."""

        def look() -> Object | None:
            scaling = self.api.get("TritonModel", gen.NAME).get("status", {}).get("autoscaling", {})
            same = scaling.get("reason") == reason and desired in (None, scaling.get("desired"))
            return scaling if same else None

        return eventually(look, 60, lambda: self.api.get("TritonModel", gen.NAME).get("status"))

    @property
    def replicas(self) -> int:
        return int(self.api.get("Deployment", gen.NAME)["spec"]["replicas"])

    @property
    def floor(self) -> int:
        return int(self.api.get(AUTOSCALER, gen.NAME)["spec"]["minReplicas"])

    def numbers(self) -> list[int]:
        """Returns every number of servers that the Deployment had."""
        replicas = [o["spec"]["replicas"] for o in states(self.api, "Deployment", gen.NAME, self.start)]
        return [n for n, _ in itertools.groupby(replicas)]


def wait_until_rest(operator: Operator, server: CountingServer) -> None:
    """Waits for POLLS polls in which the operator writes nothing. Fails after 60 s.

    A quiet second doesn't show that all has happened: controllers write what follows at their own pace, and the
    operator writes what it sees of that.
    """

    def rests() -> bool:
        writes, polls = operator.writes(), server.polls
        eventually(lambda: server.polls >= polls + POLLS, 60, lambda: operator.log)
        return operator.writes() == writes

    eventually(rests, 60, lambda: operator.log)


@pytest.fixture
def scene(own: Api) -> Iterator[Scene]:
    test, process = next(_numbers), os.getpid()

    def host() -> str:
        return f"127.{100 + test}.{process % 250}.{next(hosts)}"

    hosts = itertools.count(1 + process // 250 % 200)
    with contextlib.ExitStack() as stack:
        yield Scene(own, host, stack)


def test_adds_servers_and_writes_nothing_at_rest(
    plane: ControlPlane, kubeconfig: Path, scene: Scene, tmp_path: Path
) -> None:
    with operator_process.running(kubeconfig, tmp_path) as operator:
        server = scene.create(operator)
        server.serve(5)
        wait_until_rest(operator, server)
        assert (scene.replicas, scene.floor) == (1, 1)

        server.serve(RATE)
        decided = scene.decided("ScaledUp", 6)
        assert scene.replicas == scene.floor == 6
        numbers = scene.numbers()
        assert numbers == sorted(numbers)
        assert numbers[-1] == 6
        assert re.match(LOAD, decided["message"])
        assert decided["message"].endswith("to 6")
        assert len(eventually(lambda: events(scene.api, "ScaledUp"), 15)) == 1
        assert operator.metric_sum("triton_operator_scale_ups_total") == len(numbers)
        own = {"namespace": scene.api.namespace, "tritonmodel": gen.NAME}
        assert operator.metric_sum("triton_operator_autoscaling_desired", **own) == 6

        wait_until_rest(operator, server)

        text = status_text(plane, scene.api)
        assert "scaling: engine Direct, 1 to 12 servers, utilization 0.75" in text
        ago = r"Direct: ScaledUp \d+ (s|min) ago, "
        assert re.search(rf"{ago}at a load of {NUMBER}, not below 6: {LOAD}", text), text
        assert "HorizontalPodAutoscaler: hasn't reported a status yet" in text

        # Another engine restarts nothing, changes no number, and returns the minimum.
        scene.api.patch("TritonModel", gen.NAME, {"spec": {"autoscaling": {"engine": "HPA"}}})
        eventually(lambda: scene.floor == 1, 15, lambda: operator.log)
        eventually(lambda: "autoscaling" not in scene.api.get("TritonModel", gen.NAME)["status"], 15)
        polls = server.polls
        time.sleep(3)
        assert server.polls <= polls + 1
        assert scene.replicas == 6
        templates = {str(o["spec"]["template"]) for o in states(scene.api, "Deployment", gen.NAME, scene.start)}
        assert len(templates) == 1
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def status_text(plane: ControlPlane, api: Api) -> str:
    """Returns what `kubectl triton status` prints, in one line."""
    command = [Path(sys.executable).parent / "kubectl-triton", "status", gen.NAME, "-n", api.namespace]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return " ".join(result.stdout.split()) + result.stderr


def test_a_new_leader_continues_where_the_old_one_was_killed(
    plane: ControlPlane, kubeconfig: Path, scene: Scene, tmp_path: Path
) -> None:
    doubles = {"scaleUp": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 10}]}}
    with operator_process.running(kubeconfig, tmp_path) as operator:
        server = scene.create(operator, behavior=doubles)
        server.serve(RATE)
        eventually(lambda: scene.replicas > 1, 30, lambda: operator.log, every=0.02)
        operator.stop(signal.SIGKILL)
    assert 1 < scene.replicas <= scene.floor < 6
    write_autoscaler_status(scene.api, ABLE, ACTIVE, WANTS_FEWER)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        scene.decided("ScaledUp", 6)
        server.serve(1)
        wait_until_rest(operator, server)
        numbers = scene.numbers()
        assert numbers == sorted(numbers)
        assert scene.floor == scene.replicas == 6
        assert "Traceback" not in operator.log


def test_a_server_that_does_not_answer_never_counts_as_idle(kubeconfig: Path, scene: Scene, tmp_path: Path) -> None:
    with operator_process.running(kubeconfig, tmp_path) as operator:
        server = scene.create(operator)
        other = scene.add_server()
        # Two servers, each with 25 requests per second: 50 / 20 / 0.75 → 4.
        server.serve(25)
        other.serve(25)
        scene.decided("ScaledUp", 4)
        other.hangs = True
        server.serve(60)
        # The silent one counts as much as the other: 120 / 20 / 0.75 → 8.
        eventually(lambda: scene.replicas >= 8, 60, lambda: operator.log)
        server.hangs = True
        time.sleep(8)
        assert scene.replicas == scene.floor == scene.decided("ScaledUp")["desired"]
        assert scene.numbers() == sorted(scene.numbers())
        assert "Traceback" not in operator.log


def test_a_server_that_lies_gets_no_more_than_the_maximum(kubeconfig: Path, scene: Scene, tmp_path: Path) -> None:
    with operator_process.running(kubeconfig, tmp_path) as operator:
        server = scene.create(operator, max=5)
        server.lie = "NaN"
        scene.decided("NoAnswer")
        assert (scene.replicas, scene.floor) == (1, 1)
        server.lie = "1e300"
        eventually(lambda: scene.replicas == 5, 60, lambda: operator.log)
        assert scene.numbers()[-1] == 5
        assert scene.numbers() == sorted(scene.numbers())
        assert scene.floor <= 5
        assert "Traceback" not in operator.log


def test_adds_servers_for_streams_and_for_the_cache(kubeconfig: Path, scene: Scene, tmp_path: Path) -> None:
    streams, cache = f"{P}max-streams-per-replica", f"{P}max-cache-usage-per-replica"
    of = f'nv_trt_llm_request_metrics{{model="{MODEL}",version="1",request_type='
    used = f'nv_trt_llm_kv_cache_block_metrics{{model="{MODEL}",version="1",kv_cache_block_type="fraction"}}'
    with operator_process.running(kubeconfig, tmp_path) as operator:
        server = scene.create(operator, {streams: "8"}, {"streaming": {"names": "TensorRTLLM"}})
        # 6 + 9 streams: 15 / 8 / 0.75 → 3.
        server.gauges = {f'{of}"scheduled"}}': "6", f'{of}"waiting"}}': "9", f'{of}"active"}}': "15", used: "0.9"}
        decided = scene.decided("ScaledUp", 3)
        assert re.search(r"servers at full use needs 3 servers: scaled up from [12] to 3$", decided["message"])
        # 0.9 / 0.3 / 0.75 → 4. The last samples count for the new limit.
        scene.api.patch("TritonModel", gen.NAME, {"metadata": {"annotations": {cache: "0.3"}}})
        scene.decided("ScaledUp", 4)
        server.gauges |= {f'{of}"waiting"}}': "NaN", used: "NaN"}
        polls = server.polls
        eventually(lambda: server.polls >= polls + POLLS, 60, lambda: operator.log)
        assert scene.replicas == 4
        server.gauges |= {f'{of}"scheduled"}}': "1e308", f'{of}"waiting"}}': "1e308"}
        eventually(lambda: scene.replicas == 12, 60, lambda: operator.log)
        assert scene.numbers() == sorted(scene.numbers())
        assert "Traceback" not in operator.log


def test_scales_only_from_the_number_and_the_object_that_it_knows(own: Api, kubeconfig: Path) -> None:
    """Another client, such as the HorizontalPodAutoscaler, may have written a higher number."""
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    operators = KubernetesApi(kubernetes.client.ApiClient(configuration))
    [deployment] = [o for o in render(gen.model(replicas=2), Facts("tools:1", "Copy")) if o["kind"] == "Deployment"]
    live = own.create(gen.modified(deployment, gen.put("metadata", {"name": gen.NAME})))
    operators.scale(live, kinds.DEPLOYMENT, 4)
    assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 4
    changed = gen.modified(live, gen.put("spec.replicas", 4), gen.put("metadata.uid", "another"))
    for stale in (live, changed):
        with pytest.raises(ApiError) as refused:
            operators.scale(stale, kinds.DEPLOYMENT, 3)
        assert refused.value.code in OTHERS_SCALED
    assert own.get("Deployment", gen.NAME)["spec"]["replicas"] == 4


def test_a_refused_scale_up_is_in_the_status(
    plane: ControlPlane, kubeconfig: Path, scene: Scene, tmp_path: Path
) -> None:
    role = plane.api.get("ClusterRole", "triton-operator")
    without = [rule for rule in role["rules"] if "deployments/scale" not in rule["resources"]]
    with operator_process.running(kubeconfig, tmp_path) as operator:
        server = scene.create(operator)
        plane.api.patch("ClusterRole", "triton-operator", {"rules": without})
        try:
            server.serve(RATE)
            message = wait_for_condition(scene.api, "AutoscalerActive", "False", "ScaleRefused")
        finally:
            plane.api.patch("ClusterRole", "triton-operator", {"rules": role["rules"]})
        assert "deployments/scale" in message
        eventually(lambda: scene.replicas > 1, 60, lambda: operator.log)
        assert "Traceback" not in operator.log
