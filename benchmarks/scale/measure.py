"""Measures one size: the floor and the operator, each on a new control plane."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from support import controlplane, operator_process
from support.api import eventually
from support.controlplane import ControlPlane
from support.operator_process import Operator
from triton_operator.api import names
from triton_operator.runtime.settings import Settings

from . import probe, world
from .probe import Requests
from .world import Changes, Settling, Watch, key

MANAGER_FLAGS = ("--kube-api-qps=1000", "--kube-api-burst=2000")
"""The default of 20 requests per second would dominate the time until all pods exist."""
QUIET_SECONDS = Settings.progress_seconds + 2
CHURN_PER_SECOND = 10
SCRAPE_SECONDS = 5
SINGLE_CHANGES, SPEC_CHANGES, MISSED_CHANGES = 10, 5, 20
CHILDREN = len(world.CHILDREN) + 1
"""The children of one TritonModel at creation. Two are Services."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The parameters of the measurement.

    - `workers`: workers of the operator and writers of the floor
    - `rounds`: rounds of creation, each between two runs of the floor, because the machine's speed varies
    - `apart`: whether the API server has its own cores
    """

    workers: int
    rounds: int
    rest_seconds: float
    changes: int
    churn_seconds: float
    apart: bool


@dataclass
class Figures:
    """The results of one size.

    Requests are totals; `annotation` is for `SINGLE_CHANGES` changes, `spec` for `SPEC_CHANGES`. `converge_s` and
    `children_s` have one item per round. `floor_s` and `floor_pods_s` have one more: before and after each round.
    """

    size: int
    floor_s: list[float] = field(default_factory=list)
    floor_pods_s: list[float] = field(default_factory=list)
    children_s: list[float] = field(default_factory=list)
    converge_s: list[float] = field(default_factory=list)
    objects: int = 0
    rules_s: float = 0
    creation: Requests = field(default_factory=Requests)
    creation_of_all: Requests = field(default_factory=Requests)
    rules: Requests = field(default_factory=Requests)
    annotation: Requests = field(default_factory=Requests)
    spec: Requests = field(default_factory=Requests)
    rest: Requests = field(default_factory=Requests)
    rest_s: float = 0
    rest_passes: float = 0
    churn_passes: float = 0
    change_s: list[float] = field(default_factory=list)
    churn_s: list[float] = field(default_factory=list)
    unreachable_s: list[float] = field(default_factory=list)
    creation_cpu_s: float = 0
    rest_cpu: float = 0
    churn_cpu: float = 0
    rss_mib: dict[str, float] = field(default_factory=dict)
    scrape_s: list[float] = field(default_factory=list)
    start_s: float = 0
    start_writes: int = 0
    failover_s: float = 0
    missed: int = 0

    def settled_vs_floor(self) -> float:
        return _ratio(self.converge_s, self.floor_s)

    def children_vs_floor(self) -> float:
        return _ratio(self.children_s, self.floor_s)

    def settled_vs_pods(self) -> float:
        return _ratio(self.converge_s, self.floor_pods_s)


def _ratio(rounds: list[float], floors: list[float]) -> float:
    """Returns the median of the rounds' ratios to the mean of the floors before and after the round."""
    return median(seconds / mean(around) for seconds, around in zip(rounds, pairwise(floors), strict=True))


def measure(size: int, plan: Plan, say: Say) -> Figures:
    """Measures the floor and the operator in turns, so that other load affects both. Only the last round does all."""
    figures = Figures(size)
    floor(figures, plan, say)
    for last in (False,) * (plan.rounds - 1) + (True,):
        with plane(apart=plan.apart) as control_plane:
            with_operator(control_plane, figures, plan, say, creation_only=not last)
        floor(figures, plan, say)
    return figures


@contextlib.contextmanager
def plane(*, apart: bool) -> Iterator[ControlPlane]:
    """Runs a control plane with controllers, without a scheduler and Prometheus, with prometheus-operator's CRDs.

    `apart`: the API server gets the first half of the cores, everything else the other half.
    """
    with (
        controlplane.running(controllers=True, manager_flags=MANAGER_FLAGS) as control_plane,
        contextlib.ExitStack() as stack,
    ):
        if apart:
            cores = sorted(os.sched_getaffinity(0))
            theirs, rest = cores[: len(cores) // 2], cores[len(cores) // 2 :]
            for name, program in control_plane.programs.items():
                _pin(program.process.pid, theirs if name == "kube-apiserver" else rest)
            # Processes that are started later inherit it.
            _pin(os.getpid(), rest)
            stack.callback(_pin, os.getpid(), cores)
        control_plane.install_crds()
        control_plane.install_monitoring()
        world.make_namespaces(control_plane.api)
        yield control_plane


def _pin(pid: int, cores: Sequence[int]) -> None:
    """Pins every thread of a process to the cores."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def floor(figures: Figures, plan: Plan, say: Say) -> None:
    """Measures the plain script: the seconds until all children exist, and until the controllers created all pods.

    Both start with the first TritonModel. The operator's time also ends when all pods exist.
    """
    size = figures.size
    with plane(apart=plan.apart) as control_plane:
        kubeconfig = operator_process.install(control_plane)
        command = [sys.executable, "-m", "benchmarks.scale.floor", kubeconfig, str(size), str(plan.workers)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as script:
            assert script.stdin is not None
            assert script.stdout is not None
            assert script.stdout.readline() == "ready\n"
            lock, pipe = threading.Lock(), script.stdin

            def created(model: world.Object) -> None:
                metadata = {k: model["metadata"][k] for k in ("namespace", "name", "uid")}
                with lock:
                    pipe.write(json.dumps({"metadata": metadata, "uid": metadata["uid"]}) + "\n")
                    pipe.flush()

            started = time.monotonic()
            world.create(control_plane.api, world.models(size), created)
            pipe.close()
            answer = json.loads(script.stdout.readline())
        figures.floor_s.append(answer["ended"] - started)
        eventually(lambda: world.count(control_plane.api, "Pod") == size, 60 + size, "all pods", every=0.1)
        figures.floor_pods_s.append(time.monotonic() - started)
        assert len(list(world.all_children(control_plane.api))) == answer["objects"]
    say(f"{size}: the plain script took {figures.floor_s[-1]:.1f} s, and all pods {figures.floor_pods_s[-1]:.1f} s")


def with_operator(control_plane: ControlPlane, figures: Figures, plan: Plan, say: Say, *, creation_only: bool) -> None:
    kubeconfig = operator_process.install(control_plane)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
        # The installation's interval for steps in the status; the tests use a shorter one.
        settings = {"WORKERS": str(plan.workers), "PROGRESS_SECONDS": "5"}
        with operator_process.running(kubeconfig, folder, **settings) as operator, _scraped(operator, figures):
            _create(control_plane, operator, figures, say)
            if creation_only:
                return
            _rules(control_plane, operator, figures, say)
            _rest(operator, figures, plan, say)
            _changes(control_plane, operator, figures, plan, say)
            assert operator.stop() == 0
            assert "Traceback" not in operator.log, operator.log
        started = time.monotonic()
        with operator_process.running(kubeconfig, folder, wait=False, **settings) as operator:
            eventually(operator.is_leader, 60, lambda: operator.log)
            eventually(lambda: probe.passes(operator) >= figures.size and _idle(operator), 600, "a start", every=0.25)
            figures.start_s = time.monotonic() - started
            figures.start_writes = probe.writes(probe.requests(operator))
            say(f"{figures.size}: a restart took {figures.start_s:.1f} s and {figures.start_writes} writes")
            with operator_process.running(kubeconfig, folder, lead=False, **settings) as standby:
                _fail_over(control_plane, operator, standby, figures, say)
                _unreachable(control_plane, standby, figures, plan, say)


def _create(control_plane: ControlPlane, operator: Operator, figures: Figures, say: Say) -> None:
    size, settling = figures.size, Settling(control_plane.api)
    of_all, own = probe.requests_of_all(control_plane), probe.requests(operator)
    before = probe.usage(operator.process.pid)
    started, began = time.monotonic(), time.time()
    world.create(control_plane.api, world.models(size))
    say(f"{size}: TritonModels created in {time.monotonic() - started:.1f} s")
    settled = settling.wait(size, 60 + size, lambda words: say(f"{size}: {words}")) - started
    figures.converge_s.append(settled)
    settling.close()
    _quiet(operator)
    after = probe.usage(operator.process.pid)
    figures.creation_cpu_s = after.cpu_s - before.cpu_s
    figures.rss_mib["created"] = after.rss_mib
    figures.creation = probe.requests(operator) - own
    figures.creation_of_all = probe.requests_of_all(control_plane) - of_all
    born = [world.created(child) for child in world.all_children(control_plane.api)]
    figures.objects = len(born)
    figures.children_s.append(max(born) - began)
    assert figures.objects == size * CHILDREN, figures.objects
    say(f"{size}: settled after {settled:.1f} s, {figures.creation_cpu_s:.1f} s of CPU, {after}")


def _rules(control_plane: ControlPlane, operator: Operator, figures: Figures, say: Say) -> None:
    at: list[float] = []
    watch = Watch(control_plane.api, world.RULES, lambda when, event, _: at.append(when) if event == "ADDED" else None)
    before, started = probe.requests(operator), time.monotonic()
    world.play_kubelet(control_plane.api)
    eventually(lambda: len(at) == figures.size, 60 + figures.size, lambda: f"{len(at)} rules")
    watch.close()
    figures.rules_s = max(at) - started
    _quiet(operator)
    figures.rules = probe.requests(operator) - before
    say(f"{figures.size}: all rules after {figures.rules_s:.1f} s; {probe.usage(operator.process.pid)}")


def _rest(operator: Operator, figures: Figures, plan: Plan, say: Say) -> None:
    _quiet(operator)
    before, passes, usage = probe.requests(operator), probe.passes(operator), probe.usage(operator.process.pid)
    started = time.monotonic()
    time.sleep(plan.rest_seconds)
    after = probe.usage(operator.process.pid)
    figures.rest_s = time.monotonic() - started
    figures.rest, figures.rest_passes = probe.requests(operator) - before, probe.passes(operator) - passes
    figures.rest_cpu = (after.cpu_s - usage.cpu_s) / figures.rest_s
    figures.rss_mib["idle"] = after.rss_mib
    say(f"{figures.size}: idle: {dict(figures.rest)}, {figures.rest_passes:g} reconciles, {figures.rest_cpu:.3f} cores")


def _changes(control_plane: ControlPlane, operator: Operator, figures: Figures, plan: Plan, say: Say) -> None:
    size, changes = figures.size, Changes(control_plane.api)
    keys = [key(m) for m in world.models(size)]

    before = probe.requests(operator)
    for where in random.sample(keys, SINGLE_CHANGES):
        changes.change(where)
        changes.through()
    _quiet(operator)
    figures.annotation = probe.requests(operator) - before

    changes.seconds.clear()
    for _ in range(plan.changes):
        changes.change(random.choice(keys))
        changes.through()
        time.sleep(random.uniform(0.05, 0.15))
    figures.change_s = list(changes.seconds)
    say(f"{size}: sequential changes: {summary(figures.change_s)}")

    changes.seconds.clear()
    usage, started, passes = probe.usage(operator.process.pid), time.monotonic(), probe.passes(operator)
    order = [where for _ in range(int(plan.churn_seconds * CHURN_PER_SECOND / size) + 1) for where in keys]
    for number in range(int(plan.churn_seconds * CHURN_PER_SECOND)):
        time.sleep(max(0.0, started + number / CHURN_PER_SECOND - time.monotonic()))
        changes.change(order[number])
    changes.through()
    after = probe.usage(operator.process.pid)
    figures.churn_cpu = (after.cpu_s - usage.cpu_s) / (time.monotonic() - started)
    figures.churn_s = list(changes.seconds)
    figures.churn_passes = probe.passes(operator) - passes
    changes.close()
    say(f"{size}: changes under churn: {summary(figures.churn_s)}, {figures.churn_cpu:.2f} cores")

    _quiet(operator)
    figures.rss_mib |= {"after the churn": after.rss_mib, "peak": after.peak_mib}
    before = probe.requests(operator)
    for where in keys[:SPEC_CHANGES]:
        namespace, name = where.split("/")
        control_plane.api.patch(names.KIND, name, {"spec": {"rollout": {"drainSeconds": 20}}}, namespace=namespace)
    _quiet(operator)
    figures.spec = probe.requests(operator) - before


def _unreachable(control_plane: ControlPlane, operator: Operator, figures: Figures, plan: Plan, say: Say) -> None:
    """Measures changes while the server of every second TritonModel never answers."""
    keys = [key(m) for m in world.models(figures.size)]
    silent, others = set(keys[::2]), keys[1::2]
    changes = Changes(control_plane.api)
    with world.servers(control_plane.api, silent.__contains__):
        eventually(lambda: _idle(operator), 120, "an idle queue", every=0.5)
        for _ in range(plan.changes):
            changes.change(random.choice(others))
            changes.through()
            time.sleep(random.uniform(0.05, 0.15))
    figures.unreachable_s = list(changes.seconds)
    changes.close()
    usage = probe.usage(operator.process.pid)
    figures.rss_mib |= {"with unreachable servers": usage.rss_mib, "peak": usage.peak_mib}
    say(f"{figures.size}: changes with {len(silent)} unreachable servers: {summary(figures.unreachable_s)}, {usage}")


def _fail_over(control_plane: ControlPlane, leader: Operator, standby: Operator, figures: Figures, say: Say) -> None:
    """Kills the leader, changes TritonModels while none leads, and waits until the children have the changes."""
    changes = Changes(control_plane.api)
    figures.rss_mib["standby"] = probe.usage(standby.process.pid).rss_mib
    killed = time.monotonic()
    leader.stop(signal.SIGKILL)
    for model in random.sample(world.models(figures.size), MISSED_CHANGES):
        changes.change(key(model))
    changes.through()
    figures.failover_s = time.monotonic() - killed
    changes.close()
    _quiet(standby)
    rules = {key(r): r for r in world.pages(control_plane.api, world.RULES, names.MANAGED_SELECTOR)}
    figures.missed = sum(not world.holds(rules[where], value) for where, value in changes.last.items())
    figures.missed += figures.size - len(rules)
    say(f"{figures.size}: the fail-over took {figures.failover_s:.1f} s; {figures.missed} changes missed")


def _idle(operator: Operator) -> bool:
    return probe.metric(operator, "triton_operator_queue_depth") == 0


def _quiet(operator: Operator) -> None:
    """Waits until the operator writes nothing for longer than the interval for steps in the status."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        now = probe.writes(probe.requests(operator))
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(1)


@contextlib.contextmanager
def _scraped(operator: Operator, figures: Figures) -> Iterator[None]:
    """Scrapes the operator's metrics as Prometheus does."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPE_SECONDS):
            started = time.monotonic()
            if operator.get("/metrics"):
                figures.scrape_s.append(time.monotonic() - started)

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def summary(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"median {ordered[len(ordered) // 2]:.3f} s, slowest {ordered[-1]:.3f} s of {len(ordered)}"
