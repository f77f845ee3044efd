"""Where the instances of a model run, in configurations from Triton and from others."""

from __future__ import annotations

import json

import pytest

from triton_operator.probe.fetch import FetchError
from triton_operator.probe.placement import parse


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["KIND_CPU"], True),
        (["KIND_CPU", "KIND_CPU"], True),
        (["KIND_GPU"], False),
        (["KIND_CPU", "KIND_GPU"], False),
        (["KIND_MODEL"], False),
        (["KIND_AUTO"], False),
        ([], False),
    ],
)
def test_all_instances_are_on_the_cpu(kinds: list[str], expected: bool) -> None:
    body = json.dumps({"name": "net", "instance_group": [{"kind": kind, "count": 1} for kind in kinds]}).encode()
    assert parse(body) is expected


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"null", b"{}", b'{"instance_group": 7}', b'{"instance_group": [7]}', b'{"instance_group": [{}]}',
     b'{"instance_group": [{"kind": ["KIND_CPU"]}]}', b"[" * 100_000],
)  # fmt: skip
def test_rejects_what_is_not_a_configuration(answer: bytes) -> None:
    with pytest.raises(FetchError):
        parse(answer)
