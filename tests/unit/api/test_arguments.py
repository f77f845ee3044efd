"""Flags of tritonserver that a TritonModel may not have. tests/integration/test_admission.py tests those of the CRD."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from triton_operator.api.types import Server


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--http-restricted-api=health:key=abc"], "--http-restricted-api: the probes"),
        (["--http-restricted-api", "metadata,health:key=abc"], "--http-restricted-api: the probes"),
        (["tritonserver"], "tritonserver: args contains flags only"),
        (["/opt/tritonserver/bin/tritonserver --ok=1"], "tritonserver: args contains flags only"),
    ],
)
def test_refuses_flags_with_which_no_pod_becomes_ready(arguments, flag):
    with pytest.raises(ValidationError, match=flag):
        Server(args=arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--grpc-restricted-protocol=health:key=abc"],
        ["--grpc-restricted-protocol", "health:key=abc"],
        ["--http-restricted-api", "metadata:key=abc", "--grpc-restricted-protocol", "health:key=abc"],
        ["--log-file", "/opt/tritonserver.log"],
    ],
)
def test_accepts_keys_for_what_the_probes_do_not_call(arguments):
    assert Server(args=arguments).args == arguments


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--metrics-config=custom_metrics=/opt/libmetrics.so"], "--metrics-config"),
        (["--metrics-config", "custom_metrics=/opt/libmetrics.so"], "custom_metrics"),
        (["--metrics-config=custom_metrics,path=/opt/libmetrics.so"], "--metrics-config"),
    ],
)
def test_refuses_a_library_of_metrics_which_no_triton_loads(arguments, flag):
    why = f"{flag}: tritonserver has no such key of its metrics: use counter_latencies, histogram_latencies"
    with pytest.raises(ValidationError, match=why):
        Server(args=arguments)
