"""Shared memory, computed by hand for each case."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from support.mutations import edit, remove, write
from triton_operator.repository.load import load
from triton_operator.repository.needs import (
    ASSUMED_BYTES,
    HEADROOM_BYTES,
    POOL_BYTES,
    instances,
    shared_memory,
    tensor_bytes,
)
from triton_operator.repository.schema import ModelConfig
from unit.repository.gen import MODEL_PY, PRE, good

PRE_BATCH = 8 * (ASSUMED_BYTES + 3 * 64 * 64 * 4 + 4 * 4)


def grown(size: int) -> int:
    return size + size // 4


@pytest.mark.parametrize(("count", "batch", "measured"), [(2, 4, 92), (4, 8, 354)])
def test_what_a_server_was_seen_to_use_is_covered(tmp_path, count, batch, measured):
    """df of /dev/shm, in MiB, after load on server 2.51; within a factor of two, as it counts against the limit."""
    config = f"""
        backend: "python" max_batch_size: {batch} instance_group {{ count: {count} kind: KIND_CPU }}
        input {{ name: "IN" data_type: TYPE_FP32 dims: [ 3, 640, 640 ] }}
        output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 3, 640, 640 ] }}"""
    write("big/config.pbtxt", config)(tmp_path)
    write("big/1/model.py", MODEL_PY)(tmp_path)
    assert measured < need(tmp_path) / 2**20 < 2 * measured


def need(root, **options):
    return shared_memory(load(root)[0], **options)


def test_python_models_alone_count(tmp_path):
    assert need(good(tmp_path)) == grown(2 * (POOL_BYTES + PRE_BATCH)) + HEADROOM_BYTES


def test_nothing_without_python_models(tmp_path):
    assert need(good(tmp_path, remove("pre"), remove("detect"))) == 0


def test_each_served_version_has_its_instances(tmp_path):
    root = good(
        tmp_path,
        write("pre/config.pbtxt", PRE + "version_policy { all { } }"),
        write("pre/2/model.py", MODEL_PY),
        write("pre/3/model.py", MODEL_PY),
    )
    assert need(root) == grown(6 * (POOL_BYTES + PRE_BATCH)) + HEADROOM_BYTES


def test_no_batch_counts_as_one(tmp_path):
    root = good(tmp_path, edit("pre/config.pbtxt", "max_batch_size: 8", "max_batch_size: 0"))
    assert need(root) == grown(2 * (POOL_BYTES + PRE_BATCH // 8)) + HEADROOM_BYTES


def test_without_config_the_pool_counts(tmp_path):
    assert need(good(tmp_path, remove("pre/config.pbtxt"))) == grown(POOL_BYTES) + HEADROOM_BYTES


def test_only_what_is_loaded(tmp_path):
    assert need(good(tmp_path), names=["net"]) == 0


@pytest.mark.parametrize(
    ("groups", "gpus", "count"),
    [
        ("", 1, 1),
        ("", 4, 4),
        ("", 0, 1),
        ("instance_group { kind: KIND_CPU }", 4, 1),
        ("instance_group { count: 3 kind: KIND_CPU }", 4, 3),
        ("instance_group { count: 3 kind: KIND_GPU }", 4, 12),
        ("instance_group { count: 3 kind: KIND_GPU gpus: [ 0, 2 ] }", 4, 6),
        ("instance_group { count: 3 }", 2, 6),
        ("instance_group [ { count: 3 kind: KIND_CPU }, { count: 1 kind: KIND_GPU gpus: 0 } ]", 2, 4),
        ("instance_group { count: 5 kind: KIND_MODEL }", 4, 5),
    ],
)
def test_instances(tmp_path, groups, gpus, count):
    root = good(tmp_path, edit("pre/config.pbtxt", "instance_group [ { count: 2 kind: KIND_CPU } ]", groups))
    assert instances(load(root)[0].models["pre"], gpus) == count


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        ("data_type: TYPE_FP32 dims: [ 3, 640, 640 ]", 4_915_200),
        ("data_type: TYPE_UINT8 dims: [ 10 ]", 10),
        ("data_type: TYPE_BOOL dims: [ 10 ]", 10),
        ("data_type: TYPE_BF16 dims: [ 10 ]", 20),
        ("data_type: TYPE_INT64 dims: [ 10 ]", 80),
        ("data_type: TYPE_STRING dims: [ 2 ]", 2 * 2**20),
        ("data_type: TYPE_UINT8 dims: [ -1 ]", 2**20),
        ("data_type: TYPE_FP32 dims: [ -1, 6 ]", 640 * 6 * 4),
        ("data_type: TYPE_UINT8 dims: [ -1, -1, 3 ]", 640 * 640 * 3),
        ("data_type: TYPE_UINT8 dims: [ -1, -1, -1 ]", 640 * 640),
    ],
)
def test_tensor(tensor, size):
    assert tensor_bytes(text_format.Parse(f"input {{ {tensor} }}", ModelConfig()).input[0]) == size
