"""The Triton container."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from .choices import Choices
from .delivery import CONTAINER_SECURITY, REPOSITORY, SHM, mount


def container(model: TritonModel, choices: Choices) -> dict[str, Any]:
    """tritonserver with its probes, ports and volumes."""
    spec = model.spec
    resources = spec.server.resources.model_dump(exclude_none=True)
    drain = spec.rollout.drain_seconds
    # Kubernetes takes a sleep of 0 seconds only from 1.33 on.
    lifecycle = {"lifecycle": {"preStop": {"sleep": {"seconds": drain}}}} if drain else {}
    return {
        "name": names.CONTAINER_SERVER,
        "image": spec.server.image,
        "command": ["tritonserver"],
        "args": arguments(model),
        "env": environment(model),
        "ports": [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in names.PORTS.items()],
        "resources": resources,
        "volumeMounts": [mount(model, choices), SHM, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
        "securityContext": CONTAINER_SECURITY,
        # Triton writes no termination message: the end of its log says why it left.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": _probe("/v2/health/live", period=1, failures=spec.rollout.startup_seconds),
        "livenessProbe": _probe("/v2/health/live", period=10, failures=3, timeout=5),
        "readinessProbe": _probe(readiness_path(model), period=2, failures=3, timeout=2),
        **lifecycle,
    }


_QUANTILES = "--metrics-config=summary_latencies=true"


def arguments(model: TritonModel) -> list[str]:
    """The flags of tritonserver; the user's come last, so that theirs win where both set one."""
    server, rollout = model.spec.server, model.spec.rollout
    # Channels older than this are closed gracefully. One may be opened to a server that is going away for as long as a
    # node hasn't heard of it: two thirds of the drain are left for that, the last one for the channel.
    channel_age = max(1, rollout.drain_seconds // 3) * 1000
    # Quantiles of the latency, for the dashboards. Triton takes the first value of this option, not the last.
    quantiles = [] if any("summary_latencies" in a for a in server.args) else [_QUANTILES]
    return [
        f"--model-repository={REPOSITORY}",
        f"--model-control-mode={server.model_control}",
        *(f"--load-model={name}" for name in server.load_models),
        # A model that can't be loaded is told by name, over the API, instead of ending the server.
        "--exit-on-error=false",
        "--strict-readiness=true",
        f"--exit-timeout-secs={rollout.exit_seconds}",
        f"--grpc-max-connection-age={channel_age}",
        *([f"--log-verbose={server.log_verbosity}"] if server.log_verbosity else []),
        *quantiles,
        *server.args,
    ]


def environment(model: TritonModel) -> list[dict[str, Any]]:
    """The user's variables, and a home in the one writable place unless they name another."""
    env = model.spec.server.env
    named = any(variable.get("name") == "HOME" for variable in env)
    return env if named else [{"name": "HOME", "value": "/tmp"}, *env]  # noqa: S108


def readiness_path(model: TritonModel) -> str:
    """What must answer 200 before clients are sent here: the entry model; all models where none is named,
    because which one is the entry is only known inside the image."""
    if model.spec.entrypoint:
        return f"/v2/models/{quote(model.spec.entrypoint, safe='')}/ready"
    return "/v2/health/ready"


def _probe(path: str, *, period: int, failures: int, timeout: int = 1) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }
