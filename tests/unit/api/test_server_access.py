"""Which APIs of a server the operator can't use. tests/server/test_server_access.py compares it with a real Triton."""

from __future__ import annotations

import pytest

from triton_operator.api.server_access import closes_changes, closes_index

HTTP, GRPC, TLS = "--http-restricted-api", "--grpc-restricted-protocol", "--grpc-use-ssl"
CASES: list[tuple[list[str], str, str]] = [
    ([], "", ""),
    ([f"{HTTP}=inference,trace:key=x"], "", ""),
    ([f"{HTTP}=model-repository:key=x"], HTTP, HTTP),
    ([HTTP, "trace,model-repository:key=x"], HTTP, HTTP),
    ([f"{HTTP}=trace:key=x", f"{HTTP}=model-repository:other=y"], HTTP, HTTP),
    ([f"{HTTP}=model-config:key=x"], "", HTTP),
    ([f"{HTTP}=trace:model-repository=x"], "", ""),
    (["--http-res=model-repository:key=x"], HTTP, HTTP),
    ([f"{GRPC}=model-repository,health:key=x"], "", GRPC),
    (["--grpc-restr", "model-repository:key=x"], "", GRPC),
    ([f"{GRPC}=model-config:key=x"], "", ""),
    ([f"{TLS}=true"], "", TLS),
    ([TLS, "1"], "", TLS),
    ([f"{TLS}=Off"], "", ""),
    ([f"{TLS}=true", f"{TLS}=false"], "", ""),
    ([f"{TLS}-mutual=true"], "", f"{TLS}-mutual"),
    ([f"{TLS}-mutual=false"], "", f"{TLS}-mutual"),
]
"""Flags of tritonserver, the flag that closes the list of models, and the one that closes changes of models."""


@pytest.mark.parametrize(("arguments", "index", "changes"), CASES)
def test_names_the_flag_that_closes_an_api(arguments: list[str], index: str, changes: str) -> None:
    assert (closes_index(arguments), closes_changes(arguments)) == (index, changes)
