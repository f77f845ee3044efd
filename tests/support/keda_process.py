"""Runs KEDA's operator, admission webhook and metrics server as processes, with the roles of its installation."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

from hack.world import settings

from . import children, evidence, ports
from .api import START_SECONDS, Object, eventually
from .controlplane import ROOT, ControlPlane

_MANIFEST = ROOT / "tests" / "support" / "vendor" / "keda.yaml"
_NEEDS_PODS = ("Deployment", "Service", "APIService", "ValidatingWebhookConfiguration")
NAMESPACE, ACCOUNT = "keda", "keda-operator"


def program() -> Path | None:
    """Returns KEDA's operator; None if `hack/world.sh keda` hasn't built it."""
    binary = settings.HOME / "keda" / "keda-operator"
    return binary if os.access(binary, os.X_OK) else None


def install(plane: ControlPlane) -> Path:
    """Installs KEDA's CRDs, its ServiceAccount and its roles. Returns a kubeconfig with these rights."""
    objects = [o for o in yaml.safe_load_all(_MANIFEST.read_text()) if o and o["kind"] not in _NEEDS_PODS]
    command = ["kubectl", f"--kubeconfig={plane.kubeconfig}", "apply", "--server-side", "-f", "-"]
    process = subprocess.run(command, input=yaml.safe_dump_all(objects), capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    plane.install_keda()
    return plane.kubeconfig_of(NAMESPACE, ACCOUNT)


@contextlib.contextmanager
def running(plane: ControlPlane, kubeconfig: Path, folder: Path) -> Iterator[Path]:
    """Runs KEDA while the context lasts. Yields the log of its operator.

    The API server refuses writes of ScaledObjects if the webhook fails, unlike in KEDA's installation.
    """
    binary = program()
    assert binary is not None, "run hack/world.sh keda"
    certificates = _certificates(folder)
    health, metrics, hook_health, hook, adapter, unused = ports.free(6)
    with contextlib.ExitStack() as stack:
        log = _start(
            stack, binary, kubeconfig, folder, health, f"--cert-dir={certificates}",
            "--enable-prometheus-metrics=false", f"--metrics-service-bind-address=127.0.0.1:{metrics}",
        )  # fmt: skip
        _start(
            stack, binary.with_name("keda-webhooks"), kubeconfig, folder, hook_health, f"--cert-dir={certificates}",
            "--metrics-bind-address=0", f"--port={hook}",
        )  # fmt: skip
        _start(
            stack, binary.with_name("keda-adapter"), kubeconfig, folder, 0, f"--cert-dir={certificates}",
            "--bind-address=127.0.0.1", f"--secure-port={adapter}", f"--port={unused}",
            f"--tls-cert-file={certificates / 'tls.crt'}", f"--tls-private-key-file={certificates / 'tls.key'}",
            f"--metrics-service-address=127.0.0.1:{metrics}", "--authentication-skip-lookup",
            *(f"--{use}-kubeconfig={kubeconfig}" for use in ("lister", "authentication", "authorization")),
        )  # fmt: skip
        for obj in [*_metrics_api(adapter), _webhook(hook, certificates / "ca.crt")]:
            _apply(plane, obj)
            stack.callback(_delete, plane, obj)
        yield log


def _start(
    stack: contextlib.ExitStack, program: Path, kubeconfig: Path, folder: Path, health: int, *flags: str
) -> Path:
    """Starts a program of KEDA and waits until it is ready, if `health` is its port for that. Returns its log."""
    log = folder / f"{program.name}-{health}.log"
    command = [str(program), *([f"--health-probe-bind-address=127.0.0.1:{health}"] if health else []), *flags]
    env = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": NAMESPACE, "WATCH_NAMESPACE": "",
           "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE}  # fmt: skip
    with log.open("wb") as out:
        process = children.start(command, env=env, stdout=out, stderr=out)
    stack.callback(_stop, process)
    stack.enter_context(evidence.on_failure(log.name, evidence.of_file(log)))

    def up() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    if health:
        eventually(up, START_SECONDS, lambda: log.read_text()[-3000:])
    return log


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _apply(plane: ControlPlane, obj: Object) -> None:
    _kubectl(plane, obj, "apply", "--server-side", "--force-conflicts")


def _delete(plane: ControlPlane, obj: Object) -> None:
    _kubectl(plane, obj, "delete", "--ignore-not-found")


def _kubectl(plane: ControlPlane, obj: Object, *command: str) -> None:
    process = subprocess.run(
        ["kubectl", f"--kubeconfig={plane.kubeconfig}", *command, "-f", "-"],
        input=yaml.safe_dump(obj), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr


def _metrics_api(port: int) -> list[Object]:
    """Returns the objects through which the API server forwards requests for metrics to the process.

    This API server has no certificate of its own for that, so the metrics server doesn't know who asks.
    """
    documents = yaml.safe_load_all(_MANIFEST.read_text())
    api_service: Object = next(o for o in documents if o and o["kind"] == "APIService")
    service = {**api_service["spec"]["service"], "port": port}
    metadata = {k: service[k] for k in ("name", "namespace")}
    external = {"type": "ExternalName", "externalName": "localhost"}
    bindings: list[Object] = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"anonymous-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "system:anonymous", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        for role in ("system:discovery", "keda-external-metrics-reader")
    ]
    return [
        *bindings,
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": external},
        {**api_service, "spec": {**api_service["spec"], "service": service, "insecureSkipTLSVerify": True}},
    ]


def _webhook(port: int, authority: Path) -> Object:
    """Returns KEDA's webhook configuration for ScaledObjects, with the address of the process."""
    documents = yaml.safe_load_all(_MANIFEST.read_text())
    configuration: Object = next(o for o in documents if o and o["kind"] == "ValidatingWebhookConfiguration")
    [webhook] = [w for w in configuration["webhooks"] if w["name"] == "vscaledobject.kb.io"]
    url = f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}"
    client = {"url": url, "caBundle": base64.b64encode(authority.read_bytes()).decode()}
    return {**configuration, "webhooks": [{**webhook, "clientConfig": client, "failurePolicy": "Fail"}]}


def _certificates(folder: Path) -> Path:
    """Returns a folder with a self-signed certificate for this machine."""
    target = folder / "keda-certs"
    if not target.exists():
        target.mkdir()
        key, certificate = target / "tls.key", target / "tls.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=keda", "-days", "2",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        (target / "ca.crt").write_bytes(certificate.read_bytes())
    return target
