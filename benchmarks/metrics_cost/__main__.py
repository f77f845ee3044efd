"""Measures what Triton's summaries, its histograms and the sampled traces cost, and how exact their quantiles are.

Each kind of server has one core, with the sampler on it, and the load generator has another. The kinds take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from latency_sampler.series import REQUEST, SAMPLES
from model_images.support import SERVER_IMAGE, docker, serving
from support import onnx_file
from support.machine import machine

ROOT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).parent / "inside"
SAMPLER = "triton-operator/operator:dev"
FOLDER = "/traces"
SUMMARIES = ("--metrics-config=summary_latencies=true",)
HISTOGRAMS = ("--metrics-config=histogram_latencies=true",)
TRACES = (f"--trace-config=triton,file={FOLDER}/trace", "--trace-config=triton,log-frequency=1")
CONCURRENCY = 8
INSTANCES = 4
"""Of the models whose quantiles are compared, and the requests that each gets at the same time."""
SLEEPS_MS = (10, 10, 25, 60)
"""The median time of a request on each of the four servers whose quantiles are added up."""
MODEL_PY = """
import random
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for _ in requests:
            time.sleep(random.lognormvariate(0, 0.5) * MEDIAN)
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor)]) for tensor in tensors]
"""


class Measured(NamedTuple):
    """Requests per second, and by the client's clock in seconds: P50, P99, and all requests."""

    throughput: float
    p50: float
    p99: float
    latencies: list[float]


Send = Callable[[int, float], Measured]
"""Sends requests: the number of connections, and the seconds."""


@dataclass(frozen=True)
class Kind:
    """A kind of server: its flags, and whether a sampler runs beside it."""

    name: str
    flags: tuple[str, ...] = ()
    sampled: bool = False


PLAIN = Kind("none")
KINDS = (PLAIN, Kind("summaries", SUMMARIES), Kind("sampled traces", TRACES, sampled=True))


def config(backend: str, batch: int, instances: int) -> str:
    tensors = (
        f'{kind} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ 16 ] }} ]'
        for kind, name in (("input", "X"), ("output", "Y"))
    )
    return "\n".join(
        [f'backend: "{backend}"', f"max_batch_size: {batch}", *tensors,
         f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]"]
    )  # fmt: skip


def small(folder: Path, instances: int) -> Path:
    """Writes a repository with a network of one addition, whose execution takes less than anything around it."""
    shape = (1, 16)
    graph = onnx_file.model(
        [onnx_file.value("X", onnx_file.FP32, shape)],
        [onnx_file.value("Y", onnx_file.FP32, shape)],
        [onnx_file.node("Add", ["X", "X"], ["Y"])],
    )
    place = folder / "small" / "1"
    place.mkdir(parents=True)
    (place / "model.onnx").write_bytes(graph)
    text = config("onnxruntime", 0, instances).replace("dims: [ 16 ]", "dims: [ 1, 16 ]")
    (folder / "small" / "config.pbtxt").write_text(text)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


def sleeping(folder: Path, milliseconds: float) -> Path:
    """Writes a repository with a model that sleeps for a random time."""
    place = folder / "small" / "1"
    place.mkdir(parents=True)
    (place / "model.py").write_text(MODEL_PY.replace("MEDIAN", str(milliseconds / 1000)))
    (folder / "small" / "config.pbtxt").write_text(config("python", 1, INSTANCES))
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


class Running(NamedTuple):
    """A server. `page`: address of its sampler's metrics; "" without one."""

    container: str
    metrics: str
    page: str


@contextlib.contextmanager
def running(kind: Kind, repository: Path, limits: Sequence[str]) -> Iterator[Running]:
    """Starts a server, and the sampler beside it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        folder.chmod(0o777)
        mounts = [f"--volume={folder}:{FOLDER}"] if kind.sampled else []
        publish = ["--publish=127.0.0.1:0:8011"] if kind.sampled else []
        server = stack.enter_context(serving(repository, options=kind.flags, limits=[*limits, *mounts, *publish]))
        page = ""
        if kind.sampled:
            name = f"{server.container}-sampler"
            pinned = [limit for limit in limits if limit.startswith("--cpuset-cpus")]
            docker(
                *("run", "--detach", f"--name={name}", f"--network=container:{server.container}", "--user=1000:1000"),
                *("--cpus=0.1", "--memory=96m", "--read-only", *pinned, *mounts, "--entrypoint=python", SAMPLER),
                *("-m", "latency_sampler", "http://localhost:8000", FOLDER, "8011", "--oldest=2.51"),
            )
            stack.callback(subprocess.run, ["docker", "rm", "-f", name], capture_output=True, check=False)
            page = docker("port", server.container, "8011/tcp").splitlines()[0]
        yield Running(server.container, server.metrics, page)


@contextlib.contextmanager
def client(server: str, *limits: str) -> Iterator[Send]:
    """Starts a container for the client beside the server. Yields a function that sends requests."""
    name = f"{server}-client"
    mount = f"--volume={INSIDE}:/bench:ro"
    docker(
        *("run", "--detach", f"--name={name}", f"--network=container:{server}", *limits, mount),
        *("--entrypoint=sleep", SAMPLER, "infinity"),
    )

    def send(connections: int, seconds: float) -> Measured:
        command = ["python", "/bench/load.py", "localhost:8000", "small", str(connections), str(seconds)]
        return Measured(**json.loads(docker("exec", name, *command)))

    try:
        yield send
    finally:
        docker("rm", "-f", name)


def cost(kinds: Sequence[Kind], instances: int, rounds: int, seconds: float) -> dict[str, list[Measured]]:
    """Returns the measurements of each kind. In each round each kind is measured once, after the one before."""
    found: dict[str, list[Measured]] = {kind.name: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        repository = small(Path(stack.enter_context(tempfile.TemporaryDirectory())), instances)
        repository.chmod(0o755)
        send: dict[str, Send] = {}
        for kind in kinds:
            server = stack.enter_context(running(kind, repository, ["--cpuset-cpus=0"]))
            send[kind.name] = stack.enter_context(client(server.container, "--cpuset-cpus=1"))
        for kind in kinds:
            send[kind.name](CONCURRENCY, 10)  # the sampler finds its rate
        for number in range(rounds):
            for kind in kinds if number % 2 else reversed(kinds):
                found[kind.name].append(send[kind.name](CONCURRENCY, seconds))
            ratios = {k: round(v[-1].throughput / found[PLAIN.name][-1].throughput, 3) for k, v in found.items()}
            print(f"{instances} instances, round {number + 1}/{rounds}: {ratios}", file=sys.stderr, flush=True)
    return found


def buckets(page: str) -> dict[float, float]:
    """Returns the cumulative buckets of the requests' time."""
    found: dict[float, float] = {}
    for line in fetch(page):
        if line.startswith(f"{REQUEST}_bucket"):
            labels, _, value = line.rpartition(" ")
            bound = float(labels.partition('le="')[2].partition('"')[0])
            found[bound] = found.get(bound, 0.0) + float(value)
    return found


def fetch(address: str) -> list[str]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return list(answer.read().decode().splitlines())


def histogram_quantile(quantile: float, cumulative: dict[float, float]) -> float:
    """Returns the quantile as PromQL's histogram_quantile computes it."""
    rank, before, bound_before = quantile * cumulative[float("inf")], 0.0, 0.0
    for bound, count in sorted(cumulative.items()):
        if count >= rank:
            return bound_before + (bound - bound_before) * (rank - before) / (count - before)
        before, bound_before = count, bound
    raise AssertionError("no requests")


def exactness(seconds: float) -> dict[str, Any]:
    """Compares the quantiles of four servers, added up, with those of all requests by the clients' clocks."""
    kind = KINDS[-1]
    with contextlib.ExitStack() as stack:
        servers, sends = [], []
        for milliseconds in SLEEPS_MS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.chmod(0o755)
            server = stack.enter_context(running(kind, sleeping(folder, milliseconds), []))
            servers.append(server)
            sends.append(stack.enter_context(client(server.container)))
        with ThreadPoolExecutor(len(sends)) as pool:
            results = [pool.submit(send, INSTANCES, seconds) for send in sends]
            latencies = [latency for result in results for latency in result.result().latencies]
        time.sleep(3)
        added: dict[float, float] = {}
        samples = 0.0
        for server in servers:
            for bound, count in buckets(server.page).items():
                added[bound] = added.get(bound, 0.0) + count
            samples += sum(
                float(line.rpartition(" ")[2]) for line in fetch(server.page) if line.startswith(f"{SAMPLES}_total")
            )
    true = statistics.quantiles(latencies, n=100)
    found = {q: histogram_quantile(q / 100, added) for q in (50, 99)}
    return {
        "requests": len(latencies),
        "samples": int(samples),
        **{f"p{q}_s": round(value, 4) for q, value in found.items()},
        **{f"true_p{q}_s": round(true[q - 1], 4) for q in found},
        "quantile_error": round(max(abs(value / true[q - 1] - 1) for q, value in found.items()), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="metrics_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "7")))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_EACH", "6")))
    parser.add_argument("--exact-seconds", type=float, default=float(os.environ.get("EXACT_SECONDS", "120")))
    options = parser.parse_args()
    subprocess.run(["docker", "build", "-q", "-t", SAMPLER, "."], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    version = _version()
    kinds = (*KINDS, Kind("histograms", HISTOGRAMS)) if version >= (2, 52) else KINDS
    rows: list[dict[str, Any]] = []
    for instances in (2, 8):
        found = cost(kinds, instances, options.rounds, options.seconds)
        for kind in kinds:
            pairs = list(zip(found[kind.name], found[PLAIN.name], strict=True))
            rows.append({
                "kind": kind.name, "instances": instances,
                "requests_per_s": round(statistics.median(m.throughput for m in found[kind.name])),
                "throughput_ratio": round(statistics.median(m.throughput / p.throughput for m, p in pairs), 3),
                "range": [round(f(m.throughput / p.throughput for m, p in pairs), 3) for f in (min, max)],
                "p99_ratio": round(statistics.median(m.p99 / p.p99 for m, p in pairs), 3),
            })  # fmt: skip
    exact = exactness(options.exact_seconds)
    print(f"Triton {'.'.join(map(str, version))}: a network of one addition, {CONCURRENCY} requests at a time")
    for row in rows:
        print(
            f"  {row['instances']} instances  {row['kind']:15} {row['requests_per_s']:6} requests/s  throughput ÷ none "
            f"{row['throughput_ratio']:.3f} ({row['range'][0]} to {row['range'][1]})  P99 ÷ none {row['p99_ratio']:.2f}"
        )
    print(f"  quantiles of four servers: {exact}")
    sampled = [row for row in rows if row["kind"] == "sampled traces"]
    figures = {
        "throughput_cost": round(1 - min(row["throughput_ratio"] for row in sampled), 3),
        "quantile_error": exact["quantile_error"],
        "rows": rows,
        "exact": exact,
        "conditions": {
            "machine": machine(),
            "server": SERVER_IMAGE,
            "rounds": options.rounds,
            "seconds": options.seconds,
        },
    }
    print(json.dumps(figures))
    return 0


def _version() -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with serving(small(Path(name), 1)) as server, urllib.request.urlopen(f"http://{server.http}/v2") as answer:
            major, minor, *_ = json.load(answer)["version"].split(".")
    return int(major), int(minor)


if __name__ == "__main__":
    sys.exit(main())
