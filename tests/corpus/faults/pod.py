"""Repositories that don't fit the TritonModel's spec or the pod's resources."""

from __future__ import annotations

from pathlib import Path

from corpus.faults.fault import NET, Fault
from corpus.good.repository import MIB
from support.mutations import add, edit
from triton_repository_check.server_flags import ServerFlags


def _megabytes(root: Path) -> None:
    config = root / "slow/config.pbtxt"
    config.write_text(config.read_text().replace("dims: [ 4 ]", "dims: [ 1000000 ]"))


_GLOBAL = 'rate_limiter { resources [ { name: "R" count: 1 global: true } ] }'

FAULTS = (
    Fault(
        "misspelled entrypoint",
        "detection",
        lambda root: None,
        "TR501",
        "error",
        ".",
        {"entrypoint": "detection"},
    ),
    Fault(
        "missing model in loadModels",
        "detection",
        lambda root: None,
        "TR503",
        "error",
        ".",
        {"load_models": ("detect", "postprocess")},
    ),
    Fault(
        "too little shared memory",
        "cache",
        _megabytes,
        "TR504",
        "warning",
        ".",
        {"shared_memory": 16 * MIB},
    ),
    Fault(
        "regions of the Python models that don't fit into shared memory",
        "instances",
        lambda root: None,
        "TR504",
        "error",
        ".",
        {"shared_memory": 256 * MIB, "flags": ServerFlags(region_bytes=64 * MIB, rate_limiter=True)},
    ),
    Fault(
        "rate_limiter that the server ignores",
        "instances",
        lambda root: None,
        "TR512",
        "warning",
        "many/config.pbtxt:14",
        {"flags": ServerFlags()},
    ),
    Fault(
        "too few of a resource for rate_limiter",
        "instances",
        edit("many/config.pbtxt", 'name: "R" count: 1', 'name: "R" count: 4'),
        "TR513",
        "error",
        "many/config.pbtxt:14",
        {"flags": ServerFlags(rate_limiter=True, resources={"R": 2})},
    ),
    Fault(
        "execution environment that is not in the repository",
        "cache",
        add(
            "slow/config.pbtxt",
            'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "/models/env.tar.gz" } }\n',
        ),
        "TR209",
        "error",
        "slow/config.pbtxt:11",
    ),
    Fault(
        "more threads than cores",
        "detection",
        edit(NET, 'string_value: "1"', 'string_value: "4"'),
        "TR505",
        "warning",
        f"{NET}:12",
    ),
    Fault(
        "two instances with one thread per core of the node",
        "instances",
        edit(NET, 'parameters { key: "intra_op_thread_count" value: { string_value: "1" } }\n', ""),
        "TR505",
        "warning",
        f"{NET}:5",
    ),
    Fault(
        "response cache disabled in the server",
        "cache",
        lambda root: None,
        "TR506",
        "warning",
        "slow/config.pbtxt:10",
        {"flags": ServerFlags()},
    ),
    Fault(
        "response cache of a decoupled model",
        "decoupled",
        add("repeat/config.pbtxt", "response_cache { enable: true }\n"),
        "TR507",
        "error",
        "repeat/config.pbtxt:11",
        {"flags": ServerFlags(response_cache=True)},
    ),
    *(
        Fault(
            f"resource that is global in only one place of {where}",
            "instances",
            edit(file, old, new),
            "TR518",
            "error",
            f"many/config.pbtxt:{line}",
            {"flags": ServerFlags(rate_limiter=True)},
        )
        for where, file, old, new, line in (
            ("a model", "many/config.pbtxt", "count: 2 kind: KIND_CPU", f"count: 2 kind: KIND_CPU {_GLOBAL}", 16),
            (
                "the repository",
                "auto/config.pbtxt",
                "count: 2 kind: KIND_AUTO",
                f"count: 2 kind: KIND_AUTO {_GLOBAL}",
                14,
            ),
        )
    ),
)
