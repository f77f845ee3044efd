"""The pod of a server, as the API server has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import is_deleting
from triton_operator.api.servers import RunningServer
from triton_operator.render import load_models
from triton_operator.render.delivery import SHM
from triton_operator.render.sizes import cuda_devices
from triton_repository_check import report

Status = Mapping[str, Any]
"""The status of a container, as in the pod's `containerStatuses`."""


@dataclass(frozen=True)
class Pod:
    """A pod. `raw` is its JSON; what the kubelet hasn't reported yet is empty."""

    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def status(self) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.raw.get("status", {})
        return status

    @property
    def is_deleting(self) -> bool:
        return is_deleting(self.raw)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended. Its ReplicaSet creates another one; this one stays until it is collected."""
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def is_evicted(self) -> bool:
        """Whether its node has ended it, because it was short of memory or disk, or because the pod used too much disk.

        Other pods that have ended don't say anything about the next one: their node was shut down, or wasn't ready yet.
        """
        return self.status.get("phase") == "Failed" and self.status.get("reason") == "Evicted"

    @property
    def ended_at(self) -> datetime:
        """About the time at which it ended, if it has."""
        ends = (ended(status).get("finishedAt") for status in self.containers)
        times = [*ends, *(condition.get("lastTransitionTime") for condition in self.status.get("conditions", []))]
        return max((datetime.fromisoformat(time) for time in times if time), default=self.created)

    @property
    def is_alive(self) -> bool:
        """Whether it is neither being deleted nor has ended."""
        return not self.is_deleting and not self.has_ended

    @property
    def is_ready(self) -> bool:
        """Whether it is Ready. The readiness probe checks the entrypoint."""
        return self.is_alive and self.condition("Ready").get("status") == "True"

    @property
    def is_scheduled(self) -> bool:
        """Whether a node was found for it. A pod that is being deleted, or has no status yet, counts as scheduled."""
        return self.is_deleting or self.condition("PodScheduled").get("status") != "False"

    @property
    def server_started(self) -> bool:
        """Whether Triton's endpoints are up: the startup probe has passed."""
        return self.is_alive and bool(self.container(names.CONTAINER_SERVER).get("started"))

    @property
    def shows_processes(self) -> bool:
        """Whether it has the container that shows what the processes of its server use."""
        return bool(self.container(names.CONTAINER_PROCESSES))

    @property
    def stopped_answering(self) -> datetime | None:
        """When a server that was ready since its start stopped being so; None if it is ready, or never was.

        Its pod may have other reasons not to be ready, such as a node that doesn't answer, or a readiness gate.
        """
        status = self.container(names.CONTAINER_SERVER)
        began = status.get("state", {}).get("running", {}).get("startedAt")
        changed = self.condition("ContainersReady").get("lastTransitionTime")
        if not self.server_started or status.get("ready") or not (began and changed):
            return None
        # Before the first time the condition has its transition from the start of the pod, or of the container.
        time = datetime.fromisoformat(changed)
        return time if time > datetime.fromisoformat(began) else None

    @property
    def group(self) -> str:
        """The name of its group of servers; "" if every TritonModel has the group."""
        return str(self.raw["metadata"].get("labels", {}).get(names.LABEL_GROUP, ""))

    @property
    def template(self) -> str:
        """The hash of the pod template from which it was created."""
        return str(self.raw["metadata"].get("annotations", {}).get(names.ANNOTATION_TEMPLATE, ""))

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self.raw["metadata"]["creationTimestamp"])

    @property
    def ends(self) -> datetime | None:
        """The time at which it ends at the latest, if its node answers; None if it isn't being deleted."""
        time = self.raw["metadata"].get("deletionTimestamp")
        return datetime.fromisoformat(time) if time else None

    @property
    def server_began(self) -> datetime | None:
        """The time of the last start of its server; None if that doesn't run."""
        began = self.container(names.CONTAINER_SERVER).get("state", {}).get("running", {}).get("startedAt")
        return datetime.fromisoformat(began) if began else None

    @property
    def server_is_ready(self) -> bool:
        """Whether its server is ready. The pod may not be, because of a sidecar or of its node."""
        return bool(self.container(names.CONTAINER_SERVER).get("ready"))

    @property
    def start_seconds(self) -> float | None:
        """The seconds from its creation until it was ready; None if it isn't ready, or its server has restarted."""
        ready = self.condition("Ready").get("lastTransitionTime")
        if not self.is_ready or self.restarts or not ready:
            return None
        return (datetime.fromisoformat(ready) - self.created).total_seconds()

    @property
    def restarts(self) -> int:
        """The number of restarts of its server."""
        return int(self.container(names.CONTAINER_SERVER).get("restartCount", 0))

    @property
    def server(self) -> RunningServer | None:
        """Its server; None until Triton's endpoints are up."""
        address = self.status.get("podIP", "")
        if not self.server_started or not address:
            return None
        host = f"[{address}]" if ":" in address else address
        return RunningServer(self.raw["metadata"]["uid"], self.name, host, (self.restarts, self.is_ready))

    @property
    def model_digest(self) -> str:
        """The digest of its model image; "" while it isn't known."""
        return self._image_digest(names.CONTAINER_FETCH)

    @property
    def server_digest(self) -> str:
        """The digest of its server image; "" while it isn't known."""
        return self._image_digest(names.CONTAINER_SERVER)

    @property
    def check_report(self) -> report.Report | None:
        """The report of the repository check in it; None until the check has ended."""
        return report.parse(ended(self.container(names.CONTAINER_CHECK)).get("message", ""))

    @property
    def gpus(self) -> str:
        """NVIDIA's GPUs that its server asks for, such as 1 nvidia.com/gpu; "" if there are none."""
        return cuda_devices(self.spec(names.CONTAINER_SERVER).get("resources", {}).get("limits", {}))

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """The models that Triton puts on its GPUs unless it sees none."""
        report = self.check_report if self.gpus else None
        return tuple(line.name for line in report.models if line.gpu) if report else ()

    @property
    def startup_seconds(self) -> int:
        """The time in which its server must start; 0 without a limit."""
        probe = self.spec(names.CONTAINER_SERVER).get("startupProbe", {})
        return int(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)) if probe else 0

    @property
    def shared_memory(self) -> str:
        """The size of /dev/shm, a quantity; "" if the user's podTemplate has another volume there."""
        volumes = self.raw["spec"].get("volumes", [])
        return next((str(v.get("emptyDir", {}).get("sizeLimit", "")) for v in volumes if v["name"] == SHM["name"]), "")

    @property
    def arguments(self) -> list[str]:
        """The user's arguments of tritonserver, and those that say which models it loads."""
        return list(self.spec(names.CONTAINER_SERVER).get("args", []))

    @property
    def list_key(self) -> str:
        """The key of the list of models that its server loads (render/load_models.py); "" if it mounts none."""
        return load_models.key_of(self.raw["spec"])

    @property
    def has_health_request(self) -> bool:
        """Whether its readiness probe sends spec.healthRequest."""
        return "exec" in self.spec(names.CONTAINER_SERVER).get("readinessProbe", {})

    @property
    def init_containers(self) -> list[Status]:
        """The status of the init containers, in the order in which they start."""
        return list(self.status.get("initContainerStatuses", []))

    @property
    def containers(self) -> list[Status]:
        """The status of all containers, the init containers first."""
        return [*self.init_containers, *self.status.get("containerStatuses", [])]

    def is_current(self, template: str) -> bool:
        """Returns whether it was created from the pod template with this hash."""
        return bool(template) and self.template == template

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Returns the condition of this type; {} if there is none."""
        return next((c for c in self.status.get("conditions", []) if c["type"] == kind), {})

    def container(self, name: str) -> Status:
        """Returns the status of a container; {} if there is none."""
        return next((status for status in self.containers if status["name"] == name), {})

    def spec(self, name: str) -> Mapping[str, Any]:
        """Returns the spec of a container; {} if there is none."""
        spec = self.raw["spec"]
        containers = spec.get("initContainers", []) + spec["containers"]
        return next((container for container in containers if container["name"] == name), {})

    def limit(self, container: str, resource: str) -> str:
        return str(self.spec(container).get("resources", {}).get("limits", {}).get(resource, ""))

    def is_over(self, init: Status) -> bool:
        """Returns whether the next init container may start: this one has succeeded, or is a started sidecar."""
        if init and self.spec(init["name"]).get("restartPolicy") == "Always":
            return bool(init.get("started"))
        return bool(init.get("state", {}).get("terminated", {}).get("exitCode") == 0)

    def _image_digest(self, container: str) -> str:
        image_id = str(self.container(container).get("imageID", ""))
        return image_id.rpartition("@")[2] if "sha256:" in image_id else ""


def ended(status: Status) -> Mapping[str, Any]:
    """Returns how the container ended last: its current state, or the previous one if it was restarted."""
    last = status.get("lastState", {}).get("terminated")
    state: Mapping[str, Any] = status.get("state", {}).get("terminated") or last or {}
    return state


def run_seconds(state: Mapping[str, Any]) -> float:
    """Returns the run time of a container that has ended, in seconds; `state` is from `ended`."""
    if not state.get("startedAt") or not state.get("finishedAt"):
        return 0.0
    start, end = (datetime.fromisoformat(state[key]) for key in ("startedAt", "finishedAt"))
    return (end - start).total_seconds()
