"""A real API server without nodes: etcd and kube-apiserver with their own ports and folders. It starts in seconds."""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from urllib3.exceptions import HTTPError

from hack.world import settings
from triton_operator.api import kubernetes_versions

from . import children, evidence, ports
from .api import MIN_WAIT_SECONDS, START_SECONDS, Api, Object, RefusedError, eventually, steady

ROOT = Path(__file__).resolve().parents[2]
_TOKEN = "admin"
_MANAGER = "system:kube-controller-manager"
CRD = ROOT / "crds" / "tritonoperator.io_tritonmodels.yaml"
_MONITORING = ROOT / "tests" / "support" / "vendor" / "prometheus-operator.yaml"
_KEDA, _SCALED_OBJECTS = ROOT / "tests" / "support" / "vendor" / "keda.yaml", "scaledobjects.keda.sh"
_OLD = ("old-podmonitors.yaml", "old-prometheusrules.yaml", "old-scaledobjects.yaml")
_ROUTES = ("httproutes.yaml", "grpcroutes.yaml", "backendtrafficpolicies.yaml")
_OLD_ROUTES = ("old-httproutes.yaml", "old-grpcroutes.yaml")
_OLM = ROOT / "tests" / "support" / "vendor" / "olm.yaml"
_MONITORING_CRDS = [f"{plural}.monitoring.coreos.com" for plural in ("podmonitors", "prometheusrules", "prometheuses")]
_WRITTEN = (
    "tritonmodels|deployments|services|serviceaccounts|poddisruptionbudgets|horizontalpodautoscalers|podmonitors"
    "|prometheusrules|scaledobjects|networkpolicies|httproutes|grpcroutes|backendtrafficpolicies|events|pods"
)
_CONTROLLERS = (
    "deployment-controller,replicaset-controller,garbage-collector-controller,disruption-controller,"
    "namespace-controller,serviceaccount-controller,clusterrole-aggregation-controller,"
    "validatingadmissionpolicy-status-controller"
)
_TRITON_MODEL = {"apiVersion": "tritonoperator.io/v1alpha1", "kind": "TritonModel"}
AUDIT_POLICY = ROOT / "manifests" / "audit" / "policy.yaml"


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane. `kubeconfig` has the rights of a cluster admin."""

    url: str
    kubeconfig: Path
    folder: Path
    programs: dict[str, _Program] = field(default_factory=dict)
    etcd: str = ""
    """URL of etcd."""

    def compact(self) -> None:
        """Removes all states of the objects but the current one, as the API server does every five minutes."""

        def post(path: str, body: dict[str, Any]) -> Any:
            request = urllib.request.Request(f"{self.etcd}/v3/kv/{path}", json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.load(response)

        revision = post("range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
        post("compaction", {"revision": revision, "physical": True})

    @property
    def api(self) -> Api:
        return Api.of(self.kubeconfig)

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """Returns a kubeconfig with the rights of this ServiceAccount, to test RBAC."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api.request("POST", path, request)["status"]["token"]
        target = self.folder / f"kubeconfig-{namespace}-{service_account}"
        _write_kubeconfig(target, self.url, self.folder / "certs" / "apiserver.crt", token)
        return target

    def kubeconfig_of_user(self, user: str) -> Path:
        """Returns the kubeconfig of one of the control plane's `users`, who have no rights without a role binding."""
        target = self.folder / f"kubeconfig-{user}"
        _write_kubeconfig(target, self.url, self.folder / "certs" / "apiserver.crt", user)
        return target

    def audit_events(self) -> list[dict[str, Any]]:
        """Returns the events in the audit log, in the order of the responses."""
        text = (self.folder / "audit.log").read_text()
        # The API server may be writing the last line.
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def install_crds(self, edit: Callable[[str], str] | None = None) -> None:
        """Applies crds/, changed by `edit`, and waits until the API server serves them."""
        self._install(yaml.safe_load_all(edit(CRD.read_text())) if edit else documents(CRD))

    @contextlib.contextmanager
    def without_bounds(self) -> Iterator[None]:
        """Makes the CRD accept any value in podTemplate.spec, server.env and autoscaling.behavior, like a CRD without
        a schema for them, until the context ends."""
        (crd,) = copy.deepcopy(documents(CRD))
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        spec["podTemplate"]["properties"]["spec"] = spec["server"]["properties"]["env"]["items"] = anything
        spec["autoscaling"]["properties"]["behavior"] = anything
        self.api.apply(crd)
        unknown = {"modelImage": {"reference": "a"}, "podTemplate": {"spec": {"unknown": 1}}}
        body = {**_TRITON_MODEL, "metadata": {"name": "probe"}, "spec": unknown}
        path = f"{self.api.path('TritonModel')}?dryRun=All"
        try:
            eventually(lambda: "unknown" in str(self.api.request("POST", path, body)["spec"]), 60, "no bounds")
            yield
        finally:
            self.install_crds()
            eventually(lambda: "unknown" not in str(self.api.request("POST", path, body)["spec"]), 60, "bounds")

    def install_monitoring(self) -> None:
        """Installs the CRDs of prometheus-operator that the operator uses."""
        self._install(crd for crd in documents(_MONITORING) if _name(crd) in _MONITORING_CRDS)

    def install_keda(self) -> None:
        """Installs KEDA's CRD of ScaledObjects."""
        self._install(crd for crd in documents(_KEDA) if _name(crd) == _SCALED_OBJECTS)

    def install_old_crds(self) -> None:
        """Installs CRDs of prometheus-operator 0.65 and KEDA 2.13, which lack fields that the operator would set."""
        for file in _OLD:
            self._install(documents(_MONITORING.with_name(file)))

    def install_routes(self) -> None:
        """Installs the CRDs of the Gateway API and of Envoy Gateway that the operator uses."""
        for file in _ROUTES:
            self._install(documents(_MONITORING.with_name(file)))

    def install_old_routes(self) -> None:
        """Installs the CRDs of routes of the Gateway API 1.1."""
        for file in _OLD_ROUTES:
            self._install(documents(_MONITORING.with_name(file)))

    def install_olm(self) -> None:
        """Installs OLM's CRD of ClusterServiceVersions."""
        self._install(documents(_OLM))

    def remove_keda(self) -> None:
        """Deletes this CRD with all its objects."""
        self.api.delete("CustomResourceDefinition", _SCALED_OBJECTS)
        eventually(lambda: self.api.find("CustomResourceDefinition", _SCALED_OBJECTS) is None, 60, "the CRD is deleted")

    def remove_monitoring(self) -> None:
        """Deletes these CRDs with all their objects."""
        for name in _MONITORING_CRDS:
            self.api.delete("CustomResourceDefinition", name)
        for name in _MONITORING_CRDS:
            eventually(lambda n=name: self.api.find("CustomResourceDefinition", n) is None, 60, f"{name} is deleted")

    def writes(self) -> dict[str, float]:
        """Returns the writes of the operator's kinds since the API server's start, by metric labels."""
        counts = {}
        for line in self.api.request("GET", "/metrics").splitlines():
            if (
                line.startswith("apiserver_request_total")
                and re.search(rf'[,{{]resource="({_WRITTEN})"', line)
                and re.search(r'verb="(POST|PUT|PATCH|APPLY|DELETE)"', line)
            ):
                labels, _, value = line.rpartition(" ")
                counts[labels] = float(value)
        return counts

    def wait_until_quiet(self) -> None:
        """Waits until there were no writes for 1.2 seconds."""
        steady(self.writes, 1.2, 2 * MIN_WAIT_SECONDS, "the writes don't stop")

    def kill(self, program: str) -> None:
        """Kills `etcd`, `kube-apiserver` or `kube-controller-manager` with SIGKILL. Its data stays."""
        self.programs[program].kill()

    @contextlib.contextmanager
    def paused(self, program: str) -> Iterator[None]:
        """Stops a program with SIGSTOP while the context lasts."""
        process = self.programs[program].process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def start(self, program: str) -> None:
        """Starts a killed program with the same port and data, and waits until the API server is ready."""
        self.programs[program].start()
        eventually(lambda: _served(self.api, "/readyz"), START_SECONDS, lambda: _log(self.folder))

    def _install(self, objects: Iterable[Object]) -> None:
        for crd in objects:
            if crd["kind"] != "CustomResourceDefinition":
                continue
            self.api.apply(crd)
            group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
            version = crd["spec"]["versions"][0]["name"]
            eventually(
                lambda path=f"/apis/{group}/{version}/{plural}": _served(self.api, path),
                START_SECONDS,
                f"the API server serves {plural}",
            )


@functools.cache
def documents(file: Path) -> tuple[Object, ...]:
    """Returns the objects of a manifest. The loader in C takes 0.3 s of CPU for all CRDs, that in Python 2 s."""
    return tuple(obj for obj in yaml.load_all(file.read_text(), yaml.CSafeLoader) if obj)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def binaries() -> Path:
    """Returns the folder of etcd, kube-apiserver and, except on macOS, kube-controller-manager."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or settings.HOME / "control-plane")
    assert (folder / "kube-apiserver").exists(), f"no kube-apiserver in {folder}; run hack/world.sh control-plane"
    return folder


@functools.cache
def version() -> str:
    """Returns the version of kube-apiserver, such as v1.36.3."""
    result = subprocess.run([binaries() / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    return result.stdout.split()[-1]


def compared() -> Literal["older", "same", "newer"]:
    """Returns how the minor version of kube-apiserver compares with the one that hack/versions.env names."""
    there, here = kubernetes_versions.minor(version()), kubernetes_versions.minor(settings.KUBERNETES)
    return "same" if there == here else "older" if there < here else "newer"


def has_controllers() -> bool:
    """Returns whether kube-controller-manager is installed. There is no release for macOS."""
    return os.access(binaries() / "kube-controller-manager", os.X_OK)


def scheduler() -> Path | None:
    """Returns the kube-scheduler of the kind cluster's node; None if it isn't built."""
    programs = (folder / "kube-scheduler" for folder in (binaries(), settings.HOME / "node"))
    return next((program for program in programs if os.access(program, os.X_OK)), None)


@contextlib.contextmanager
def running(
    *,
    controllers: bool = False,
    schedules: bool = False,
    manager_flags: Sequence[str] = (),
    server_flags: Sequence[str] = (),
    audit: Path | None = None,
    users: Sequence[str] = (),
) -> Iterator[ControlPlane]:
    """Runs a control plane while the context lasts.

    - `controllers`: run kube-controller-manager, with `manager_flags`; needs has_controllers()
    - `schedules`: run kube-scheduler; needs scheduler()
    - `server_flags`: additional flags of kube-apiserver
    - `audit`: an audit policy
    - `users`: users besides the cluster admin; the token is the user's name
    """
    programs = binaries()
    folder = Path(tempfile.mkdtemp(prefix="controlplane-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(evidence.on_failure(folder.name, evidence.of_plane(folder / "kubeconfig", folder)))
        etcd, peer, port = ports.free(3)
        url, kubeconfig = f"https://127.0.0.1:{port}", folder / "kubeconfig"
        store = _start(
            stack, folder, programs / "etcd", f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", "--unsafe-no-fsync", "--log-level=error",
        )  # fmt: skip
        key = folder / "service-account.key"
        curve = ("ecparam", "-genkey", "-noout", "-name", "prime256v1")
        subprocess.run(["openssl", *curve, "-out", key], check=True, capture_output=True)
        accounts = [f"{_TOKEN},admin,admin,system:masters", *(f"{u},{u},{u}" for u in (_MANAGER, *users))]
        (folder / "tokens.csv").write_text("\n".join(accounts) + "\n")
        audit_flags = [f"--audit-policy-file={audit}", f"--audit-log-path={folder / 'audit.log'}"] if audit else []
        server = _start(
            stack, folder, programs / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--cert-dir={folder / 'certs'}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc", "--api-audiences=https://kubernetes.default.svc",
            f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/16", "--allow-privileged=true",
            # No controller creates the ServiceAccount `default`; without it the plugin would refuse every pod.
            "--disable-admission-plugins=ServiceAccount", *audit_flags, *server_flags,
        )  # fmt: skip
        certificate = folder / "certs" / "apiserver.crt"
        eventually(lambda: certificate.exists() or _ended(server, folder), START_SECONDS, "a certificate")
        _write_kubeconfig(kubeconfig, url, certificate, _TOKEN)
        programs_by_name = {p.name: p for p in (store, server)}
        plane = ControlPlane(url, kubeconfig, folder, programs_by_name, f"http://127.0.0.1:{etcd}")
        api = plane.api
        eventually(lambda: _ended(server, folder) or _served(api, "/readyz"), START_SECONDS, lambda: _log(folder))
        if controllers:
            manager = folder / "kubeconfig-manager"
            _write_kubeconfig(manager, url, certificate, _MANAGER)
            plane.programs["kube-controller-manager"] = _start(
                stack, folder, programs / "kube-controller-manager", f"--kubeconfig={manager}",
                # Each controller has its own ServiceAccount, as in a real cluster.
                "--use-service-account-credentials", f"--controllers={_CONTROLLERS}",
                "--leader-elect=false", "--secure-port=0",
                f"--service-account-private-key-file={key}", *manager_flags,
            )  # fmt: skip
            eventually(lambda: _reconciles(plane), START_SECONDS, lambda: _log(folder, "kube-controller-manager"))
        if schedules:
            program = scheduler()
            assert program is not None, "no kube-scheduler: run hack/world.sh kubernetes"
            plane.programs[program.name] = _start(
                stack, folder, program, f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0",
            )  # fmt: skip
        yield plane


class _Program:
    """A program of the control plane that can be killed and started again."""

    def __init__(self, folder: Path, program: Path, arguments: Sequence[str]) -> None:
        self.name, self._folder, self._command = program.name, folder, [program, *arguments]
        self.start()

    def start(self) -> None:
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self.process = children.start(self._command, stdout=log, stderr=log, cwd=self._folder)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()


def _start(stack: contextlib.ExitStack, folder: Path, program: Path, *arguments: str) -> _Program:
    child = _Program(folder, program, arguments)
    stack.callback(child.stop)
    return child


def _served(api: Api, path: str) -> bool:
    try:
        api.request("GET", path)
    except (RefusedError, HTTPError):
        return False
    return True


def _reconciles(plane: ControlPlane) -> bool:
    """Returns whether the controller manager works: it has aggregated the rules of the ClusterRole `admin`."""
    _ended(plane.programs["kube-controller-manager"], plane.folder)
    return bool(plane.api.get("ClusterRole", "admin")["rules"])


def _ended(program: _Program, folder: Path) -> bool:
    """Returns False, or fails with the end of the log if the program ended."""
    if program.process.poll() is not None:
        time.sleep(0.1)
        log = _log(folder, program.name)
        # The last line names the reason, and reports of many failures show only the first line.
        raise AssertionError(f"{program.name} ended: {''.join(log.splitlines()[-1:])}\n{log}")
    return False


def _log(folder: Path, program: str = "kube-apiserver") -> str:
    return (folder / f"{program}.log").read_text(errors="replace")[-2000:]


def _write_kubeconfig(path: Path, url: str, authority: Path, token: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(content))
