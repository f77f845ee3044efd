"""Random actions of a tenant don't affect other namespaces, other TritonModels, or any permissions."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from support import attempts, bad_servers, controlplane, gen, operator_process, prometheus_process
from support.api import Api, condition, eventually
from support.attempts import VICTIM, Attempt, Tenant
from support.bad_servers import Behaviour
from support.controlplane import ROOT, ControlPlane
from support.invariants import Foreign
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import apply_folder, bind, bind_editor, refusal
from support.profiles import SOAK, drawn, seed
from support.prometheus_process import Prometheus
from triton_operator.api import names, thresholds
from triton_operator.reconcile.events import BURST

pytestmark = pytest.mark.properties

Json = dict[str, Any]
ROUNDS, EACH = (40, 80) if SOAK else (2, 80)
OTHERS, JUDGE = "others", "restricted"
USERS = {"developer": "dev", "editor": "edit"}
"""The tenants' users and namespaces. One has only the role tritonmodel-developer, the other also the role `edit`."""
SCRAPED = "scraped"
"""A permanent TritonModel of the developer, so that Prometheus always scrapes servers of a tenant."""
CANARYS = (VICTIM, f"{VICTIM}-headless", names.account(VICTIM))
"""Names of the canary and of its children."""
SHOP = {"app.kubernetes.io/instance": "shop"}
"""The labels by which a Service of another user selects its pods."""
LIMIT = 100.0
SERVERS, PAGES = [f"127.0.7.{n}" for n in range(1, 7)], 3
HONEST = "127.0.7.100"
AUDIT_POLICY = ROOT / "tests" / "security" / "audit.yaml"
OPERATORS_MIB = 512
_numbers = itertools.count(1)


@dataclass
class Tenancy:
    """`behaviours`: the behaviour of the tenants' servers, by address and port."""

    plane: ControlPlane
    operator: Operator
    prometheus: Prometheus
    tenants: dict[str, Tenant]
    foreign: list[Foreign]
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)

    def in_namespace(self, namespace: str) -> Api:
        return self.plane.api.in_namespace(namespace)


@pytest.fixture(scope="module")
def tenancy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenancy]:
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(controlplane.running(audit=AUDIT_POLICY, users=list(USERS)))
        kubeconfig = installed(plane)
        operator = stack.enter_context(operator_process.running(kubeconfig, tmp_path_factory.mktemp("operator")))
        others = plane.api.in_namespace(OTHERS)
        annotations = {f"{thresholds.PREFIX}max-qps": f"{LIMIT:g}"}
        victim = others.create(model(VICTIM, annotations))["metadata"]["uid"]
        plane.api.in_namespace("dev").create(model(SCRAPED))
        for api, name in ((others, VICTIM), (plane.api.in_namespace("dev"), SCRAPED)):
            eventually(lambda a=api, n=name: a.find("Deployment", n), 60, lambda: operator.log[-2000:])
        index = json.dumps([{"name": "net", "version": "1", "state": "READY"}])
        stack.enter_context(bad_servers.server(HONEST, bad_servers.answers(index.encode())))
        report = gen.checked(gen.report("net", entrypoint="net"))
        add_pod(others, report, gen.put("status.podIP", HONEST), name="canary-1", model=VICTIM)
        eventually(lambda: others.find("PrometheusRule", VICTIM), 60, lambda: operator.log[-2000:])
        behaviours: dict[str, Behaviour] = {}
        for address in SERVERS:
            for port in (names.PORTS["http"], names.PORTS["metrics"]):
                stack.enter_context(bad_servers.server(address, changing(behaviours, f"{address}:{port}"), port))
        prometheus = stack.enter_context(scraping(plane, operator, tmp_path_factory.mktemp("prometheus")))
        tenants = {
            user: Tenant(Api.of(plane.kubeconfig_of_user(user)).in_namespace(namespace), victim)
            for user, namespace in USERS.items()
        }
        foreign = [Foreign(plane.api.in_namespace(namespace)) for namespace in (OTHERS, "dev")]
        yield Tenancy(plane, operator, prometheus, tenants, foreign, behaviours)
        assert operator.stop() == 0
        assert "Traceback" not in operator.log


def installed(plane: ControlPlane) -> Path:
    """Installs roles, policies and namespaces; returns the operator's kubeconfig."""
    plane.install_crds()
    plane.install_monitoring()
    plane.install_keda()
    plane.install_routes()
    kubeconfig = operator_process.install(plane)
    for folder in ("rbac", "policies"):
        apply_folder(plane, ROOT / "manifests" / folder)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    for namespace, labels in {OTHERS: {}, JUDGE: restricted, **{n: {} for n in USERS.values()}}.items():
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    for user, namespace in USERS.items():
        bind(plane, namespace, user, "ClusterRole", "tritonmodel-developer")
    bind_editor(plane, USERS["editor"], "editor")
    developer = Api.of(plane.kubeconfig_of_user("developer")).in_namespace(USERS["developer"])
    more = {**model("probe"), "spec": {**model("probe")["spec"], "podTemplate": {"spec": {"hostNetwork": True}}}}
    probe = f"{developer.path('TritonModel')}?dryRun=All"
    eventually(lambda: "pod-template" in refusal(lambda: developer.request("POST", probe, more)), 60, "the policy")
    return kubeconfig


def model(name: str, annotations: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"modelImage": {"reference": "registry.example.com/net:1"}, "entrypoint": "net"},
    }


def changing(behaviours: dict[str, Behaviour], address: str) -> Behaviour:
    """Returns a server with the current behaviour of its address."""
    return lambda connection, over: behaviours.get(address, bad_servers.closes)(connection, over)


@contextlib.contextmanager
def scraping(plane: ControlPlane, operator: Operator, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the tenant's servers and the operator, and evaluates the rules of others."""
    monitor = plane.api.in_namespace("dev").get("PodMonitor", SCRAPED)
    targets = {f"{address}:{names.PORTS['metrics']}": f"tenant-{address}" for address in SERVERS[:PAGES]}
    groups = plane.api.in_namespace(OTHERS).get("PrometheusRule", VICTIM)["spec"]["groups"]
    with prometheus_process.serving({"/metrics": lambda: operator.get("/metrics")}) as page:
        own = {"job_name": names.METRICS_JOB, "honor_labels": True, "static_configs": [{"targets": [page]}]}
        configs = [own, *prometheus_process.scrape_config(monitor, targets)]
        with prometheus_process.running(folder, configs, groups) as prometheus:
            yield prometheus


def test_random_actions_of_a_tenant_do_not_affect_others(tenancy: Tenancy) -> None:
    first, verbs = seed(), itertools.cycle(attempts.WRITES)
    for number in range(ROUNDS):
        # The verbs of writes take turns: a random one may never be drawn.
        tried = [
            (user, replace(attempt, verb=next(verbs)) if attempt.verb in attempts.WRITES else attempt)
            for user, attempt in drawn(
                st.tuples(st.sampled_from(sorted(USERS)), attempts.ATTEMPTS), EACH, first + number
            )
        ]
        answers = drawn(attempts.ANSWERS, len(SERVERS), first + number)
        pages = drawn(attempts.PAGES, PAGES, first + number)
        attack(tenancy, tried, answers, pages)
        serve(tenancy)
        others_are_served(tenancy)
        foreign_objects_are_unchanged(tenancy)
        servers_have_no_privileges(tenancy)
        prometheus_data_of_others_is_unchanged(tenancy)
        texts_are_printable_and_bounded(tenancy)
    print(f"{ROUNDS * EACH} attempts: {dict(tenancy.taken)}")
    for verb in ("put", "patch", "child"):
        assert tenancy.taken[f"{verb}: taken"], "the API server refused every attempt, so the test shows nothing"
        assert tenancy.taken[f"{verb}: refused"]


def attack(
    tenancy: Tenancy, tried: list[tuple[str, Attempt]], answers: list[Behaviour], pages: list[Behaviour]
) -> None:
    for port, behaviours in ((names.PORTS["http"], answers), (names.PORTS["metrics"], pages)):
        for address, behaviour in zip(SERVERS, behaviours, strict=False):
            tenancy.behaviours[f"{address}:{port}"] = behaviour
    for user, attempt in tried:
        code = tenancy.tenants[user].attempt(attempt)
        tenancy.taken[f"{attempt.verb}: {'taken' if code == 200 else 'refused'}"] += 1


def serve(tenancy: Tenancy) -> None:
    """Creates a pod with a hostile server for each Deployment of the tenants."""
    addresses = itertools.cycle(SERVERS)
    for namespace in USERS.values():
        api = tenancy.in_namespace(namespace)
        for deployment in api.list("Deployment", names.MANAGED_SELECTOR):
            name = deployment["metadata"]["name"]
            ours = any(owner["kind"] == names.KIND for owner in deployment["metadata"].get("ownerReferences", []))
            if ours and name in (*attempts.OWN, SCRAPED):
                ip = gen.put("status.podIP", next(addresses))
                refusal(lambda a=api, n=name, i=ip: add_pod(a, i, name=f"{n}-pod", model=n))


def others_are_served(tenancy: Tenancy) -> None:
    """Checks that a change of the canary reaches its child, that it is Ready, and that the operator runs."""
    api, image = tenancy.in_namespace(OTHERS), f"registry.example.com/triton:v{next(_numbers)}"
    api.patch("TritonModel", VICTIM, {"spec": {"server": {"image": image}}})

    def follows() -> bool:
        deployment = api.get("Deployment", VICTIM)
        return bool(deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image)

    eventually(follows, 60, lambda: tenancy.operator.log[-3000:])
    status = api.get("TritonModel", VICTIM)
    for kind in ("Ready", "ModelsLoaded"):
        assert condition(status, kind)["status"] == "True", status["status"]
    assert tenancy.operator.process.poll() is None
    assert tenancy.operator.get("/healthz") == "ok"
    memory = Path(f"/proc/{tenancy.operator.process.pid}/status").read_text()
    assert int(re.findall(r"VmHWM:\s+(\d+) kB", memory)[0]) >> 10 < OPERATORS_MIB
    errors = [line for line in tenancy.operator.log.splitlines() if json.loads(line)["level"] in ("ERROR", "CRITICAL")]
    assert [line for line in errors if "the spec can't be read" not in line] == []


def foreign_objects_are_unchanged(tenancy: Tenancy) -> None:
    """Checks that no foreign object changed, and that the operator wrote only objects of the tenants and the canary."""
    assert [problem for foreign in tenancy.foreign for problem in foreign.problems()] == []
    for event in tenancy.plane.audit_events():
        about = event.get("objectRef", {})
        if event["verb"] in ("get", "list", "watch") or about.get("resource") == "leases":
            continue
        where, name = about.get("namespace"), about.get("name", "")
        canarys = where == OTHERS and (name in CANARYS or about["resource"] == "events")
        assert where in USERS.values() or canarys, event


def servers_have_no_privileges(tenancy: Tenancy) -> None:
    """Checks the servers of a user who may not create pods.

    Pod Security `restricted` must allow them. They must use no Secret, and no ServiceAccount but their own.
    """
    api, judge = tenancy.in_namespace(USERS["developer"]), tenancy.in_namespace(JUDGE)
    accounts = {account["metadata"]["name"]: owner(account) for account in api.list("ServiceAccount")}
    for deployment in api.list("Deployment"):
        template = deployment["spec"]["template"]
        spec = template["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "judged", "namespace": JUDGE}, "spec": spec}
        message = refusal(lambda p=pod: judge.request("POST", f"{judge.path('Pod')}?dryRun=All", p))
        assert "PodSecurity" not in message, (message, spec)
        # No garbage collector runs, so an account may belong to an earlier TritonModel with the same name.
        assert accounts[spec["serviceAccountName"]] == owner(deployment) != "", spec
        assert spec["serviceAccountName"] == names.account(owner(deployment)), (
            "the account may have permissions of other users"
        )
        assert not SHOP.items() <= template["metadata"]["labels"].items(), "a Service of others selects it"
        assert spec["automountServiceAccountToken"] is False, spec
        assert {kind for volume in spec["volumes"] for kind in volume} <= {"name", "emptyDir", "image"}, spec
        assert not re.search(r'"(secretKeyRef|configMapKeyRef|secretRef|configMapRef)"', json.dumps(spec)), spec
        vouched = [t.get("key", "") for t in spec.get("tolerations", [])]
        assert not [k for k in vouched if not k or ("kubernetes.io/" in k and not k.startswith("node.kubernetes.io/"))]


def owner(obj: Json) -> str:
    """Returns the name of the TritonModel that controls an object; "" if there is none."""
    owners = obj["metadata"].get("ownerReferences", [])
    return next((o["name"] for o in owners if o["kind"] == names.KIND and o.get("controller")), "")


def prometheus_data_of_others_is_unchanged(tenancy: Tenancy) -> None:
    """Checks that thresholds and rules of others are unchanged, and that tenants' series have the tenant's labels."""
    own = f'namespace="{OTHERS}",tritonmodel="{VICTIM}",kind="max-qps",version=""'
    eventually(
        lambda: tenancy.prometheus.value(f"tritonmodel:threshold:effective{{{own}}}") == LIMIT,
        60,
        "the threshold in effect",
    )
    labels = rf'(?=.*namespace="{USERS["developer"]}")(?=.*kind="max-qps").*'
    values = re.findall(rf"^triton_operator_threshold\{{{labels}\}} (.*)$", tenancy.operator.get("/metrics"), re.M)
    assert set(values) <= {"+Inf"}, "a developer has set a threshold"
    strange = '{pod=~"tenant-.*",namespace!="dev"}', '{pod=~"tenant-.*",__name__=~"triton.*:.*|triton_operator_.*"}'
    assert [tenancy.prometheus.ask("query", query=query)["result"] for query in strange] == [[], []]
    rules = [rule for group in tenancy.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert [rule for rule in rules if rule["health"] == "err"] == []


def texts_are_printable_and_bounded(tenancy: Tenancy) -> None:
    """Checks that status and Events contain only printable text, and that the number of Events is limited."""
    for namespace in USERS.values():
        api = tenancy.in_namespace(namespace)
        events = api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        for name, count in Counter(event["regarding"]["name"] for event in events).items():
            assert count <= BURST + 1, (name, count)
        words = [event["note"] for event in events]
        for each in api.list("TritonModel"):
            words += [c["message"] for c in each.get("status", {}).get("conditions", [])]
            words += [m.get("reason", "") for m in each.get("status", {}).get("models", [])]
        assert [word for word in words if not word.isprintable()] == []
