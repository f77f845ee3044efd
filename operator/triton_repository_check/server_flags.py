"""The flags of tritonserver that decide whether a model repository fits the server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_CACHE = ("--cache-config", "--response-cache-byte-size")
_REGION = "python,shm-default-byte-size="
_POOL = "python,thread-pool-size="
_BATCH = "default-max-batch-size="
_BATCHES = (f"onnxruntime,{_BATCH}", _BATCH)
"""Of the onnxruntime backend, and of each backend, which counts less."""
_RELEVANT = (
    *_CACHE,
    "--disable-auto-complete-config",
    "--model-config-name",
    "--rate-limit",
    "--rate-limit-resource",
    "--strict-model-config",
)
DEFAULT_BATCH = 4
TRUE = ("true", "on", "1")
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """What the flags say. Without a flag a field has Triton's default.

    - `config_name`: the name of the configurations that the server reads before config.pbtxt.
    - `completion`: whether the server completes configurations.
    - `response_cache`: whether the server has a response cache.
    - `region_bytes`: first size of the region in /dev/shm of each instance of a Python model; None without the flag.
    - `pool_threads`: threads that the server starts for each instance of a Python model; None without the flag.
    - `default_batch`: the max_batch_size that the onnxruntime backend sets where config.pbtxt has none; 0: none.
    - `rate_limiter`: whether the server obeys rate_limiter in config.pbtxt.
    - `resources`: the number of each resource for rate_limiter, on the device that has most. Empty without the flag:
      then there are as many as the models need.
    """

    config_name: str = ""
    completion: bool = True
    response_cache: bool = False
    region_bytes: int | None = None
    pool_threads: int | None = None
    default_batch: int = DEFAULT_BATCH
    rate_limiter: bool = False
    resources: Mapping[str, int] = field(default_factory=dict)


def parse(arguments: Iterable[str]) -> ServerFlags:
    """Returns what the arguments of tritonserver say. Triton itself refuses malformed values, so they are ignored."""
    pairs = list(flags(arguments))
    values = dict(pairs)
    name = values.get("--model-config-name", "")
    resources: dict[str, int] = {}
    for resource, count in (_resource(value) for flag, value in pairs if flag == "--rate-limit-resource"):
        resources[resource] = max(count, resources.get(resource, 0))
    return ServerFlags(
        config_name=name if _NAME.fullmatch(name) else "",
        completion="--disable-auto-complete-config" not in values
        and values.get("--strict-model-config", "").lower() not in TRUE,
        response_cache=any(flag in values for flag in _CACHE),
        region_bytes=_number(pairs, _REGION),
        pool_threads=_number(pairs, _POOL),
        default_batch=next((n for each in _BATCHES if (n := _number(pairs, each)) is not None), DEFAULT_BATCH),
        rate_limiter=values.get("--rate-limit", "").lower() == "execution_count",
        resources=resources,
    )


def relevant(arguments: Iterable[str]) -> list[str]:
    """Returns the arguments that `parse` reads, each with its value. They contain no password."""
    return [
        flag + (f"={value.partition(',')[0] if flag in _CACHE else value}" if value else "")
        for flag, value in flags(arguments)
        if flag in _RELEVANT or value.startswith((_REGION, _POOL, *_BATCHES))
    ]


def arguments(server: ServerFlags) -> list[str]:
    """Returns flags of tritonserver that say the same. The cache is small and local."""
    return [
        *(["--disable-auto-complete-config"] if not server.completion else []),
        *([f"--model-config-name={server.config_name}"] if server.config_name else []),
        *(["--cache-config=local,size=1048576"] if server.response_cache else []),
        *([f"--backend-config={_REGION}{server.region_bytes}"] if server.region_bytes is not None else []),
        *([f"--backend-config={_POOL}{server.pool_threads}"] if server.pool_threads is not None else []),
        *([f"--backend-config={_BATCHES[0]}{server.default_batch}"] if server.default_batch != DEFAULT_BATCH else []),
        *(["--rate-limit=execution_count"] if server.rate_limiter else []),
        *(f"--rate-limit-resource={name}:{count}" for name, count in server.resources.items()),
    ]


def flags(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields each flag and its value, which may be an argument of its own."""
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            if name:
                yield name, ""
            name, is_joined, value = argument.partition("=")
            if is_joined:
                yield name, value
                name = ""
        elif name:
            yield name, argument
            name = ""
    if name:
        yield name, ""


def _number(pairs: Iterable[tuple[str, str]], setting: str) -> int | None:
    """Returns the number in the last value that begins with `setting`; None without one."""
    texts = [value.removeprefix(setting) for _, value in pairs if value.startswith(setting)]
    return int(texts[-1]) if texts and texts[-1].isdecimal() else None


def _resource(text: str) -> tuple[str, int]:
    """Returns name and count of NAME:COUNT or NAME:COUNT:DEVICE."""
    name, _, rest = text.partition(":")
    count = rest.partition(":")[0]
    return name, int(count) if count.isdecimal() else 0
