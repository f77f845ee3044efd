"""The report in the termination message: it fits the limit, can be parsed again, and invalid text is rejected."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support.mutations import remove
from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.load import load
from triton_repository_check.report import ModelLine, Report, limit, parse, render, report
from unit.repository.gen import findings, good


def many(models: int = 200, count: int = 500) -> Report:
    name = "détection-" + "x" * 190  # contains two-byte characters, because the limit counts bytes
    return Report(
        ok=False,
        entrypoint=None,
        models=tuple(ModelLine(f"{name}{n:03}", (1, 2, 3), False) for n in range(models)),
        model_count=models,
        need=2**40,
        have=2**40,
        findings=tuple(
            Finding("TR101", Severity.ERROR, f"{name}{n:03}/config.pbtxt", n, n, "„" * 900, "remedy " * 200)
            for n in range(count)
        ),
        truncated=0,
    )


@pytest.mark.parametrize("size", [512, 2048, 3072, 4096])
@pytest.mark.parametrize(("models", "count"), [(200, 500), (200, 0), (0, 500), (1, 1)])
def test_fits_the_limit_and_counts_the_truncated_findings(models, count, size):
    text = render(many(models, count), size)
    assert len(text.encode()) <= size
    parsed = parse(text)
    assert parsed is not None
    assert len(parsed.findings) + parsed.truncated == count
    assert parsed.model_count == models


def test_fits_any_limit():
    """Long lists of short entries, so that punctuation is most of the text."""
    full = replace(
        many(),
        models=tuple(ModelLine(f"m{n}", (1,), False) for n in range(200)),
        findings=tuple(Finding("TR101", Severity.ERROR, "m", None, None, "", "") for _ in range(500)),
    )
    assert [size for size in range(512, 4097, 89) if len(render(full, size).encode()) > size] == []


def test_models_and_findings_share_the_space():
    parsed = parse(render(many(), 4096))
    assert parsed is not None
    assert len(parsed.models) >= 3
    assert len(parsed.findings) >= 1
    assert len(render(many(), 4096).encode()) > 3000, "the report uses too little of the limit"


def test_models_use_the_space_that_findings_leave():
    parsed = parse(render(many(200, 0), 4096))
    assert parsed is not None
    assert len(parsed.models) >= 14


def test_small_report_is_parsed_completely(tmp_path):
    root = good(tmp_path, remove("net/1/model.onnx"), remove("detect/1"))
    repository, unreadable = load(root)
    expected = Expected(shared_memory=2**26)
    full = report(repository, (*unreadable, *findings(root, shared_memory=2**26)), expected)
    assert parse(render(full)) == full
    assert [f.severity for f in full.findings] == ["error", "error", "warning"]
    assert full.models == (
        ModelLine("detect", (), True),
        ModelLine("net", (1,), False),
        ModelLine("pre", (1,), False),
    )
    assert (full.ok, full.entrypoint, full.have) == (False, "detect", 2**26)
    assert full.need > 2**26


def test_document_has_these_keys(tmp_path):
    repository, _ = load(good(tmp_path))
    document = json.loads(render(report(repository, (), Expected())))
    assert document == {
        "ok": True,
        "entrypoint": "detect",
        "models": [
            {"name": "detect", "versions": [1], "ensemble": True, "decoupled": False},
            {"name": "net", "versions": [1], "ensemble": False, "decoupled": False},
            {"name": "pre", "versions": [1], "ensemble": False, "decoupled": False},
        ],
        "modelCount": 3,
        "sharedMemory": {"need": document["sharedMemory"]["need"], "have": -1},
        "findings": [],
        "truncated": 0,
    }


STREAMS = "model_transaction_policy { decoupled: true }"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (STREAMS, {"net"}),
        ("model_transaction_policy { decoupled: false }", set()),
        ('backend: "vllm"', {"net"}),
        ('backend: "vllm" model_transaction_policy { decoupled: false }', set()),
        (f'backend: "tensorrtllm" {STREAMS}', set()),
    ],
)
def test_reports_which_models_are_decoupled(tmp_path, config, expected):
    """Triton measures an ensemble, and the TensorRT-LLM backend its models, until the last response."""
    root = good(tmp_path)
    path = root / "net" / "config.pbtxt"
    path.write_text(path.read_text().replace('backend: "onnxruntime"', "") + config)
    repository, _ = load(root)
    models = parse(render(report(repository, (), Expected()))).models
    assert {model.name for model in models if model.decoupled} == expected


def test_keeps_the_decoupled_models_if_not_all_models_fit():
    models = tuple(ModelLine(f"m{n}", (1,), False, n >= 90) for n in range(100))
    full = replace(many(0, 0), entrypoint="m5", models=models, model_count=100)
    parsed = parse(render(full, 3072)).models
    assert [m.name for m in parsed if m.decoupled] == [f"m{n}" for n in range(90, 100)]
    assert parsed[0].name == "m5"


def test_an_older_report_does_not_say_which_models_are_decoupled():
    document = json.loads(render(many(1, 0)))
    del document["models"][0]["decoupled"]
    assert parse(json.dumps(document)).models[0].decoupled is None


def test_report_with_only_warnings_is_ok(tmp_path):
    repository, _ = load(good(tmp_path))
    warning = Finding("TR504", Severity.WARNING, ".", None, None, "little", "more")
    assert report(repository, [warning], Expected()).ok
    assert not report(repository, [replace(warning, severity=Severity.ERROR)], Expected()).ok


def test_sorts_errors_first(tmp_path):
    repository, _ = load(good(tmp_path))
    reversed_findings = [Finding("TR1", severity, "a", None, None, "", "") for severity in reversed(Severity)]
    assert [f.severity for f in report(repository, reversed_findings, Expected()).findings] == list(Severity)


@pytest.mark.parametrize(("containers", "size"), [(1, 4096), (3, 4096), (4, 3072), (6, 2048), (12, 1024), (0, 4096)])
def test_limit_is_divided_by_the_containers_of_the_pod(containers, size):
    assert limit(containers) == size


VALID = render(many(2, 1))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "null",
        "[]",
        "7",
        "{}",
        "Traceback (most recent call last):",
        VALID[:-1],
        VALID[:300],
        "[" * 100_000,
        VALID.replace('"ok":false', '"ok":"false"'),
        VALID.replace('"ok":false', '"ok":0'),
        VALID.replace('"truncated":0', '"truncated":true'),
        VALID.replace('"modelCount":2', '"modelCount":2.5'),
        VALID.replace('"severity":"error"', '"severity":"fatal"'),
        VALID.replace('"entrypoint":null', '"entrypoint":7'),
        VALID.replace('"versions":[1,2,3]', '"versions":["1"]'),
        VALID.replace('"sharedMemory":{', '"sharedMemory":[],"x":{'),
        VALID.replace('"findings":[{', '"findings":[7,{'),
        VALID.replace('"line":0', '"line":"0"'),
    ],
)
def test_rejects_text_that_is_not_a_report(text):
    assert text != VALID
    assert parse(text) is None


def test_ignores_unknown_keys():
    assert parse(VALID) is not None
    assert parse(VALID.replace('"ok":false', '"newer":1,"ok":false')) == parse(VALID)


GROUP = "instance_group [ {{ {} }} ]"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", {"net"}),
        (GROUP.format("count: 2"), {"net"}),
        (GROUP.format("kind: KIND_AUTO"), {"net"}),
        (GROUP.format("kind: KIND_CPU"), set()),
        (GROUP.format("kind: KIND_GPU"), set()),
        (GROUP.format("kind: KIND_MODEL"), set()),
        (GROUP.format("count: 1 }, { kind: KIND_CPU"), set()),
        # Without the GPU of this index Triton uses the CPU, although it sees others.
        (GROUP.format("gpus: [ 1 ]"), set()),
        ('backend: "openvino"', set()),
        ('backend: "openvino" instance_group [ { count: 1 } ]', {"net"}),
        ('backend: "mine"', set()),
        ('backend: "python"', {"net"}),
        ("backend: [", set()),
    ],
)
def test_reports_which_models_triton_puts_on_a_gpu(tmp_path, config, expected):
    root = good(tmp_path)
    path = root / "net" / "config.pbtxt"
    text = path.read_text()
    path.write_text((text.replace('backend: "onnxruntime"', "") if "backend" in config else text) + config)
    repository, _ = load(root)
    models = parse(render(report(repository, (), Expected(gpus=1)))).models
    assert {model.name for model in models if model.gpu} == expected


def test_a_model_without_config_pbtxt_is_put_on_a_gpu(tmp_path):
    repository, _ = load(good(tmp_path, remove("net/config.pbtxt")))
    assert [m.name for m in report(repository, (), Expected(gpus=1)).models if m.gpu] == ["net"]


@pytest.mark.parametrize("gpus", [None, 0])
def test_no_model_is_put_on_a_gpu_that_the_server_may_not_have(tmp_path, gpus):
    repository, _ = load(good(tmp_path))
    text = render(report(repository, (), Expected(gpus=gpus)))
    assert '"gpu"' not in text
    assert not any(model.gpu for model in parse(text).models), "an older report looks like this one"


def test_keeps_a_model_on_a_gpu_if_not_all_models_fit():
    models = tuple(ModelLine(f"m{n}", (1,), False, False, n == 99) for n in range(100))
    full = replace(many(0, 0), entrypoint="m5", models=models, model_count=100)
    assert [m.name for m in parse(render(full, 3072)).models][:2] == ["m5", "m99"]
