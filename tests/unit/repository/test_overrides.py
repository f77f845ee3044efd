"""spec.models: fields of config.pbtxt by value, the findings about them, and the view that the server gets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.mutations import add, edit, remove, write
from triton_repository_check import overrides, textformat, view
from triton_repository_check.check import main
from triton_repository_check.check_table import judge
from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding
from triton_repository_check.load import load
from triton_repository_check.model import Model
from triton_repository_check.server_flags import ServerFlags
from unit.repository.gen import brief, good

CPUS = {"instance_group": [{"count": 3, "kind": "KIND_CPU"}]}


def findings(root: Path, settings: overrides.Overrides, **expected: Any) -> tuple[Finding, ...]:
    return judge(*load(root, settings), Expected(**expected))


def merged(root: Path, name: str, **config: Any) -> Model:
    repository, problems = load(root, {name: config})
    assert problems == ()
    return repository.models[name]


def test_a_field_stands_instead_of_that_of_the_file(tmp_path):
    root = good(tmp_path)
    model = merged(root, "pre", **CPUS)
    assert [(group.count, len(model.config.instance_group)) for group in model.config.instance_group] == [(3, 1)]
    assert model.config.max_batch_size == 8
    assert findings(root, {"pre": CPUS}) == ()


def test_messages_are_merged_field_by_field(tmp_path):
    """So a longer delay doesn't remove the limit of the queue."""
    text = "preserve_ordering: true preferred_batch_size: 4 default_queue_policy { max_queue_size: 9 }"
    root = good(tmp_path, edit("net/config.pbtxt", "preferred_batch_size: [ 4, 8 ]", text))
    policy = {"allow_timeout_override": True}
    settings = {"preserve_ordering": False, "preferred_batch_size": [8], "default_queue_policy": policy}
    model = merged(root, "net", dynamic_batching=settings)
    batching = model.config.dynamic_batching
    assert (batching.preserve_ordering, list(batching.preferred_batch_size)) == (False, [8])
    assert batching.default_queue_policy.max_queue_size == 9
    assert batching.default_queue_policy.allow_timeout_override
    place = "spec.models[net].config.dynamic_batching.default_queue_policy.allow_timeout_override"
    find = model.where.find
    assert find("dynamic_batching", 0, "default_queue_policy", 0, "allow_timeout_override").within("f")[0] == place
    assert find("dynamic_batching", 0, "default_queue_policy", 0, "max_queue_size").within("f")[:2] == ("f", 5)
    assert merged(tmp_path, "pre", dynamic_batching={}).config.HasField("dynamic_batching")


def test_a_choice_replaces_the_other_one(tmp_path):
    root = good(tmp_path, add("pre/config.pbtxt", "version_policy { latest { num_versions: 2 } }"))
    model = merged(root, "pre", version_policy={"specific": {"versions": [1]}})
    assert str(model.config.version_policy) == "specific {\n  versions: 1\n}\n"
    assert model.where.fields["version_policy"][0].fields.keys() == {"specific"}


def test_maps_are_merged_entry_by_entry(tmp_path):
    text = 'parameters { key: "a" value { string_value: "1" } } parameters { key: "b" value { string_value: "2" } }'
    root = good(tmp_path, add("pre/config.pbtxt", text))
    model = merged(root, "pre", parameters={"b": {"string_value": "${B}"}, "c": {"string_value": "3"}})
    assert {k: v.string_value for k, v in model.config.parameters.items()} == {"a": "1", "b": "${B}", "c": "3"}
    (finding,) = findings(root, {"pre": {"parameters": {"b": {"string_value": "${B}"}}}})
    assert (finding.code, finding.file) == ("TR129", "spec.models[pre].config.parameters.b.string_value")
    assert [entry.find("key").text for entry in model.where.fields["parameters"]] == ["a", "b", "c"]


def test_an_empty_list_removes_the_field(tmp_path):
    assert len(merged(good(tmp_path), "pre", instance_group=[]).config.instance_group) == 0


def test_a_model_without_a_file_gets_one(tmp_path):
    root = good(tmp_path, remove("net/config.pbtxt"))
    model = merged(root, "net", **CPUS)
    assert (model.has_config, model.backend) == (True, "onnxruntime")
    assert "TR104" in {f.code for f in judge(*load(root), Expected(flags=ServerFlags(completion=False)))}


def test_numbers_of_64_bits_may_be_text_and_keys_may_be_numbers(tmp_path):
    batching = {"priority_levels": "2", "default_priority_level": 1.0,
                "priority_queue_policy": {"1": {"max_queue_size": 4}}}  # fmt: skip
    net = merged(good(tmp_path), "net", dynamic_batching=batching).config.dynamic_batching
    assert (net.priority_levels, net.default_priority_level) == (2, 1)
    assert net.priority_queue_policy[1].max_queue_size == 4
    policy = "priority_queue_policy { key: 1 value { max_queue_size: 5 timeout_action: DELAY } }"
    edit("net/config.pbtxt", "dynamic_batching {", f"dynamic_batching {{ {policy}")(tmp_path)
    model = merged(tmp_path, "net", dynamic_batching=batching)
    entry = model.where.find("dynamic_batching", 0, "priority_queue_policy", "1")
    assert entry.find("value", 0, "timeout_action").within("f")[:2] == ("f", 5)
    net = model.config.dynamic_batching
    assert (net.priority_queue_policy[1].max_queue_size, net.priority_queue_policy[1].timeout_action) == (4, 1)


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        ({"instance_group": [{"knd": "KIND_CPU"}]}, "instance_group[0].knd", "did you mean 'kind'?"),
        ({"instance_group": [{}, {"kind": "GPU"}]}, "instance_group[1].kind", "did you mean KIND_GPU?"),
        ({"instance_group": [{"count": "two"}]}, "instance_group[0].count", "takes a whole number, got \"two\""),
        ({"instance_group": [{"count": 2**31}]}, "instance_group[0].count", "out of range"),
        ({"instance_group": [{"count": True}]}, "instance_group[0].count", "takes a whole number, got true"),
        ({"instance_group": [{"passive": 1}]}, "instance_group[0].passive", "write true or false"),
        ({"instance_group": [{"name": 5}]}, "instance_group[0].name", 'write "5" in quotes'),
        ({"instance_group": [{"kind": 1}]}, "instance_group[0].kind", "takes the name of a value"),
        ({"instance_group": {"count": 2}}, "instance_group", "takes a list"),
        ({"instance_group": [3]}, "instance_group[0]", "takes fields, got 3"),
        ({"count": 2}, "count", "count belongs into instance_group { … }"),
        ({"parameters": {"a": "1"}}, "parameters.a", "takes fields, got \"1\""),
        ({"parameters": []}, "parameters", "takes values by name"),
        ({"dynamic_batching": None}, "dynamic_batching", "takes fields, got null"),
        ({"dynamic_batching": {"priority_queue_policy": {"x": {}}}}, "dynamic_batching.priority_queue_policy.x",
         "takes a whole number"),
        ({"version_policy": {"all": {}, "latest": {}}}, "version_policy.latest", "all is set, too"),
        ({"max_batch_size": 2.5}, "max_batch_size", "takes a whole number"),
    ],
)  # fmt: skip
def test_tells_a_wrong_value_with_its_place(tmp_path, config, place, words):
    reported = findings(good(tmp_path), {"pre": config})
    assert brief(reported) == [f"error TR510 spec.models[pre].config.{place}"]
    assert words in str(reported[0])
    assert reported[0].model == "pre"


def test_a_setting_does_not_take_away_what_it_excludes(tmp_path):
    reported = findings(good(tmp_path), {"detect": {"dynamic_batching": {}}})
    assert brief(reported) == ["error TR510 spec.models[detect].config.dynamic_batching"]
    assert "config.pbtxt has ensemble_scheduling" in reported[0].message


def test_findings_name_the_field_of_the_spec(tmp_path):
    """The rules know no spec."""
    batching = {"dynamic_batching": {"preferred_batch_size": [4, 16]}}
    assert brief(findings(good(tmp_path), {"net": batching})) == [
        "error TR108 spec.models[net].config.dynamic_batching.preferred_batch_size[1]"
    ]
    # The other fields keep their positions.
    edit("net/config.pbtxt", 'backend: "onnxruntime"', "max_batch_size: 4")(tmp_path)
    edit("net/config.pbtxt", "max_batch_size: 8\n", "")(tmp_path)
    assert "error TR108 net/config.pbtxt:4:47" in brief(findings(tmp_path, {"net": CPUS}))


def test_errors_in_settings_of_models_that_are_not_loaded_stay(tmp_path):
    """Such a model can be loaded later."""
    reported = findings(good(tmp_path), {"detect": {"dynamic_batching": {}}}, load_models=("net",), entrypoint="net")
    assert brief(reported) == ["error TR510 spec.models[detect].config.dynamic_batching"]


@pytest.mark.parametrize(("size", "codes"), [(4, []), (0, ["TR511"])])
def test_warns_about_other_shapes(tmp_path, size, codes):
    reported = [f for f in findings(good(tmp_path), {"net": {"max_batch_size": size}}) if f.code == "TR511"]
    assert [f.code for f in reported] == codes
    assert all(f.file == "spec.models[net].config.max_batch_size" for f in reported)


def test_rejects_a_model_that_does_not_exist(tmp_path):
    reported = findings(good(tmp_path), {"nett": CPUS}, load_models=("net",), entrypoint="net")
    assert brief(reported) == ["error TR509 ."]
    assert "did you mean 'net'?" in str(reported[0])


def test_rejects_a_model_outside_of_the_repository(tmp_path):
    root = good(tmp_path / "models")
    (tmp_path / "far").mkdir()
    (root / "far").symlink_to(tmp_path / "far")
    assert "error TR509 ." in brief(findings(root, {"far": CPUS}))


@pytest.mark.parametrize(("value", "before"), [(b"\xff", ["warning"]), (rb"\377", [])])
def test_a_value_that_is_not_utf8_cannot_be_written(tmp_path, value, before):
    root = good(tmp_path, add("pre/config.pbtxt", ""))
    config = root / "pre/config.pbtxt"
    config.write_bytes(config.read_bytes() + b'parameters { key: "a" value { string_value: "' + value + b'" } }')
    assert [f.severity for f in findings(root, {}) if f.code == "TR130"] == before
    assert [f.severity for f in findings(root, {"pre": CPUS}) if f.code == "TR130"] == ["error"]


def test_rejects_settings_for_a_file_that_is_not_read(tmp_path, monkeypatch):
    """The check only warns about such a file, and the server would run without the settings."""
    root, outside = good(tmp_path / "models"), tmp_path / "outside"
    (root / "pre/config.pbtxt").rename(outside)
    (root / "pre/config.pbtxt").symlink_to(outside)
    assert "error TR509 spec.models[pre].config" in brief(findings(root, {"pre": CPUS}))
    (root / "pre/config.pbtxt").unlink()
    outside.rename(root / "pre/config.pbtxt")
    assert findings(root, {"pre": CPUS}) == ()
    monkeypatch.setattr("triton_repository_check.load.MAX_CONFIG", 8)
    assert "error TR509 spec.models[pre].config" in brief(findings(root, {"pre": CPUS}))


def test_a_file_that_cannot_be_read_keeps_its_fault(tmp_path):
    root = good(tmp_path, add("pre/config.pbtxt", "}"))
    assert [f.code for f in findings(root, {"pre": CPUS}) if f.file.startswith("pre")] == ["TR101"]


def test_the_text_is_a_config_pbtxt_with_the_same_content(tmp_path):
    root = good(tmp_path, write("pre/labels.txt", ""))
    parameter = {"string_value": 'ä "quoted"\n$$TRITON_MODEL_DIRECTORY/x'}
    repository, problems = load(root, {"pre": {**CPUS, "parameters": {"name": parameter}}})
    assert problems == ()
    (text,) = overrides.texts(repository).values()
    assert text.startswith("# spec.models of the TritonModel sets: instance_group, parameters\n")
    assert textformat.parse(text)[0] == repository.models["pre"].config
    assert "ä" in text


def item(name: str, config: dict[str, Any]) -> str:
    return "--model=" + json.dumps({"name": name, "config": config})


def tree(folder: Path) -> dict[str, str]:
    """Returns what each entry is: the target of a link, or the first line of a file."""
    paths = [p for p in sorted(folder.rglob("*")) if p.is_symlink() or not p.is_dir()]
    return {
        str(p.relative_to(folder)): str(p.readlink()) if p.is_symlink() else p.read_text().split("\n")[0] for p in paths
    }


def test_writes_a_view_of_links(tmp_path):
    root, target = good(tmp_path / "models", write("README.md", "")), tmp_path / "view"
    target.mkdir()
    arguments = [f"--view={target}", "--links-to=/behind", item("pre", CPUS), str(root)]
    expected = {
        "README.md": "/behind/README.md",
        "detect": "/behind/detect",
        "net": "/behind/net",
        "pre/1": "/behind/pre/1",
        "pre/config.pbtxt": "# spec.models of the TritonModel sets: instance_group",
    }
    for _ in range(2):  # the kubelet may run an init container again, with what the first run has written
        assert main(arguments) == 0
        assert tree(target) == expected


def test_a_link_to_a_model_has_no_settings_of_it(tmp_path):
    """As a relative link, since an absolute one would lead to the model in the view."""
    root, target = good(tmp_path / "models"), tmp_path / "view"
    target.mkdir()
    (root / "relative").symlink_to("absolute")
    (root / "absolute").symlink_to(root / "pre")
    (root / "circular").symlink_to("circular")
    (root / "outside").symlink_to("/etc")
    view.write(root, target, "/behind", {"pre": "new"})
    links = {name: str((target / name).readlink()) for name in ("relative", "absolute", "circular", "outside")}
    assert links == {
        "relative": "/behind/pre",
        "absolute": "/behind/pre",
        "circular": "/behind/circular",
        "outside": "/behind/outside",
    }


def test_a_model_with_a_wrong_setting_keeps_its_file(tmp_path):
    """`validate --with-server` also starts the server after errors."""
    repository, _ = load(good(tmp_path), {"detect": {"dynamic_batching": {}}, "pre": CPUS})
    assert overrides.texts(repository).keys() == {"pre"}


def test_every_user_can_read_a_view(tmp_path):
    root, target = good(tmp_path / "models"), tmp_path / "view"
    target.mkdir()
    before = os.umask(0o077)
    try:
        view.write(root, target, "/behind", {"pre": "new"})
    finally:
        os.umask(before)
    assert [(target / name).stat().st_mode & 0o777 for name in ("pre", "pre/config.pbtxt")] == [0o755, 0o644]


def test_writes_no_view_if_there_are_errors(tmp_path, capsys):
    root, target = good(tmp_path / "models"), tmp_path / "view"
    target.mkdir()
    wrong = item("pre", {"instance_group": [{"knd": "KIND_CPU"}]})
    assert main([f"--view={target}", "--links-to=/behind", wrong, str(root)]) == 1
    assert "spec.models[pre].config.instance_group[0].knd: error TR510" in capsys.readouterr().out
    assert tree(target) == {}


def test_says_that_a_view_cannot_be_written(tmp_path, capsys):
    """The operator shows the termination message, and a person reads it."""
    root, log, missing = good(tmp_path / "models"), tmp_path / "log", tmp_path / "missing"
    arguments = [f"--view={missing}", "--links-to=/behind", f"--termination-log={log}", item("pre", CPUS), str(root)]
    assert main(arguments) == 1
    problem = f"[Errno 2] No such file or directory: '{missing}'"
    expected = f"can't write config.pbtxt with the fields of spec.models: {problem}"
    assert log.read_text() == expected
    assert capsys.readouterr().err == expected + "\n"


def test_a_view_writes_to_no_link_of_the_repository(tmp_path):
    """Links lead to files that must stay: as config.pbtxt, as a folder, and in what an earlier run has written."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "config.pbtxt").write_text("mine")
    source, target = tmp_path / "models", tmp_path / "view"
    (source / "a").mkdir(parents=True)
    (source / "a/config.pbtxt").symlink_to(secret / "config.pbtxt")
    (source / "a/1").symlink_to(secret)
    (source / "b").symlink_to(secret)
    target.mkdir()
    (target / "a").symlink_to(secret)
    (target / "c").mkdir()
    (target / "c/d").symlink_to(secret)
    view.write(source, target, "/behind", {"a": "new"})
    assert tree(target) == {"a/1": "/behind/a/1", "a/config.pbtxt": "new", "b": "/behind/b"}
    assert tree(secret) == {"config.pbtxt": "mine"}
