"""Changes between two requests of one reconcile, which a real API server can't produce at the right moment.

Also what a reconcile remembers for the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import gen, reconciling
from support.api import condition
from support.reconciling import KEY, MONITORED, Accepting, Answers, Object, reconciler
from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.api.monitoring import Installed, Prometheus, PrometheusAnswer, Selection
from triton_operator.api.servers import ChangeOutcome, IndexEntry, RunningServer, Sample, ServerAnswers, Subject
from triton_operator.api.thresholds import PREFIX, ThresholdKey
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.objects import state
from triton_operator.cluster.store import Store
from triton_operator.reconcile import Cluster, Result
from triton_operator.reconcile.pace import SPEC_BURST, SPEC_SECONDS
from triton_operator.render import Facts, render
from triton_operator.render.children import CHILDREN
from triton_operator.render.facts import Capabilities, Delivery, RenderSettings


def test_reports_the_versions_of_the_objects_that_it_wrote() -> None:
    api = Accepting()
    result = reconciler(api).reconcile(KEY)
    assert len(api.answers) > 4
    assert result.written == {state(answer) for answer in api.answers}
    assert result.requeue_after is None


@pytest.mark.parametrize(
    "meanwhile", [gen.put("metadata.generation", 2), gen.put("metadata.annotations", {"max_qps": "8"}), gen.deleting]
)
def test_reconciles_a_change_that_happens_just_before_the_status_write(meanwhile: gen.Modifier) -> None:
    """The answer to the status write contains the change, so its event is ignored."""
    assert reconciler(Accepting(meanwhile)).reconcile(KEY).requeue_after == 0


def test_writes_the_status_once_beside_a_condition_of_another_manager() -> None:
    """Server-side apply merges the conditions by their type, so the other one is in each answer."""
    theirs = {"type": "example.com/Approved", "status": "True", "reason": "Yes", "message": "", "observedGeneration": 1,
              "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    api = Accepting(lambda obj: obj["status"]["conditions"].append(theirs))
    subject = reconciler(api)
    for _ in range(5):
        subject.reconcile(KEY)
    assert [obj["kind"] for obj in api.answers].count(names.KIND) == 1


def test_writes_the_status_after_the_clock_is_set_back() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    api = Accepting()
    subject = reconciler(api, progress_seconds=5.0, clock=lambda: now)
    assert subject.reconcile(KEY).requeue_after == 3
    now -= timedelta(days=365)
    assert subject.reconcile(KEY).requeue_after is None
    assert "observedGeneration" in api.answers[-1]["status"]


def test_a_spec_that_changes_in_a_loop_is_reconciled_at_a_limited_rate() -> None:
    """Each change replaces the servers, and costs the API server more than the change itself."""
    api, store, clock, numbers = Accepting(), Store(), [0.0], itertools.count(1000, 1000)
    subject = reconciler(api, store, elapsed=lambda: clock[0])

    def written_for(generation: int, *more: gen.Modifier) -> tuple[bool, Result]:
        before = len(api.answers)
        image = gen.put("spec.server.image", f"registry.example.com/triton:{generation}")
        versions = gen.put("metadata.generation", generation), gen.put("metadata.resourceVersion", str(next(numbers)))
        status = next((answer["status"] for answer in reversed(api.answers) if answer["kind"] == names.KIND), {})
        store.put(gen.raw(*versions, image, gen.put("status", status), *more))
        result = subject.reconcile(KEY)
        return len(api.answers) > before, result

    for generation in range(1, SPEC_BURST + 1):
        assert written_for(generation)[0]
    assert written_for(SPEC_BURST + 1) == (True, Result(requeue_after=SPEC_SECONDS))
    waiting = api.answers[-1]
    assert waiting["kind"] == names.KIND
    assert waiting["status"]["observedGeneration"] == SPEC_BURST
    progressing = condition(waiting, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "SpecChangesTooOften")
    assert written_for(SPEC_BURST + 2) == (False, Result(requeue_after=SPEC_SECONDS)), "no token was taken"
    clock[0] += SPEC_SECONDS
    assert written_for(SPEC_BURST + 2)[0]
    threshold = gen.put("metadata.annotations", {"tritonoperator.io/max-qps": "8"})
    assert written_for(SPEC_BURST + 2, threshold)[0], "a threshold is no change of the spec"


def test_an_autoscaler_may_change_the_number_of_servers_as_often_as_it_likes() -> None:
    api, store = Accepting(), Store()
    subject = reconciler(api, store, elapsed=lambda: 0.0)
    for number in range(1, 5 * SPEC_BURST):
        versions = gen.put("metadata.generation", number), gen.put("metadata.resourceVersion", str(1000 + number))
        store.put(gen.raw(*versions, gen.put("spec.replicas", number)))
        subject.reconcile(KEY)
        (deployment,) = store.of_kind(KEY, "Deployment")
        assert deployment["spec"]["replicas"] == number


def test_deleting_and_creating_a_tritonmodel_gives_it_no_new_changes() -> None:
    api, store = Accepting(), Store()
    subject = reconciler(api, store, elapsed=lambda: 0.0)
    for _ in range(SPEC_BURST):
        store.put(gen.raw())
        assert subject.reconcile(KEY) != Result(requeue_after=SPEC_SECONDS)
        store.remove(gen.raw())
        subject.reconcile(KEY)
    store.put(gen.raw())
    assert subject.reconcile(KEY) == Result(requeue_after=SPEC_SECONDS)


def test_a_failing_reconcile_takes_no_further_token() -> None:
    class Silent(Accepting):
        def apply_new(self, _: Kind, body: Object) -> Object:
            raise ApiError(0, "Timeout", "no answer")

    subject = reconciler(Silent(), elapsed=lambda: 0.0)
    for _ in range(2 * SPEC_BURST):
        with pytest.raises(ApiError, match="no answer"):
            subject.reconcile(KEY)


def test_a_refused_write_stops_only_what_depends_on_it() -> None:
    class Refusing(Accepting):
        def __init__(self, kind: Kind) -> None:
            super().__init__()
            self.kind = kind

        def apply_new(self, kind: Kind, body: Object) -> Object:
            if kind == self.kind:
                raise ApiError(500, "InternalError", "failed calling webhook")
            return super().apply_new(kind, body)

    def reconciled(kind: Kind) -> tuple[set[str], Result, Object]:
        api, store = Refusing(kind), Store()
        store.put(gen.raw(gen.put("spec.networkPolicy", {}), gen.put("spec.replicas", 2)))
        result = reconciler(api, store).reconcile(KEY)
        return {answer["kind"] for answer in api.answers}, result, api.answers[-1]

    everything = {"ServiceAccount", "Service", "NetworkPolicy", "Deployment", "PodDisruptionBudget", "TritonModel"}
    for kind, stopped in (
        (kinds.DISRUPTION_BUDGET, set()), (kinds.SERVICE, set()),
        (kinds.NETWORK_POLICY, {"Deployment"}), (kinds.SERVICE_ACCOUNT, {"Deployment"}),
    ):  # fmt: skip
        written, result, model = reconciled(kind)
        assert written >= everything - stopped - {kind.kind}
        assert not written & {kind.kind, *stopped}
        assert (result.requeue, result.outside_cause) == (True, True)
        assert model["kind"] == "TritonModel"
        words = condition(model, "Progressing")
        assert (words["status"], words["reason"]) == ("False", "ApplyRefused")
        assert f"refuses {kind.kind}" in words["message"]


def test_first_status_waits_until_the_pods_exist() -> None:
    api, store = Accepting(), Store()
    subject = reconciler(api, store, progress_seconds=5.0)
    assert subject.reconcile(KEY).requeue_after == pytest.approx(3, abs=0.1)
    assert "TritonModel" not in {answer["kind"] for answer in api.answers}
    store.put(gen.pod(gen.put("status", {"phase": "Pending"})))
    assert subject.reconcile(KEY).requeue_after is None
    assert api.answers[-1]["kind"] == "TritonModel"
    assert api.answers[-1]["status"]["replicas"] == 1


def test_status_waits_at_most_one_second_for_a_pending_answer() -> None:
    now, api, store, answers = datetime(2026, 6, 1, tzinfo=UTC), Accepting(), Store(), Answers()
    subject = reconciler(api, store, progress_seconds=5.0, clock=lambda: now, answers=answers)
    store.put(gen.pod())
    answers.of_servers = ServerAnswers({}, pending=True)
    assert subject.reconcile(KEY).requeue_after == 1
    assert "TritonModel" not in {answer["kind"] for answer in api.answers}
    now += timedelta(seconds=0.4)
    assert subject.reconcile(KEY).requeue_after == pytest.approx(0.6)
    answers.of_servers = ServerAnswers({gen.pod()["metadata"]["name"]: (IndexEntry("detection", "1", "READY", ""),)})
    assert subject.reconcile(KEY).requeue_after is None
    assert api.answers[-1]["status"]["loaded"] == "1/1"
    # A server that stays silent.
    answers.of_servers = ServerAnswers({}, pending=True)
    assert subject.reconcile(KEY).requeue_after == 1
    now += timedelta(seconds=1)
    assert subject.reconcile(KEY).requeue_after is None
    assert condition(api.answers[-1], "ModelsLoaded")["reason"] == "NoServerAnswers"


def test_compares_the_models_with_the_limit_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = Selection({}, {})
    selecting = Installed((Prometheus("monitoring", "k8s", "http://p", everything, everything),))
    for limit, told in ((100, True), (10_000, False)):
        settings = RenderSettings(sample_limit=limit)
        monkeypatch.setattr(reconciling, "FACTS", replace(reconciling.FACTS, settings=settings))
        api, store, answers = Accepting(), Store(), Answers()
        store.put(gen.pod())
        index = tuple(IndexEntry(f"branch_{n}", "1", "READY", "") for n in range(5))
        answers.of_servers = ServerAnswers({gen.pod()["metadata"]["name"]: index})
        reconciler(api, store, answers=answers, cluster=lambda: Cluster(installed=selecting)).reconcile(KEY)
        said = condition(api.answers[-1], "MonitoringAvailable")
        assert (said["status"], said["reason"]) == ("True", "Selected")
        assert ("5 versions of models have about 105 samples" in said["message"]) == told


@pytest.mark.parametrize(
    ("installed", "reason", "words"),
    [
        (Installed(answered=False), "NotListed", "hasn't listed the Prometheus resources yet"),
        (Installed(), "NotPermitted", "isn't allowed to list"),
        (MONITORED.installed, "NoPrometheus", "(monitoring)"),
    ],
)
def test_says_why_it_knows_no_prometheus(installed: Installed, reason: str, words: str) -> None:
    api = Accepting()
    reconciler(api, cluster=lambda: Cluster(installed=installed)).reconcile(KEY)
    said = condition(api.answers[-1], "MonitoringAvailable")
    assert said["reason"] == reason
    assert words in said["message"]


# Answers of Prometheus


class Scene:
    """A TritonModel whose rules a Prometheus evaluates, and a clock."""

    def __init__(self) -> None:
        self._now, self._api, self._store, self.answers = (
            datetime(2026, 1, 1, tzinfo=UTC),
            Accepting(),
            Store(),
            Answers(),
        )
        self.restart()
        self._store.put(
            gen.raw(
                gen.put("status", {"entrypoint": "detection", "entrypointType": "Model"}),
                gen.put("metadata.resourceVersion", "2"),
            )
        )

    def restart(self) -> None:
        """Replaces the operator."""
        api: Any = self._api
        before = self._store.model(KEY)
        self._reconciler = reconciler(
            api, self._store, answers=self.answers, clock=lambda: self._now,
            cluster=lambda: replace(MONITORED, prometheus="http://prometheus"),
        )  # fmt: skip
        if before is not None:
            self._store.put(before)

    def wait(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def annotate(self, **values: str) -> None:
        change = gen.put("metadata.annotations", {f"{PREFIX}{k.replace('_', '-')}": v for k, v in values.items()})
        self._api.meanwhile = (change,)
        self._store.put(self._api.answer(gen.modified(self._model, change)))

    def set_prometheus(self, **values: float) -> None:
        """Sets the answer of Prometheus."""
        self._now += timedelta(seconds=1)
        at = self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        thresholds = {"max_qps": float("inf"), **values}
        self.answers.of_prometheus = PrometheusAnswer(
            {ThresholdKey(k.replace("_", "-")): v for k, v in thresholds.items()}, at=at
        )

    def reconcile(self) -> tuple[str, bool]:
        """Reconciles one second later; returns the reason of ThresholdLive, and whether it waits for another answer."""
        self._now += timedelta(seconds=1)
        self._reconciler.reconcile(KEY)
        return condition(self._model, "ThresholdLive")["reason"], self.answers.waits

    @property
    def _model(self) -> Object:
        model = self._store.model(KEY)
        assert model is not None
        return model


def test_thresholds_are_live_when_prometheus_has_them() -> None:
    scene = Scene()
    assert scene.reconcile() == ("Starting", True)
    scene.set_prometheus(max_qps=50)
    assert scene.reconcile() == ("Propagating", True)
    scene.set_prometheus()
    assert scene.reconcile() == ("Live", False)
    scene.annotate(max_qps="80")
    assert scene.reconcile() == ("Propagating", True)
    scene.set_prometheus(max_qps=80, max_qps_per_replica=80)
    assert scene.reconcile() == ("Live", False)
    scene.annotate(max_qps="8O")
    assert scene.reconcile()[0] == "ThresholdInvalid"
    scene.annotate(max_qps="90")
    scene.answers.of_prometheus = PrometheusAnswer(error="Prometheus doesn't answer at http://prometheus")
    assert scene.reconcile() == ("PrometheusUnreachable", True)


def test_ignores_an_answer_from_before_a_change() -> None:
    """The threshold is 80, then 90, then 80 again: Prometheus may have loaded 90 in between."""
    scene = Scene()
    scene.annotate(max_qps="80")
    scene.reconcile()
    scene.set_prometheus(max_qps=80, max_qps_per_replica=80)
    assert scene.reconcile() == ("Live", False)
    scene.annotate(max_qps="90")
    assert scene.reconcile() == ("Propagating", True)
    scene.annotate(max_qps="80")
    assert scene.reconcile() == ("Propagating", True)
    assert scene.answers.outdated
    scene.set_prometheus(max_qps=80, max_qps_per_replica=80)
    assert scene.reconcile() == ("Live", False)
    assert not scene.answers.outdated


def test_delivery_auto_follows_the_nodes_only_when_a_deployment_is_new() -> None:
    """A live Deployment keeps its delivery."""
    known: list[Delivery] = ["ImageVolume"]
    api, store = Accepting(), Store()
    subject = reconciler(api, store, cluster=lambda: replace(MONITORED, delivery=known[-1]))
    subject.reconcile(KEY)
    known.append("Copy")
    subject.reconcile(KEY)
    store.put(gen.raw(gen.put("spec.entrypoint", "other"), gen.put("metadata.resourceVersion", "2")))
    subject.reconcile(KEY)
    deployments = [obj for obj in api.answers if obj["kind"] == "Deployment"]
    assert {d["metadata"]["annotations"][names.ANNOTATION_DELIVERY] for d in deployments} == {"ImageVolume"}


@pytest.mark.parametrize("live_before", [True, False], ids=["live", "not live yet"])
@pytest.mark.parametrize("seconds", [5, 3600])
def test_a_threshold_stays_live_if_the_clock_is_set_back(seconds: int, live_before: bool) -> None:
    """The same happens after a fail-over to a node whose clock is behind."""
    scene = Scene()
    scene.set_prometheus()
    scene.annotate(max_qps="80")
    assert scene.reconcile() == ("Propagating", True)
    if live_before:
        scene.set_prometheus(max_qps=80, max_qps_per_replica=80)
        assert scene.reconcile() == ("Live", False)
    scene.wait(-seconds)
    scene.restart()
    scene.set_prometheus(max_qps=80, max_qps_per_replica=80)
    assert scene.reconcile() == ("Live", False)
    assert not scene.answers.outdated, "the prober would poll Prometheus every second, and cause a reconcile each time"
    # The last answer is as old as it gets, while the clock passes the time of the change.
    for _ in range(20):
        scene.wait(seconds / 10)
        assert scene.reconcile() == ("Live", False)
        assert not scene.answers.outdated


def test_always_renders_the_kinds_marked_as_always() -> None:
    facts = Facts("tools:1", "Copy", cluster=Capabilities(monitoring=False))
    least = {obj["kind"] for obj in render(gen.model(), facts)}
    assert least == {child.kind.kind for child in CHILDREN if child.always}


class Busy:
    """Servers with 100 requests per second each, and the numbers to which the operator scales the Deployment."""

    def track(self, _: str, servers: Iterable[RunningServer], __: Subject) -> dict[str, tuple[Sample, ...]]:
        return {server.pod: tuple(Sample(float(at), 100.0 * at, 0) for at in range(0, 61, 2)) for server in servers}

    def forget(self, key: str) -> None:
        """Does nothing."""


class Scaling(Accepting):
    """Refuses the raised minimum of the autoscaler if `refuses`. `scaled`: the numbers of servers."""

    def __init__(self, *meanwhile: gen.Modifier, refuses: bool) -> None:
        super().__init__(*meanwhile)
        self.refuses, self.scaled = refuses, list[int]()

    def apply(self, kind: Kind, body: Object, uid: str, **more: Any) -> Object:
        if self.refuses and kind == kinds.AUTOSCALER:
            raise ApiError(403, "Forbidden", "no permission")
        return super().apply(kind, body, uid, **more)

    def scale(self, live: Object, _: Kind, replicas: int) -> None:
        self.scaled.append(replicas)


@pytest.mark.parametrize("refuses", [False, True])
def test_adds_no_servers_if_the_autoscaler_would_remove_them(refuses: bool) -> None:
    direct = (
        gen.put("metadata.annotations", {f"{PREFIX}max-qps-per-replica": "20"}),
        gen.put("spec", {"modelImage": {"reference": "a"}, "entrypoint": "m",
                         "autoscaling": {"engine": "Direct", "max": 10}}),
    )  # fmt: skip
    api, store, answers = Scaling(*direct, refuses=refuses), Store(), Answers()
    subject = reconciler(api, store, answers=answers, elapsed=lambda: 60.0)
    busy: Any = Busy()
    answers.loads = busy
    store.put(gen.raw(*direct, gen.put("metadata.resourceVersion", "2")))
    store.put(gen.pod(gen.checked(gen.report("m", entrypoint="m"))))
    subject.reconcile(KEY)
    result = subject.reconcile(KEY)
    assert api.scaled == ([] if refuses else [3])
    assert result.outside_cause is refuses


# Kinds that can't be read


def test_an_object_that_can_no_longer_be_read_is_neither_deleted_nor_written() -> None:
    """The role has lost the verb `list`, and still has `delete`."""
    refused = dict[Kind, str]()
    api, store = Accepting(), Store()
    subject = reconciler(api, store, cluster=lambda: replace(MONITORED, refused_kinds=refused))
    subject.reconcile(KEY)
    assert store.of_kind(KEY, kinds.POD_MONITOR.kind)
    refused[kinds.POD_MONITOR] = "no permission to list"
    written = len(api.answers)
    subject.reconcile(KEY)
    assert store.of_kind(KEY, kinds.POD_MONITOR.kind)
    assert "PodMonitor" not in {answer["kind"] for answer in api.answers[written:]}
    assert condition(api.answers[-1], "MonitoringAvailable")["reason"] == "NotPermitted"


# A change of spec.server.loadModels


class Full(Accepting):
    """An API server with a quota that refuses changed ConfigMaps."""

    def apply(self, kind: Kind, body: Object, uid: str, **more: Any) -> Object:
        if kind == kinds.CONFIG_MAP:
            raise ApiError(403, "Forbidden", "the quota is exhausted")
        return super().apply(kind, body, uid, **more)


class Changes(Answers):
    """`started`: the changes of models that were begun."""

    def __init__(self) -> None:
        super().__init__()
        self.started = list[Any]()

    def outcomes(self, *_: Any) -> dict[str, Any]:
        return {}

    def start(self, *change: Any) -> None:
        self.started.append(change)


def test_a_refused_configmap_stops_only_the_change_of_the_models() -> None:
    def spec(*models: str) -> gen.Modifier:
        server = {"modelControl": "explicit", "loadModels": list(models)}
        return gen.put("spec", {"modelImage": {"reference": "a"}, "entrypoint": "a", "server": server})

    # The list of models changes before the first status is written.
    api, store, answers = Full(spec("a", "b")), Store(), Changes()
    subject = reconciler(api, store, answers=answers)
    store.put(gen.raw(spec("a"), gen.put("metadata.resourceVersion", "2")))
    subject.reconcile(KEY)
    (deployment,) = store.of_kind(KEY, "Deployment")
    template = deployment["spec"]["template"]
    hashed = template["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
    container = template["spec"]["containers"][0]
    pod = gen.pod(gen.put("spec.containers", [container]), gen.put("status.podIP", "10.0.0.1"), template=hashed)
    store.put(pod)
    answers.of_servers = ServerAnswers({pod["metadata"]["name"]: (IndexEntry("a", "1", "READY", ""),)})
    (service,) = (s for s in store.of_kind(KEY, "Service") if s["metadata"]["name"] == gen.NAME)
    store.remove(service)
    result = subject.reconcile(KEY)
    assert answers.started == [], "the next leader would not know what was begun"
    assert [s for s in store.of_kind(KEY, "Service") if s["metadata"]["name"] == gen.NAME], "it is repaired"
    assert result.outside_cause
    words = condition(api.answers[-1], "Progressing")
    assert words["reason"] == "ApplyRefused"
    assert "the quota is exhausted" in words["message"]
    assert condition(api.answers[-1], "Ready")["status"] == "True"
    accepting = Accepting(spec("a", "b"))
    reconciler(accepting, store, answers=answers).reconcile(KEY)
    assert [change.load for _, _, change, _ in answers.started] == [("b",)], "as without the quota"


def test_servers_that_would_wait_for_their_list_are_not_started() -> None:
    """The ConfigMap has no list for the new pod template, so its servers would never start."""

    def spec(image: str, replicas: int) -> gen.Modifier:
        server = {"modelControl": "explicit", "loadModels": ["a"]}
        return gen.put(
            "spec",
            {"modelImage": {"reference": image}, "entrypoint": "a", "server": server, "replicas": replicas},
        )

    api, store = Full(spec("a", 1)), Store()
    subject = reconciler(api, store)
    store.put(gen.raw(spec("a", 1), gen.put("metadata.resourceVersion", "2")))
    subject.reconcile(KEY)

    def deployed() -> tuple[str, int]:
        (deployment,) = store.of_kind(KEY, "Deployment")
        return deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE], deployment["spec"]["replicas"]

    first = deployed()
    store.put(gen.raw(spec("b", 1), gen.put("metadata.resourceVersion", "1000"), gen.put("metadata.generation", 2)))
    subject.reconcile(KEY)
    assert deployed() == first
    assert condition(api.answers[-1], "Progressing")["reason"] == "ApplyRefused"
    # What needs no new list is applied.
    store.put(gen.raw(spec("a", 3), gen.put("metadata.resourceVersion", "2000"), gen.put("metadata.generation", 3)))
    subject.reconcile(KEY)
    assert deployed() == (first[0], 3)


class Evicting(Accepting):
    """`evicted`: the names of the evicted pods."""

    def __init__(self, *modifiers: gen.Modifier) -> None:
        super().__init__(*modifiers)
        self.evicted = list[str]()

    def evict(self, pod: Object) -> None:
        self.evicted.append(pod["metadata"]["name"])


class Refused(Changes):
    """Triton has refused a model on the server `works`."""

    def outcomes(self, *_: Any) -> dict[str, Any]:
        return {"uid-of-works": ChangeOutcome("Refused", "no such model")}


def test_a_model_that_triton_refused_keeps_no_server_from_being_replaced() -> None:
    server = {"modelControl": "explicit", "loadModels": ["a", "nothing"]}
    request = {"file": "a/health.json"}
    spec = gen.put(
        "spec", {"modelImage": {"reference": "a"}, "entrypoint": "a", "server": server, "healthRequest": request}
    )
    now, api, store, answers = datetime(2026, 1, 1, 2, tzinfo=UTC), Evicting(spec), Store(), Refused()
    subject = reconciler(api, store, answers=answers, clock=lambda: now)
    store.put(gen.raw(spec, gen.put("metadata.resourceVersion", "2")))
    subject.reconcile(KEY)
    (deployment,) = store.of_kind(KEY, "Deployment")
    hashed = deployment["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
    store.put(gen.pod(name="works", template=hashed))
    store.put(gen.pod(gen.stopped_answering(), name="hangs", template=hashed))
    index = (IndexEntry("a", "1", "READY", ""),)
    answers.of_servers = ServerAnswers({"works": index, "hangs": index})
    subject.reconcile(KEY)
    assert api.evicted == ["hangs"]
