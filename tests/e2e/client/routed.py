"""Sends requests to the model `echo` through a Gateway, and prints what came of them as JSON. Runs in a pod.

    routed.py HOST NUMBER

It sends NUMBER gRPC requests on one channel, and some over HTTP. The answer has the status of each path of Triton's
HTTP API ("GET /v2": 200), the sum of the outputs, and the codes of gRPC calls that a Gateway should refuse.
"""

from __future__ import annotations

import http.client
import json
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

PORTS = {"http": 8000, "grpc": 8001}
PATHS = (
    "GET /v2", "GET /v2/health/live", "GET /v2/health/ready", "GET /v2/models/echo", "GET /v2/models/echo/ready",
    "GET /v2/models/echo/versions/1/config", "GET /v2/models/echo/stats", "GET /v2/models/stats",
    "POST /v2/repository/index", "POST /v2/repository/models/echo/unload", "POST /v2/models/echo/trace/setting",
    "GET /v2/models/echo/trace/setting", "GET /v2/trace/setting", "GET /v2/logging", "POST /v2/logging",
    "GET /v2/systemsharedmemory/status", "GET /v2/cudasharedmemory/status", "GET /metrics", "GET /",
)  # fmt: skip
_REACHED_SECONDS = 60


def status(host: str, request: str) -> int:
    method, _, path = request.partition(" ")
    connection = http.client.HTTPConnection(host, PORTS["http"], timeout=10)
    try:
        connection.request(method, path, "{}" if method == "POST" else None)
        return connection.getresponse().status
    finally:
        connection.close()


def wait(host: str) -> None:
    """Waits until Envoy has the route and its servers."""
    deadline = time.monotonic() + _REACHED_SECONDS
    while status(host, "GET /v2/health/ready") != 200 and time.monotonic() < deadline:
        time.sleep(0.5)


def infer(client: tritonclient.grpc.InferenceServerClient, value: int) -> int:
    tensor = tritonclient.grpc.InferInput("INPUT", [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    return int(client.infer("echo", [tensor]).as_numpy("OUTPUT")[0])


def infer_http(host: str, value: int) -> int:
    """Sends a tensor as bytes after the JSON, with the type of a form, which Triton would take apart."""
    tensor = {"name": "INPUT", "datatype": "INT32", "shape": [1], "parameters": {"binary_data_size": 4}}
    text = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/x-www-form-urlencoded"}
    connection = http.client.HTTPConnection(host, PORTS["http"], timeout=10)
    try:
        connection.request("POST", "/v2/models/echo/infer", text + struct.pack("<i", value), headers)
        outputs = json.load(connection.getresponse())["outputs"]
    finally:
        connection.close()
    return next(int(output["data"][0]) for output in outputs if output["name"] == "OUTPUT")


def code(call: Any) -> str:
    try:
        call()
    except InferenceServerException as error:
        return str(error.status())
    return "OK"


def main() -> None:
    host, number = sys.argv[1], int(sys.argv[2])
    wait(host)
    # The port of HTTP: the route has both protocols on each listener.
    by_grpc = tritonclient.grpc.InferenceServerClient(f"{host}:{PORTS['http']}")
    with ThreadPoolExecutor(4) as pool:
        grpc = sum(pool.map(lambda value: infer(by_grpc, value), range(number)))
    refused = {
        "index": by_grpc.get_model_repository_index,
        "unload": lambda: by_grpc.unload_model("echo"),
        "trace": lambda: by_grpc.get_trace_settings("echo"),
        "log": by_grpc.get_log_settings,
        "memory": by_grpc.get_system_shared_memory_status,
    }
    print(json.dumps({
        "paths": {path: status(host, path) for path in PATHS},
        "http": sum(infer_http(host, value) for value in range(10)),
        "grpc": grpc,
        "live": by_grpc.is_server_live(),
        "refused": {name: code(call) for name, call in refused.items()},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
