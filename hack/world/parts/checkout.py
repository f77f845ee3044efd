"""Parts of this clone: the virtual environment, the cluster, and the images of the demo."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from hack.world import docker, settings
from hack.world.job import Job
from hack.world.part import Part, Recipe


def _script(*words: str) -> Callable[[Job], None]:
    return lambda job: job.run(f"hack/{words[0]}", *words[1:], cwd=settings.ROOT)


def _venv_made() -> bool:
    return subprocess.run([settings.ROOT / "hack/venv.sh", "check"], check=False).returncode == 0


def _image(name: str, context: str, what: str, base: str, seconds: int, megabytes: int) -> Part:
    """Returns a part for the first build of an image. hack/deploy.sh builds it again, from Docker's cache."""
    recipe = Recipe(
        made_from=f"{context}/Dockerfile", make=_script("image.sh", name, context), seconds=seconds,
        megabytes=megabytes, needs=("docker", "registry-runs", *((base,) if base else ())),
    )  # fmt: skip
    return Part(
        f"{name}-image", what, "", registry=recipe, packages=recipe, stamped=False,
        present=lambda: docker.has(f"{settings.REGISTRY}/triton-operator/{name}:dev"),
    )  # fmt: skip


def _registry_runs() -> bool:
    return docker.output("container", "inspect", "--format", "{{.State.Running}}", settings.REGISTRY_NAME) == "true"


_venv = Recipe(
    made_from="Python packages of requirements/dev.lock", make=_script("venv.sh"), seconds=60, megabytes=900,
    commands=("venv",),
)  # fmt: skip
_registry = Recipe(
    made_from="the image `registry`", make=_script("cluster.sh", "registry"), seconds=3,
    needs=("docker", "registry"), commands=("curl",),
)  # fmt: skip
_cluster = Recipe(
    made_from="the image `node`", make=_script("cluster.sh", "up"), seconds=35, megabytes=1000,
    needs=("kind", "kubectl", "node", "registry-runs"), commands=("curl",),
    advice="docker ps, docker logs triton-operator-control-plane",
)  # fmt: skip

PARTS = [
    Part(
        "venv", "the project's Python packages, in .venv", "", registry=_venv, packages=_venv, stamped=False,
        present=_venv_made,
    ),
    Part(
        "registry-runs", "the registry's container", "", registry=_registry, packages=_registry, stamped=False,
        present=_registry_runs,
    ),
    Part("cluster", "the kind cluster", "", registry=_cluster, packages=_cluster, stamped=False),
    _image("operator", ".", "the operator's image", "python", 50, 350),
    _image("server", "model_images/server", "Triton with the packages of the models", "tritonserver", 25, 300),
    _image("detection", "model_images/detection", "the detector's model repository", "", 3, 30),
]  # fmt: skip
