"""The registry that the cluster pulls from."""

from __future__ import annotations

from hack.world import docker

IMAGE = "registry:2"

PARTS = [
    docker.image(
        IMAGE, "the registry that the cluster pulls from", lambda job: docker.build_folder(job, IMAGE, "registry"),
        made_from="Debian package `docker-registry`", seconds=8, megabytes=40, needs=("debian-bookworm",),
        inputs=("images/registry",),
    ),
]  # fmt: skip
