"""The Triton container."""

from __future__ import annotations

from typing import Any

from latency_sampler import versions
from triton_operator.api import names
from triton_operator.api.types import TritonModel
from triton_repository_check.model import SERVED_AT
from triton_repository_check.versions import of_image

from . import exporters, load_models, overrides, readiness, start
from .common import CONTAINER_SECURITY
from .delivery import SHM, TOOLS, mount
from .facts import Facts


def container(model: TritonModel, facts: Facts) -> dict[str, Any]:
    """Returns the container of tritonserver with its probes, ports and volumes."""
    spec = model.spec
    resources = spec.server.resources.model_dump(exclude_none=True)
    drain = spec.rollout.drain_seconds
    # Kubernetes before 1.33 refuses a sleep of 0 seconds.
    lifecycle = {"lifecycle": {"preStop": {"sleep": {"seconds": drain}}}} if drain else {}
    return {
        "name": names.CONTAINER_SERVER,
        "image": spec.server.image,
        "command": start.command(
            model.spec.repair,
            readiness.path(model),
            readiness.health_path(model),
            processes=model.shows_processes,
        ),
        "args": arguments(model),
        "env": environment(model),
        "ports": [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in names.PORTS.items()],
        "resources": resources,
        "volumeMounts": [
            *overrides.server_mounts(model, mount(model, facts)),
            *({**TOOLS, "readOnly": True}, SHM),
            *load_models.mounts(model),
            *exporters.mounts(model),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
        "securityContext": CONTAINER_SECURITY,
        # Triton writes no termination message, so the last lines of its log explain why it ended.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": _probe("/v2/health/live", period=1, failures=spec.rollout.startup_seconds),
        "livenessProbe": _probe("/v2/health/live", period=10, failures=3, timeout=5),
        "readinessProbe": readiness.probe(model),
        **lifecycle,
    }


_QUANTILES = "--metrics-config=summary_latencies=true"


def arguments(model: TritonModel) -> list[str]:
    """Returns the flags of tritonserver. The user's flags come last and override the operator's."""
    server, rollout = model.spec.server, model.spec.rollout
    # Triton closes older channels gracefully. In the first two thirds of the drain, nodes that don't know of it yet may
    # open new channels to the server. The last third is the age at which Triton closes them.
    channel_age = max(1, rollout.drain_seconds // 3) * 1000
    # Latency quantiles for the dashboards. Of repeated options any `true` wins, so a `false` of the user must be alone.
    # They cost up to an eighth of the throughput, and measured latency is better, where it is measured.
    release = of_image(server.image)
    measured = model.measures_latency and (release is None or release >= versions.OLDEST)
    quantiles = [] if asks_for_summaries(model) or measured else [_QUANTILES]
    return [
        f"--model-repository={SERVED_AT}",
        f"--model-control-mode={server.model_control}",
        *load_models.flags(model),
        # If a model fails to load, the server keeps running and reports it through the API.
        "--exit-on-error=false",
        "--strict-readiness=true",
        f"--exit-timeout-secs={rollout.exit_seconds}",
        f"--grpc-max-connection-age={channel_age}",
        *([f"--log-verbose={server.log_verbosity}"] if server.log_verbosity else []),
        *quantiles,
        *exporters.flags(model),
        *server.args,
    ]


def asks_for_summaries(model: TritonModel) -> bool:
    """Whether the user has chosen about Triton's summaries. Otherwise the operator enables them for the dashboards."""
    return any("summary_latencies" in argument for argument in model.spec.server.args)


def environment(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the user's variables, and two that the user may set, too.

    HOME is the only writable directory. USER is for libraries that ask for the name of a user that the image may lack,
    as PyTorch does (getpwuid(): uid not found).
    """
    env = model.spec.server.env
    given = {variable.get("name") for variable in env}
    ours = {"HOME": "/tmp", "USER": "triton-server"}  # noqa: S108
    return [*({"name": name, "value": value} for name, value in ours.items() if name not in given), *env]


def _probe(path: str, *, period: int, failures: int, timeout: int = 1) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }
