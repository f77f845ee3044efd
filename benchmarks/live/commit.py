"""From a commit to the new model's answer: the example pipeline with the detection sample, under load.

A run changes the repository, starts examples/commit-to-live/deploy.sh, and ends when the rollout is complete. Meanwhile
a pod in the cluster sends pictures at a fixed rate, each with a new connection, and notes the version that answers.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from support.api import Object, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client_pod, ended
from support.pipeline import Pipeline

RUNS = int(os.environ.get("RUNS", "5"))
RATE = float(os.environ.get("RATE", "8"))
NAME = "detector"
SAMPLE = ROOT / "model_images" / "detection"
SCRIPT = Path(__file__).parent / "inside" / "pictures.py"


def measure(cluster: Cluster) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the figures and the conditions. Prints each run and its steps on standard error."""
    runs: list[dict[str, float]] = []
    with (
        cluster.namespace(f"commit-to-live-{uuid.uuid4().hex[:5]}") as namespace,
        tempfile.TemporaryDirectory() as folder,
    ):
        namespace.api.apply(_model(namespace))
        namespace.wait_until_complete(NAME)
        pipeline = Pipeline.of(namespace, Path(folder))
        _start_load(namespace)
        for number in range(1, RUNS + 1):
            context = _commit(Path(folder), version=number + 1)
            runs.append(_run(pipeline, namespace, context, str(number + 1)))
            steps = ", ".join(f"{step} {at:.1f}" for step, at in runs[-1].items())
            print(f"run {number}/{RUNS}, seconds since the commit: {steps}", file=sys.stderr, flush=True)
            # Until the drain of the former server ends.
            eventually(lambda: len(namespace.api.list("Pod", f"tritonoperator.io/model={NAME}")) == 1, 90)
        result = _end_load(namespace)
    requests = sum(v["requests"] for v in result["versions"].values()) + len(result["failures"])
    for failure in result["failures"][:5]:
        print(failure, file=sys.stderr)
    print("Seconds since the commit   median   range", file=sys.stderr)
    for step in runs[0]:
        values = [run[step] for run in runs]
        print(f"  {step:24} {median(values):6.1f}   {min(values):.1f} to {max(values):.1f}", file=sys.stderr)
    figures: dict[str, object] = {
        "commit_to_live_s": round(median(run["answer"] for run in runs), 1),
        "commit_to_all_servers_s": round(median(run["complete"] for run in runs), 1),
        "commit_failed_requests": len(result["failures"]),
    }
    conditions: dict[str, object] = {
        "runs": RUNS, "requests": requests, "requests_per_second": RATE, "p99_s": result["p99_s"],
        "model": "detection sample: three models and an ensemble, one server; server image on the node",
        "commit_to_live": "start of deploy.sh until the first answer of the new version; median",
    }  # fmt: skip
    return figures, conditions


def _model(namespace: Namespace) -> Object:
    sample = namespace.cluster.kubectl("kustomize", str(ROOT / "manifests/overlays/local-sample"))
    [model] = [obj for obj in _documents(sample) if obj["kind"] == "TritonModel"]
    return {**model, "metadata": {"name": NAME, "namespace": namespace.name}}


def _documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def _commit(folder: Path, version: int) -> Path:
    """Copies the sample, with this version of the ensemble, and returns the folder with the Dockerfile."""
    context = folder / f"commit-{version}"
    context.mkdir()
    shutil.copy(SAMPLE / "Dockerfile", context)
    shutil.copytree(SAMPLE / "repository", context / "repository")
    (context / "repository/detection/1").rename(context / f"repository/detection/{version}")
    return context


def _run(pipeline: Pipeline, namespace: Namespace, context: Path, version: str) -> dict[str, float]:
    """Returns the seconds since the commit until each step."""
    start = time.time()
    result = pipeline.run(NAME, context, TAG=f"v{version}")
    complete = time.time()
    assert result.returncode == 0, result.stdout + result.stderr
    [pod] = namespace.pods(NAME)
    answer = eventually(lambda: _first_answer(namespace, version), 60, "an answer of the new version", every=0.5)
    return {**_lines(result), **{step: at - start for step, at in _of(pod).items()}, "answer": answer - start,
            "complete": complete - start}  # fmt: skip


def _lines(result: subprocess.CompletedProcess[str]) -> dict[str, float]:
    """Returns the seconds of the script's own steps; its clock has whole seconds."""
    durations = {}
    for line in result.stdout.splitlines():
        seconds, _, text = line.strip().partition("s  ")
        for word, step in (("building", "validated"), ("pushing", "built"), ("writing", "pushed")):
            if text.startswith(word):
                durations[step] = float(seconds)
    return durations


def _of(pod: Object) -> dict[str, float]:
    """Returns when the pod took each step; Kubernetes' times have whole seconds."""
    times = {"pod created": pod["metadata"]["creationTimestamp"]}
    statuses = {s["name"]: s["state"] for s in pod["status"].get("initContainerStatuses", [])}
    for name in ("tools", "fetch", "check"):
        if ended_at := statuses.get(name, {}).get("terminated", {}).get("finishedAt"):
            times[f"{name} ended"] = ended_at
    [triton] = [s for s in pod["status"]["containerStatuses"] if s["name"] == "triton"]
    times["triton started"] = triton["state"]["running"]["startedAt"]
    times["pod ready"] = next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
    return {step: datetime.fromisoformat(at).timestamp() for step, at in times.items()}


def _start_load(namespace: Namespace) -> None:
    picture = (SAMPLE / "samples" / "square.jpg").read_bytes()
    namespace.api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "load"},
            "data": {"pictures.py": SCRIPT.read_text()},
            "binaryData": {"picture.jpg": base64.b64encode(picture).decode()},
        }
    )
    command = ["python", "/client/pictures.py", NAME, "/client/picture.jpg", str(RATE)]
    namespace.api.apply(client_pod("load", namespace.cluster.client_image, command))
    eventually(lambda: "version 1" in namespace.kubectl("logs", "load", check=False), 60, "the load to start")


def _first_answer(namespace: Namespace, version: str) -> float:
    """Returns the time of this version's first answer, in seconds since the epoch; 0 if there is none yet."""
    for line in namespace.kubectl("logs", "load").splitlines():
        if line.startswith(f"version {version} "):
            return float(line.split()[2])
    return 0


def _end_load(namespace: Namespace) -> dict[str, Any]:
    namespace.kubectl("exec", "load", "--", "touch", "/tmp/stop")
    eventually(lambda: ended(namespace, "load"), 60, "the load to end")
    result: dict[str, Any] = json.loads(namespace.kubectl("logs", "load").splitlines()[-1])
    return result
