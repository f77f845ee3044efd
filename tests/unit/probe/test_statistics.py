"""Finds models that answer without being counted, in statistics from Triton and from others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support import bad_servers
from triton_operator.probe import fetch
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.statistics import find, parse, uncounted

WARM: dict[str, Any] = {"model_warmup": [{"name": "one"}]}
PIPE: dict[str, Any] = {"ensemble_scheduling": {"step": [{"model_name": "pre"}, {"model_name": "net"}]}}


def body(*rows: tuple[str, int, int]) -> bytes:
    def statistics(name: str, success: int, fail: int) -> Any:
        return {"name": name, "inference_stats": {"success": {"count": success}, "fail": {"count": fail}}}

    return json.dumps({"model_stats": [statistics(*row) for row in rows]}).encode()


def test_adds_up_versions_successes_and_failures() -> None:
    assert parse(body(("a", 1, 2), ("a", 4, 0), ("b", 0, 0))) == {"a": 7, "b": 0}


@pytest.mark.parametrize(
    ("counts", "config", "expected"),
    [
        ({"net": 0}, WARM, ["net"]),
        ({"net": 1}, WARM, []),
        ({"net": 0}, {}, []),
        ({"net": 0, "pre": 60, "all": 60}, PIPE, ["net"]),
        ({"net": 0, "pre": 0, "all": 60}, PIPE, ["net", "pre"]),
        # Too few requests to be sure: the first ones may have failed in an earlier step.
        ({"net": 0, "pre": 9, "all": 9}, PIPE, []),
        # Answers from the cache reach no step.
        ({"net": 0, "pre": 0, "all": 60}, {**PIPE, "response_cache": {"enable": True}}, []),
        # The step isn't listed.
        ({"pre": 60, "all": 60}, PIPE, []),
        # An idle model that is no step.
        ({"net": 60, "pre": 60, "other": 0, "all": 60}, PIPE, []),
    ],
)
def test_needs_evidence_that_the_model_answers(counts: dict[str, int], config: Any, expected: list[str]) -> None:
    entrypoint = "all" if "all" in counts else "net"
    assert [name for name, _ in find(entrypoint, counts, config)] == expected


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"null", b'{"model_stats": 7}', b'{"model_stats": [{"name": "a"}]}', b"[" * 100_000,
     body(("net", 0, 0)).replace(b"0", b'"x"'), b"x" * (2 << 20)],
)  # fmt: skip
def test_rejects_statistics_that_are_not_from_triton(answer: bytes) -> None:
    async def run(address: str) -> Any:
        client = fetch.HttpClient()
        return await uncounted(client, address, "net")

    with bad_servers.server("127.0.0.1", bad_servers.answers(answer), 0) as served, pytest.raises(FetchError):
        asyncio.run(run(served.address))


@pytest.mark.parametrize("config", [[], None, 7, {"ensemble_scheduling": {"step": 7}}, {"response_cache": 1}])
def test_a_strange_configuration_raises_only_what_the_caller_expects(config: Any) -> None:
    with pytest.raises((TypeError, AttributeError, KeyError)):
        find("net", {"net": 60}, config)
