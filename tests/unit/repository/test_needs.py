"""The shared memory that a repository needs. The expected values are computed by hand."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from support.mutations import edit, remove, write
from triton_repository_check.load import load
from triton_repository_check.needs import (
    ASSUMED_BYTES,
    HEADROOM_BYTES,
    POOL_BYTES,
    instances,
    shared_memory,
    tensor_bytes,
)
from triton_repository_check.schema import ModelConfig
from unit.repository.gen import MODEL_PY, PRE, good

PRE_BATCH = 8 * (ASSUMED_BYTES + 3 * 64 * 64 * 4 + 4 * 4)


def with_reserve(size: int) -> int:
    return size + size // 4


@pytest.mark.parametrize(("count", "batch", "measured"), [(2, 4, 92), (4, 8, 354)])
def test_estimate_covers_measured_usage(tmp_path, count, batch, measured):
    """`measured` is the usage of /dev/shm in MiB under load on server 2.51. The estimate is at most twice as high,
    because shared memory counts against the memory limit."""
    config = f"""
        backend: "python" max_batch_size: {batch} instance_group {{ count: {count} kind: KIND_CPU }}
        input {{ name: "IN" data_type: TYPE_FP32 dims: [ 3, 640, 640 ] }}
        output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 3, 640, 640 ] }}"""
    write("big/config.pbtxt", config)(tmp_path)
    write("big/1/model.py", MODEL_PY)(tmp_path)
    assert measured < need(tmp_path) / 2**20 < 2 * measured


def need(root, **options):
    return shared_memory(load(root)[0], **options)


def test_counts_only_python_models(tmp_path):
    assert need(good(tmp_path)) == with_reserve(2 * (POOL_BYTES + PRE_BATCH)) + HEADROOM_BYTES


def test_needs_nothing_without_python_models(tmp_path):
    assert need(good(tmp_path, remove("pre"), remove("detect"))) == 0


def test_counts_the_instances_of_each_served_version(tmp_path):
    root = good(
        tmp_path,
        write("pre/config.pbtxt", PRE + "version_policy { all { } }"),
        write("pre/2/model.py", MODEL_PY),
        write("pre/3/model.py", MODEL_PY),
    )
    assert need(root) == with_reserve(6 * (POOL_BYTES + PRE_BATCH)) + HEADROOM_BYTES


def test_counts_a_batch_size_of_0_as_1(tmp_path):
    root = good(tmp_path, edit("pre/config.pbtxt", "max_batch_size: 8", "max_batch_size: 0"))
    assert need(root) == with_reserve(2 * (POOL_BYTES + PRE_BATCH // 8)) + HEADROOM_BYTES


def test_counts_the_pool_of_a_model_without_a_config(tmp_path):
    assert need(good(tmp_path, remove("pre/config.pbtxt"))) == with_reserve(POOL_BYTES) + HEADROOM_BYTES


def test_counts_only_loaded_models(tmp_path):
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
def test_counts_the_instances_of_a_model(tmp_path, groups, gpus, count):
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
def test_computes_the_size_of_a_tensor(tensor, size):
    assert tensor_bytes(text_format.Parse(f"input {{ {tensor} }}", ModelConfig()).input[0]) == size
