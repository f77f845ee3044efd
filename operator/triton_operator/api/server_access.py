"""What flags of tritonserver close to the operator, which has neither a key nor a certificate."""

from __future__ import annotations

from collections.abc import Iterable

from triton_repository_check.server_flags import flags

_HTTP, _GRPC, _TLS = "--http-restricted-api", "--grpc-restricted-protocol", "--grpc-use-ssl"
_MIN_HTTP, _MIN_GRPC = "--http-r", "--grpc-rest"
"""The shortest abbreviations that tritonserver completes (getopt_long)."""
_OFF = ("false", "off", "0")


def closes_index(arguments: Iterable[str]) -> str:
    """Returns the flag that closes the list of loaded models; "" if none does."""
    return _HTTP if "model-repository" in _restricted(arguments, _HTTP, _MIN_HTTP) else ""


def closes_changes(arguments: Iterable[str]) -> str:
    """Returns the flag that closes loading and unloading of models; "" if none does.

    The operator loads and unloads over gRPC, and reads the models and their configurations over HTTP.
    """
    arguments = list(arguments)
    if {"model-repository", "model-config"} & _restricted(arguments, _HTTP, _MIN_HTTP):
        return _HTTP
    if "model-repository" in _restricted(arguments, _GRPC, _MIN_GRPC):
        return _GRPC
    return uses_tls(arguments)


def uses_tls(arguments: Iterable[str]) -> str:
    """Returns the flag with which gRPC uses TLS; "" if it doesn't."""
    values = dict(flags(arguments))
    # Triton uses TLS also with --grpc-use-ssl-mutual=false.
    if any(flag.startswith(f"{_TLS}-") for flag in values):
        return f"{_TLS}-mutual"
    return _TLS if values.get(_TLS, "off").lower() not in _OFF else ""


def _restricted(arguments: Iterable[str], name: str, shortest: str) -> set[str]:
    """Returns the APIs that the flag `name` restricts: API,API:KEY=VALUE, which may be there several times."""
    values = (value for flag, value in flags(arguments) if name.startswith(flag) and flag.startswith(shortest))
    return {api for value in values for api in value.partition(":")[0].split(",")}
