"""Triton Inference Server."""

from __future__ import annotations

from hack.world import docker

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"

PARTS = [
    docker.image(
        IMAGE, "Triton Inference Server 2.51.0 with the python backend and ONNX Runtime",
        lambda job: docker.build_folder(job, IMAGE, "tritonserver"),
        made_from="Python packages `nvidia-pytriton` 0.7.0 and `onnxruntime`", seconds=40, megabytes=600,
        needs=("debian-bookworm",), inputs=("images/tritonserver",),
    ),
]  # fmt: skip
