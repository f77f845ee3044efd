"""A server with Triton's gRPC service whose models, failures and words a test chooses."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc


@dataclass
class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers as Triton does.

    - `index`: (name, version, state, reason) of each model.
    - `configs`: text of the ModelConfig by model.
    - `failures`: why a model doesn't load.
    - `delay`: seconds that each load takes.
    - `calls`: the requests that change models. `peers`: the addresses of clients that read a configuration.
    """

    index: list[tuple[str, str, str, str]] = field(default_factory=list)
    configs: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    calls: list[str] = field(default_factory=list)
    peers: set[str] = field(default_factory=set)
    port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:
        entry = service_pb2.RepositoryIndexResponse.ModelIndex
        models = [entry(name=n, version=v, state=s, reason=r) for n, v, s, r in self.index]
        return service_pb2.RepositoryIndexResponse(models=models)

    def ModelConfig(self, request: Any, context: Any) -> Any:
        self.peers.add(context.peer())
        if request.name not in self.configs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found")
        return service_pb2.ModelConfigResponse(config=self.configs[request.name])

    def ModelStatistics(self, request: Any, context: Any) -> Any:
        def statistics(name: str, version: str) -> Any:
            usage = service_pb2.MemoryUsage(type="CPU", id=0, byte_size=self.memory.get(name, 0))
            return service_pb2.ModelStatistics(name=name, version=version, memory_usage=[usage])

        return service_pb2.ModelStatisticsResponse(model_stats=[statistics(n, v) for n, v, *_ in self.index])

    def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        config = json.loads(request.parameters["config"].string_param or "{}")
        extra = "".join(f" with {key}" for key in config.get("cc_model_filenames", {}))
        self._change("load", request.model_name, "READY", context, extra)
        return service_pb2.RepositoryModelLoadResponse()

    def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        self._change("unload", request.model_name, "UNAVAILABLE", context)
        return service_pb2.RepositoryModelUnloadResponse()

    def _change(self, verb: str, name: str, state: str, context: Any, extra: str = "") -> None:
        with self._lock:
            self.calls.append(f"{verb} {name}{extra}")
        time.sleep(self.delay)
        if name in self.failures:
            context.abort(grpc.StatusCode.INTERNAL, self.failures[name])
        with self._lock:
            entries = [entry for entry in self.index if entry[0] != name]
            self.index = [*entries, (name, "1", state, "unloaded" if verb == "unload" else "")]


_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@contextlib.contextmanager
def serving(triton: FakeTriton, address: str = "127.0.0.1:0") -> Iterator[FakeTriton]:
    """Serves it at `address`, by default on a free port of 127.0.0.1."""
    server = grpc.server(futures.ThreadPoolExecutor(4), options=_OPTIONS)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    triton.port = server.add_insecure_port(address)
    server.start()
    try:
        yield triton
    finally:
        server.stop(None)
