"""Compares ways to run pre- and postprocessing: inside Triton, in the client, and without Triton as the upper bound.

All ways serve the same JPEGs on the same cores from the same Docker image, and take turns. The load generator runs
inside the server's container.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import cv2
import numpy as np

from model_images.support import DETECTION, MODEL_IMAGES, SERVER_IMAGE, docker
from model_images.variants import build_variants

HERE = Path(__file__).parent
CACHE = Path(__file__).parents[2] / ".cache" / "pipeline"
# Heights and widths of the images.
SIZES = ((640, 640), (480, 640), (720, 1280), (1080, 1920))
WAYS = {
    "limit": "no Triton: decode, network and NMS in one process",
    "detection": "ours: ensemble with FP32 tensors and all rows",
    "detection_bytes": "ours: UINT8 tensors from preprocess to network",
    "detection_filter": "ours: UINT8 tensors, and the filter in the network",
    "detection_fused": "ours: one Python model",
    "client_side": "decode and NMS in the client",
    "textbook": "three models as in tutorials",
    "detection_bls": "the models of ours, called by BLS",
}
OURS = "detection_filter"
# The stage of these models in the table of processes.
STAGES = {
    "textbook_preprocess": "preprocess",
    "textbook_network": "yolov5s",
    "textbook_postprocess": "postprocess",
    "detection_fused": "yolov5s",
    "detection_bls": "tritonserver",
}
LINK_MBIT, LINK_PORT, LINK_CONCURRENCY = 100, 9000, 4


class Plan(NamedTuple):
    """The parameters of the measurement."""

    cores: int
    rounds: int
    seconds: float
    concurrencies: list[int]

    @property
    def top(self) -> int:
        """Returns the highest concurrency, at which the ways are compared."""
        return self.concurrencies[-1]


class Measured(NamedTuple):
    """One measurement of a way at one concurrency. `usage` is CPU seconds and page faults per second, by process."""

    way: str
    concurrency: int
    latencies_ms: list[float]
    seconds: float
    usage: dict[str, tuple[float, float]]
    total: int
    sent: int
    received: int

    @property
    def throughput(self) -> float:
        """Returns the images per second."""
        return len(self.latencies_ms) / self.seconds


class Figures(NamedTuple):
    """The results of a way at one concurrency, over all its measurements.

    `ratio` is its throughput divided by that of the way "limit". CPU, bytes and page faults are per image; `cpu_ms` and
    `page_faults` are by process.
    """

    throughput: float
    ratio: float
    p50_ms: float
    p99_ms: float
    server_cpu_ms: float
    client_cpu_ms: float
    bytes_up: float
    bytes_down: float
    images: int
    cpu_ms: dict[str, float]
    page_faults: dict[str, float]


class Bench:
    """A running server with the models of all ways, for one network."""

    def __init__(self, container: str, plan: Plan) -> None:
        self._container, self._plan = container, plan

    def measure(
        self, way: str, concurrency: int, seconds: float, *, warm_up: float = 1, url: str = "localhost:8000"
    ) -> Measured:
        """Measures one way. The load generator runs inside the server's container and shares its cores."""
        # The warm-up opens the connections and fills the queues.
        command = ["python3", "/bench/load.py", way, f"--url={url}", f"--cores={self._plan.cores}"]
        command += [f"--concurrency={concurrency}", f"--seconds={seconds}", f"--warm-up={warm_up}"]
        out = docker("exec", self._container, *command).splitlines()[-1]
        return Measured(way, concurrency, **json.loads(out))

    @contextmanager
    def link(self) -> Iterator[str]:
        """Starts a proxy with LINK_MBIT in each direction and yields its address."""
        command = f"python3 /bench/link.py --listen={LINK_PORT} --to=localhost:8000 --mbit={LINK_MBIT}"
        docker("exec", "--detach", self._container, "sh", "-c", f"echo $$ > /tmp/link; exec {command}")
        time.sleep(1)
        try:
            yield f"localhost:{LINK_PORT}"
        finally:
            docker("exec", self._container, "sh", "-c", "kill $(cat /tmp/link)")


def draw(folder: Path, count: int = 12) -> list[int]:
    """Writes `count` JPEGs of drawn scenes and returns their sizes in bytes."""
    sys.path.append(str(DETECTION / "training"))
    from shapes import scene

    folder.mkdir()
    sizes = []
    for k in range(count):
        drawn = scene(np.random.default_rng([77, k]), *SIZES[k % len(SIZES)])
        jpeg = cv2.imencode(".jpg", drawn.image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
        (folder / f"{k:02}.jpg").write_bytes(jpeg)
        sizes.append(len(jpeg))
    return sizes


@contextmanager
def serving(models: Path, images: Path, plan: Plan) -> Iterator[Bench]:
    """Starts Triton on the plan's cores and yields when it is ready."""
    name = f"triton-bench-{uuid.uuid4().hex[:8]}"
    mounts = {models: "/models", images: "/images", HERE / "inside": "/bench"}
    volumes = [f"--volume={path}:{place}:ro" for path, place in mounts.items()]
    where = [f"--cpuset-cpus=0-{plan.cores - 1}", "--shm-size=2g"]
    try:
        docker(
            *("run", "--detach", f"--name={name}", *where, *volumes, SERVER_IMAGE),
            *("tritonserver", "--model-repository=/models", "--log-info=false"),
        )
        wait(name)
        yield Bench(name, plan)
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True, check=False)


def wait(container: str, seconds: float = 180) -> None:
    """Waits until every model is ready. Raises TimeoutError with the server's log."""
    ask = ["docker", "exec", container, "curl", "-sf", "localhost:8000/v2/health/ready"]
    deadline = time.monotonic() + seconds
    while subprocess.run(ask, capture_output=True, check=False).returncode:
        if time.monotonic() > deadline or docker("inspect", "--format={{.State.Running}}", container) != "true":
            log = subprocess.run(
                ["docker", "logs", "--tail=40", container], capture_output=True, text=True, check=False
            )
            raise TimeoutError(f"Triton isn't ready; its log: {log.stdout}{log.stderr}")
        time.sleep(1)


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)


def measure_all(bench: Bench, plan: Plan) -> list[Measured]:
    """Measures every way: at the highest concurrency in each round, at the others in the first round."""
    runs = []
    for number in range(plan.rounds):
        # Each round starts with another way, so that no way always runs first.
        ways = [*WAYS][number:] + [*WAYS][:number]
        for concurrency in plan.concurrencies if number == 0 else [plan.top]:
            for way in ways:
                runs.append(bench.measure(way, concurrency, plan.seconds, warm_up=1 + concurrency / 16))
                say(f"round {number + 1}/{plan.rounds}, concurrency {concurrency}: {way} {runs[-1].throughput:.1f}/s")
    return runs


def measure_link(bench: Bench, plan: Plan) -> dict[str, float]:
    """Returns the images per second over the slow link, for ours and for client_side: the better of two measurements.

    The warm-up of 4 s is long enough to fill the buffers of the link.
    """
    throughputs: dict[str, float] = {}
    with bench.link() as url:
        for way in 2 * (OURS, "client_side"):
            seconds = max(8, 1.5 * plan.seconds)
            measured = bench.measure(way, LINK_CONCURRENCY, seconds, warm_up=4, url=url)
            throughputs[way] = max(measured.throughput, throughputs.get(way, 0))
            say(f"{LINK_MBIT} Mbit/s, concurrency {LINK_CONCURRENCY}: {way} {measured.throughput:.2f}/s")
    return throughputs


def figures(measured: list[Measured]) -> dict[tuple[str, int], Figures]:
    """Returns the results by way and concurrency. `ratio` is the median of the rounds' ratios to the limit's."""
    by_key: dict[tuple[str, int], list[Measured]] = {}
    for result in measured:
        by_key.setdefault((result.way, result.concurrency), []).append(result)
    out = {}
    for (way, concurrency), runs in by_key.items():
        limits = by_key["limit", concurrency]
        latencies = np.concatenate([run.latencies_ms for run in runs])
        images, seconds, total = len(latencies), sum(r.seconds for r in runs), sum(r.total for r in runs)
        cpu = {name: 1e3 * seconds for name, seconds in per_image(runs, images, 0).items()}
        faults = per_image(runs, images, 1)
        out[way, concurrency] = Figures(
            throughput=images / seconds,
            ratio=median(run.throughput / limit.throughput for run, limit in zip(runs, limits, strict=True)),
            p50_ms=float(np.percentile(latencies, 50)),
            p99_ms=float(np.percentile(latencies, 99)),
            server_cpu_ms=sum(ms for name, ms in cpu.items() if name != "client"),
            client_cpu_ms=cpu["client"],
            bytes_up=sum(run.sent for run in runs) / total,
            bytes_down=sum(run.received for run in runs) / total,
            images=images,
            cpu_ms={name: round(ms, 2) for name, ms in cpu.items() if ms > 0.05},
            page_faults={name: round(count) for name, count in faults.items() if count > 1},
        )
    return out


def per_image(runs: list[Measured], images: int, column: int) -> dict[str, float]:
    """Returns a column of `usage` per image, by process."""
    out: dict[str, float] = {}
    for run in runs:
        for name, rates in run.usage.items():
            out[name] = out.get(name, 0) + rates[column] * run.seconds / images
    return out


def table(results: dict[tuple[str, int], Figures], plan: Plan) -> str:
    """Returns the results of one network as a Markdown table."""
    columns = ["Way", *(f"images/s at {c}" for c in plan.concurrencies), f"ratio to the limit at {plan.top}"]
    columns += [f"P50 / P99 ms at {c}" for c in plan.concurrencies]
    columns += ["CPU ms per image, server + client", "KB per image, up + down"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for way, words in WAYS.items():
        mine = [results[way, c] for c in plan.concurrencies]
        top = mine[-1]
        cells = [f"{words} (`{way}`)", *(f"{f.throughput:.1f}" for f in mine), f"{top.ratio:.2f}"]
        cells += [f"{f.p50_ms:.0f} / {f.p99_ms:.0f}" for f in mine]
        cells += [f"{top.server_cpu_ms:.1f} + {top.client_cpu_ms:.1f}"]
        cells += [f"{top.bytes_up / 1e3:.0f} + {top.bytes_down / 1e3:.1f}" if top.bytes_up else "none"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def processes(results: dict[tuple[str, int], Figures], plan: Plan) -> str:
    """Returns a Markdown table of CPU milliseconds and page faults per image, by process."""
    stages = ("tritonserver", "preprocess", "yolov5s", "postprocess", "client")
    lines = ["| Way | " + " | ".join(stages) + " |", "|" + "---|" * (1 + len(stages))]
    for way in WAYS:
        mine = results[way, plan.top]
        cells = []
        for stage in stages:
            # The name of a variant's model starts with its stage. A fused model counts as the network.
            names = [name for name in mine.cpu_ms if name.startswith(stage) or STAGES.get(name) == stage]
            cpu, faults = (sum(of.get(name, 0) for name in names) for of in (mine.cpu_ms, mine.page_faults))
            cells.append(f"{cpu:.1f} ({faults:.0f})" if names else "")
        lines.append(f"| `{way}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine() -> str:
    """Returns a description of the host in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} x {cpu}, {platform.system()} {platform.release()}"


def keys(large: dict[str, Any], small: dict[str, Any], top: int) -> dict[str, float]:
    """Returns the figures that have goals, for both networks."""
    out: dict[str, float] = {}
    for prefix, side in (("", large), ("small_", small)):
        at_top = {way: side["figures"][way, top] for way in WAYS}
        moved = {way: at_top[way].bytes_up + at_top[way].bytes_down for way in WAYS}
        out |= {
            f"{prefix}link_vs_client_side": side["link"][OURS] / side["link"]["client_side"],
            f"{prefix}bytes_vs_client_side": moved[OURS] / moved["client_side"],
            f"{prefix}ours_vs_textbook": at_top[OURS].ratio / at_top["textbook"].ratio,
            f"{prefix}contract_vs_textbook": at_top["detection"].ratio / at_top["textbook"].ratio,
            f"{prefix}ours_vs_client_side": at_top[OURS].ratio / at_top["client_side"].ratio,
            f"{prefix}ensemble_vs_bls": at_top["detection"].ratio / at_top["detection_bls"].ratio,
        }
        for way in ("detection", "detection_bytes", "detection_fused"):
            out[f"{prefix}{way}_vs_limit"] = at_top[way].ratio
        # Other processes on the machine affect the CPU time less than the throughput.
        cpu = {way: at_top[way].server_cpu_ms + at_top[way].client_cpu_ms for way in WAYS}
        out[f"{prefix}ours_vs_limit_by_cpu"] = cpu["limit"] / cpu[OURS]
    out["ours_vs_limit"] = large["figures"][OURS, top].ratio
    out["small_vs_limit"] = small["figures"][OURS, top].ratio
    return {key: round(value, 4) for key, value in sorted(out.items())}


def run(network: str, images: Path, plan: Plan) -> dict[str, Any]:
    """Builds, serves and measures one network, prints its tables and returns the results."""
    say(f"{network}: building the models and starting Triton")
    folder = CACHE / network
    models = build_variants(folder, network, plan.cores)
    with serving(models, images, plan) as bench:
        measured = measure_all(bench, plan)
        results = figures(measured)
        link = measure_link(bench, plan)
    limits = [
        round(result.throughput, 1) for result in measured if (result.way, result.concurrency) == ("limit", plan.top)
    ]
    print(f"\nThe {network} network\n\n{table(results, plan)}\n")
    print(f"CPU ms (page faults) per image, by process, concurrency {plan.top}\n\n{processes(results, plan)}\n")
    print(f"Images/s at {LINK_MBIT} Mbit/s in each direction, concurrency {LINK_CONCURRENCY}: ", end="")
    print(", ".join(f"{way} {throughput:.2f}" for way, throughput in link.items()), flush=True)
    return {"figures": results, "link": link, "limits": limits}


def main() -> int:
    parser = argparse.ArgumentParser(prog="pipeline", description=__doc__)
    cores = min(2, os.cpu_count() or 1)
    parser.add_argument("--cores", type=int, default=int(os.environ.get("CORES", cores)))
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "3")))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_EACH", "4")))
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16], help="ascending")
    arguments = parser.parse_args()
    plan = Plan(arguments.cores, arguments.rounds, arguments.seconds, arguments.concurrency)
    started = time.monotonic()
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    docker("build", "--quiet", "--tag", SERVER_IMAGE, str(MODEL_IMAGES / "server"))
    sizes = draw(CACHE / "images")
    large, small = (run(network, CACHE / "images", plan) for network in ("large", "small"))
    conditions = {
        "machine": machine(),
        "cores": plan.cores,
        "server_image": SERVER_IMAGE,
        "image_id": docker("image", "inspect", "--format={{.Id}}", SERVER_IMAGE),
        "jpegs": {"sizes": SIZES, "count": len(sizes), "mean_bytes": round(sum(sizes) / len(sizes))},
        "rounds": plan.rounds,
        "seconds_each": plan.seconds,
        "concurrencies": plan.concurrencies,
        "network_instances": plan.cores,
        "link": f"{LINK_MBIT} Mbit/s in each direction, with a TCP proxy; concurrency {LINK_CONCURRENCY}",
        "load": "closed loop, raw HTTP, from inside the server's container: it shares the cores",
        # Shows how much other work the machine had: the throughput of the limit in each round.
        "limit_by_round": {"large": large["limits"], "small": small["limits"]},
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    details = {
        name: {way: side["figures"][way, plan.top]._asdict() for way in WAYS}
        for name, side in (("large", large), ("small", small))
    }
    print(json.dumps({**keys(large, small, plan.top), "conditions": conditions, "at_top_concurrency": details}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
