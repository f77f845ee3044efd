"""The flags of tritonserver that the check knows."""

from __future__ import annotations

import pytest

from corpus.good import BY_NAME
from support.mutations import edit
from triton_repository_check.check_table import judge
from triton_repository_check.expected import Expected
from triton_repository_check.load import load
from triton_repository_check.server_flags import ServerFlags, arguments, parse, relevant


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("", ServerFlags()),
        ("--model-config-name=edge", ServerFlags(config_name="edge")),
        ("--model-config-name edge --log-info=false", ServerFlags(config_name="edge")),
        ("--model-config-name=../edge", ServerFlags()),
        ("--strict-model-config ON", ServerFlags(completion=False)),
        ("--strict-model-config=false", ServerFlags()),
        ("--disable-auto-complete-config --log-info=false", ServerFlags(completion=False)),
        ("--log-info=false --disable-auto-complete-config", ServerFlags(completion=False)),
        ("--response-cache-byte-size=9", ServerFlags(response_cache=True)),
        ("--cache-config local,size=9", ServerFlags(response_cache=True)),
        ("--backend-config=python,shm-default-byte-size=9", ServerFlags(region_bytes=9)),
        ("--backend-config vllm,shm-default-byte-size=9", ServerFlags()),
        ("--backend-config=python,shm-default-byte-size=x", ServerFlags()),
        ("--backend-config=python,thread-pool-size=1", ServerFlags(pool_threads=1)),
        ("--backend-config python,thread-pool-size=8 --log-info=false", ServerFlags(pool_threads=8)),
        ("--backend-config=vllm,thread-pool-size=1", ServerFlags()),
        ("--backend-config=default-max-batch-size=8", ServerFlags(default_batch=8)),
        (
            "--backend-config=onnxruntime,default-max-batch-size=0 --backend-config=default-max-batch-size=8",
            ServerFlags(default_batch=0),
        ),
        ("--backend-config=tensorflow,default-max-batch-size=8", ServerFlags()),
        ("--rate-limit=off --rate-limit-resource=a:2", ServerFlags(resources={"a": 2})),
        (
            "--rate-limit=Execution_Count --rate-limit-resource=a:2:0 --rate-limit-resource a:3:1",
            ServerFlags(rate_limiter=True, resources={"a": 3}),
        ),
        ("edge --", ServerFlags()),
    ],
)
def test_parses_the_flags(text: str, flags: ServerFlags) -> None:
    assert parse(text.split()) == flags
    assert parse(relevant(text.split())) == flags, "the pod's check gets only these"
    assert parse(arguments(flags)) == flags, "--with-server gets these"


def test_passes_no_secret_on() -> None:
    flags = [
        "--cache-config=redis,password=secret",
        "--http-restricted-api=inference:key=secret",
        "--trace-config",
        "a",
    ]
    assert relevant(flags) == ["--cache-config=redis"]


@pytest.mark.parametrize(
    ("server", "severities"), [((2, 37), ["error"]), ((2, 38), []), (None, [])], ids=["23.08", "23.09", "unknown"]
)
def test_old_servers_take_64_mib_for_each_instance(tmp_path, server, severities):
    root = BY_NAME["instances"].write(tmp_path)
    edit("many/config.pbtxt", "rate_limiter", "# rate_limiter")(root)
    findings = judge(*load(root), Expected(shared_memory=256 << 20, server=server))
    assert [f.severity for f in findings if f.code == "TR504"] == severities
