"""`kubectl triton validate` without Docker: targets, options, formats and exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from corpus.faults import FAULTS
from corpus.good import BY_NAME, GOOD
from kubectl_triton.main import main
from kubectl_triton.trial import run as trial
from kubectl_triton.validate import budget, images, tritonserver, with_server
from triton_repository_check.check_table import CODES
from triton_repository_check.findings import Finding, Severity

ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "operator")}
FAULTY = {fault.name: fault for fault in FAULTS}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["validate", *map(str, arguments)])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return BY_NAME["detection"].write(tmp_path / "models")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return FAULTY["misspelled output in model.py"].write(tmp_path / "bad")


def test_exits_with_0_without_errors(good):
    result = run(good)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{good}: 4 models, 0 errors, 0 warnings, 0 notes\n"


def test_prints_errors_and_exits_with_1(bad):
    result = run(bad)
    assert result.exit_code == 1
    assert result.stdout.startswith("pre/1/model.py:15:")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--cpus", "0.5"], "TR505"),
        (["--shm-size", "32Mi"], "TR504"),
        (["--entrypoint", "other"], "TR501"),
        (["--load-models", "other,net"], "TR503"),
    ],
)
def test_options_set_the_expectations(tmp_path, options, code):
    root = BY_NAME["instances" if code == "TR505" else "detection"].write(tmp_path / "models")
    assert code in run(root, *options).stdout


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 0),
        (["--server-arg=--log-info=false"], 0),
        (["--server-arg=--log-info=false", "--strict"], 1),
        (["--server-arg=--cache-config=local,size=1048576", "--strict"], 0),
    ],
)
def test_strict_treats_warnings_as_errors(tmp_path, options, status):
    assert run(BY_NAME["cache"].write(tmp_path), *options).exit_code == status


@pytest.mark.parametrize(
    ("version", "reported"), [("2.51", True), ("24.10", True), ("2.52.0", False), ("25.01", False)]
)
def test_checks_fields_against_the_server_version(tmp_path, version, reported):
    root = FAULTY["field of a newer Triton version"].write(tmp_path)
    assert ("TR109" in run(root, "--server-version", version).stdout) is reported


def test_reads_the_expectations_from_a_spec(tmp_path, good):
    spec = tmp_path / "model.yaml"
    spec.write_text(
        """
kind: TritonModel
metadata: { name: detection }
spec:
  modelImage: { reference: r:1 }
  entrypoint: detection
  server: { resources: { limits: { cpu: 500m, memory: 128Mi } } }
"""
    )
    result = run(good, "--spec", spec)
    assert result.exit_code == 1
    assert [code for code in CODES if code in result.stdout] == ["TR501", "TR504"]
    # Options override the spec.
    assert run(good, "--spec", spec, "--entrypoint", "detect").exit_code == 0


def settings(folder, models, server="{}"):
    """Writes a TritonModel with these spec.models and spec.server (YAML)."""
    spec = folder / "model.yaml"
    spec.write_text(
        "{kind: TritonModel, metadata: {name: x}, spec: {modelImage: {reference: r}, entrypoint: detect, "
        f"models: {models}, server: {server}}}}}"
    )
    return spec


def test_judges_the_arguments_of_the_spec_and_of_the_command(tmp_path, good):
    spec = settings(tmp_path, "[]", '{args: ["--log-info=false", "--http-thread-count=ten"]}')
    result = run(good, "--spec", spec, "--server-arg=--pinned-memory-pool-byte-size=256Mi")
    assert result.exit_code == 1
    assert "spec.server.args[1]: error TR519: 'ten' for --http-thread-count is not a whole number" in result.stdout
    assert "--server-arg: warning TR520: Triton reads only 256 of '256Mi'" in result.stdout
    [sent] = json.loads(run(good, "--spec", spec, "--format", "sarif").stdout)["runs"]
    assert [(r["ruleId"], r["message"]["text"].partition(":")[0]) for r in sent["results"]] == [
        ("TR519", "spec.server.args[1]")
    ]


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({}, True),
        ({"args": ["--backend-config=python,thread-pool-size=1"]}, False),
        ({"args": ["--log-info=false"], "env": [{"name": "OPENBLAS_NUM_THREADS", "value": "1"}]}, True),
        ({"args": ["--backend-config=python,thread-pool-size=1"], "env": [{"name": "OMP_NUM_THREADS", "value": "32"}]},
         True),
    ],
)  # fmt: skip
def test_counts_the_threads_of_the_instances_that_the_spec_asks_for(tmp_path, good, server, told):
    groups = [{"count": 30, "kind": "KIND_CPU"}]
    server = {**server, "sharedMemory": "1Gi"}
    spec = settings(tmp_path, json.dumps([{"name": "post", "config": {"instance_group": groups}}]), json.dumps(server))
    result = run(good, "--spec", spec)
    assert result.exit_code == 0
    assert ("note TR516" in result.stdout) is told
    assert ("for each further core" in result.stdout) is (told and "env" not in server)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"instance_group": [{"kind": "KIND_CPU"}]}, ""),
        ({"instance_group": [{"knd": 1}]}, "spec.models[post].config.instance_group[0].knd: error TR510: "),
        ({"input": []}, "input can't be set here, but only in config.pbtxt"),
        ({"max_batch_size": -1}, "spec.models[post].config.max_batch_size: error TR108: "),
    ],
)
def test_judges_what_the_servers_will_run(tmp_path, good, config, words):
    spec = settings(tmp_path, json.dumps([{"name": "post", "config": config}]))
    result = run(good, "--spec", spec)
    assert (result.exit_code == 0) is (not words)
    assert words in result.output


def test_a_date_in_the_settings_is_text_as_for_kubectl(tmp_path, good):
    spec = settings(tmp_path, "[{name: post, config: {parameters: {day: {string_value: 2026-01-02}}}}]")
    assert run(good, "--spec", spec).exit_code == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("server: {args: [1]}", 'spec.server.args[0]: is the number 1, but must be text: quote it: "1"'),
        ('models: [{name: post, config: {max_batch_size: "1"}}]', "spec.models[0].config.max_batch_size: is the text"),
        ('replicas: "2"', 'spec.replicas: is the text "2", but must be a whole number: remove the quotes: 2'),
        ("podTemplate: {spec: {containers: [{name: a, env: [{name: A, value: 2}]}]}}",
         'spec.podTemplate.spec.containers[0].env[0].value: is the number 2, but must be text: quote it: "2"'),
        ("autoscaling: {min: 3, max: 2}", "spec.autoscaling: min is above max: lower min or raise max"),
        ("replicas: 2, autoscaling: {min: 1, max: 2}", "spec: replicas and autoscaling exclude each other: remove"),
    ],
)  # fmt: skip
def test_a_value_that_the_api_server_refuses_is_told(tmp_path, good, fields, words):
    spec = tmp_path / "model.yaml"
    spec.write_text(f"{{kind: TritonModel, metadata: {{name: x}}, spec: {{modelImage: {{reference: r}}, {fields}}}}}")
    result = run(good, "--spec", spec)
    assert (result.exit_code, words in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        *((word, "true") for word in ("yes", "on", "y", "true", "Yes")),
        *((word, "false") for word in ("no", "off", "n", "false", "Off")),
        *(("1e3", "the number 1e3"), ("017", "the number 15"), ("1_000", "the number 1000")),
    ],
)
def test_a_word_without_quotes_is_what_kubectl_reads(tmp_path, good, word, meaning):
    spec = settings(tmp_path, "[]", f"{{env: [{{name: A, value: {word}}}]}}")
    result = run(good, "--spec", spec)
    assert (result.exit_code, f"spec.server.env[0].value: is {meaning}, but must be text" in result.stderr) == (2, True)
    assert run(good, "--spec", settings(tmp_path, "[]", f'{{env: [{{name: A, value: "{word}"}}]}}')).exit_code == 0


def test_a_null_in_the_settings_is_only_told(tmp_path, good):
    result = run(good, "--spec", settings(tmp_path, "[{name: post, config: {max_batch_size: null}}]"))
    assert result.exit_code == 0
    assert "spec.models.post.config.max_batch_size: null changes nothing" in result.stderr
    assert result.stdout == run(good).stdout


def test_the_repository_check_tells_unknown_settings_alone(tmp_path, good):
    result = run(good, "--spec", settings(tmp_path, "[{name: post, config: {instance_group: [{knd: 1}]}}]"))
    assert "error TR510" in result.stdout
    assert result.stderr == ""


def test_keys_in_the_settings_may_be_numbers_as_for_kubectl(tmp_path, good):
    spec = settings(tmp_path, "[{name: post, config: {parameters: {1: {string_value: a}, b: {string_value: c}}}}]")
    assert run(good, "--spec", spec).exit_code == 0


def test_rejects_two_items_for_a_model_as_the_api_server_does(tmp_path, good):
    spec = settings(tmp_path, "[{name: post, config: {max_batch_size: 1}}, {name: post, config: {}}]")
    result = run(good, "--spec", spec)
    assert result.exit_code == 2
    assert "spec.models: has two items for 'post'" in result.output


def test_a_field_of_the_spec_has_no_file_in_sarif(tmp_path, good):
    spec = settings(tmp_path, "[{name: post, config: {max_batch_size: -1}}]")
    log = json.loads(run(good, "--spec", spec, "--format", "sarif").stdout)
    place, text = next(
        (result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], result["message"]["text"])
        for result in log["runs"][0]["results"]
        if result["ruleId"] == "TR108"
    )
    assert place == "./"
    assert text.startswith("spec.models[post].config.max_batch_size: max_batch_size is below 0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a directory"),
        (("x", "--server-version", "new"), "neither a server version"),
        (("x", "--shm-size", "much"), "not a Kubernetes quantity"),
    ],
)
def test_rejects_invalid_arguments(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_says_that_a_file_is_not_an_image(tmp_path):
    (tmp_path / "config.pbtxt").write_text('backend: "python"\n')
    result = run(tmp_path / "config.pbtxt")
    assert (result.exit_code, "not an image from docker save" in result.output) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [["--strct"], ["--format", "xml"], ["--cpus"], ["--spec", "gone.yaml"], ["another"], ["--seconds", "0"]],
)
def test_checks_nothing_with_a_wrong_argument(good, arguments):
    result = run(good, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


def test_reports_all_faults_at_once(good):
    """Each with its file and line."""
    for number, name in enumerate(("pre", "post"), 1):
        config = good / name / "config.pbtxt"
        config.write_text("# a comment\n" * number + "knd: 1\n" + config.read_text())
    source = good / "pre/1/model.py"
    source.write_text("def f(:\n" + source.read_text())
    result = run(good)
    errors = [line.partition(": error ")[0] for line in result.stdout.splitlines() if ": error TR" in line]
    assert {"pre/config.pbtxt:2:1", "post/config.pbtxt:3:1"} < set(errors)
    assert any(place.startswith("pre/1/model.py:1:") for place in errors)
    assert result.exit_code == 1


def test_a_note_is_no_error_for_strict(tmp_path, good):
    groups = [{"count": 30, "kind": "KIND_CPU"}]
    models = json.dumps([{"name": "post", "config": {"instance_group": groups}}])
    result = run(good, "--spec", settings(tmp_path, models, "{sharedMemory: 1Gi}"), "--strict")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        f"{good}: 4 models, 0 errors, 0 warnings, 1 note",
    )


def test_prints_json(bad):
    document = json.loads(run(bad, "--format", "json").stdout)
    assert (document["ok"], document["counts"]["error"]) == (False, 1)
    assert document["models"] == ["detect", "net", "post", "pre"]
    (finding,) = document["findings"]
    assert (finding["code"], finding["file"], finding["line"]) == ("TR306", "pre/1/model.py", 15)


def test_json_has_these_keys_and_no_others(bad):
    document = json.loads(run(bad, "--format", "json").stdout)
    assert list(document) == ["target", "platform", "ok", "models", "counts", "findings"]
    assert document["counts"] == {"error": 1, "warning": 0, "note": 0}
    assert document["platform"] is None
    (finding,) = document["findings"]
    assert list(finding) == ["code", "severity", "file", "line", "column", "message", "remedy"]
    line = (bad / finding["file"]).read_text().splitlines()[finding["line"] - 1]
    assert line[finding["column"] - 1 :].startswith('"SHAPE"')
    assert finding["severity"] == "error"
    assert str(bad) not in "".join((finding["file"], finding["message"], finding["remedy"]))


def test_json_names_fields_and_options_and_has_null_for_no_place(tmp_path):
    root = FAULTY["no version directory"].write(tmp_path / "models")
    args = '{args: ["--http-thread-count=ten"]}'
    spec = settings(tmp_path, f"[{{name: {next(root.iterdir()).name}, config: {{max_batch_size: -1}}}}]", args)
    result = run(root, "--spec", spec, "--server-arg=--pinned-memory-pool-byte-size=256Mi", "--format", "json")
    places = {finding["code"]: finding for finding in json.loads(result.stdout)["findings"]}
    files = {code: places[code]["file"] for code in ("TR108", "TR201", "TR519", "TR520")}
    assert files["TR108"].startswith("spec.models[")
    assert (files["TR519"], files["TR520"]) == ("spec.server.args[0]", "--server-arg")
    assert {(finding["line"], finding["column"]) for code, finding in places.items() if code in files} == {(None, None)}
    assert (root / files["TR201"]).is_dir()


@pytest.mark.parametrize(
    "name",
    ["misspelled output in model.py", "no version directory", "misspelled entrypoint", "value not in UTF-8"],
)
def test_prints_valid_sarif(tmp_path, name):
    """Checks the fields, types, enums and minima that the schema of SARIF 2.1.0 requires."""
    fault = FAULTY[name]
    root = fault.write(tmp_path)
    log = json.loads(run(root, "--format", "sarif", "--entrypoint", fault.expected.entrypoint).stdout)
    assert log["version"] == "2.1.0"
    assert set(log) == {"$schema", "version", "runs"}
    (sent,) = log["runs"]
    assert sent["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    driver = sent["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    assert sent["results"]
    for result in sent["results"]:
        assert result["ruleId"] == ids[result["ruleIndex"]]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["artifactLocation"]["uri"]
        assert place["artifactLocation"]["uriBaseId"] == "REPOSITORY"
        assert " " not in place["artifactLocation"]["uri"]
        assert all(value >= 1 for value in place.get("region", {"startLine": 1}).values())


def test_sarif_of_a_good_repository_has_no_results(good):
    (sent,) = json.loads(run(good, "--format", "sarif").stdout)["runs"]
    assert sent["results"] == sent["tool"]["driver"]["rules"] == []


class TestTarFiles:
    @staticmethod
    def layer(files: dict[str, bytes]) -> bytes:
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return held.getvalue()

    def archive(self, path: Path, files: dict[str, bytes]) -> Path:
        with tarfile.open(path, "w") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return path

    def files(self, root: Path) -> dict[str, bytes]:
        return {f"models/{p.relative_to(root)}": p.read_bytes() for p in root.rglob("*") if p.is_file()}

    def docker(self, path: Path, *layers: dict[str, bytes]) -> Path:
        manifest = [{"Layers": [f"{n}.tar" for n in range(len(layers))]}]
        blobs = {f"{n}.tar": self.layer(files) for n, files in enumerate(layers)}
        return self.archive(path, {"manifest.json": json.dumps(manifest).encode(), **blobs})

    def oci(self, path: Path, *layers: dict[str, bytes]) -> Path:
        digests = [f"sha256:{n}" for n in range(len(layers))]
        manifest = {"layers": [{"digest": digest} for digest in digests]}
        return self.archive(
            path,
            {
                "index.json": json.dumps({"manifests": [{"digest": "sha256:m"}]}).encode(),
                "blobs/sha256/m": json.dumps(manifest).encode(),
                **{f"blobs/sha256/{n}": self.layer(files) for n, files in enumerate(layers)},
            },
        )

    @pytest.mark.parametrize("kind", ["docker", "oci"])
    def test_applies_layers_in_order(self, tmp_path, good, bad, kind):
        """A later layer deletes, replaces and adds files."""
        first = {**self.files(bad), "models/old/config.pbtxt": b"x", "etc/passwd": b"root"}
        good_files = self.files(good)
        second = {"models/.wh.old": b"", "models/pre/1/model.py": good_files["models/pre/1/model.py"]}
        image = getattr(self, kind)(tmp_path / "image.tar", first, second)
        assert run(image).exit_code == 0, run(image).output
        with images.repository(str(image), "/models") as store:
            assert sorted(store.names("")) == ["detect", "net", "post", "pre"]
        with images.repository(str(image), "/") as store:
            assert sorted(store.names("")) == ["etc", "models"]

    def test_applies_opaque_whiteouts(self, tmp_path, good):
        first = {"models/pre/9/model.py": b"old"}
        image = self.docker(tmp_path / "image.tar", first, {"models/pre/.wh..wh..opq": b"", **self.files(good)})
        assert run(image).exit_code == 0

    def test_reports_an_image_without_models_at_the_path(self, tmp_path, good):
        image = self.docker(tmp_path / "image.tar", self.files(good))
        result = run(image, "--path", "/other")
        assert (result.exit_code, "no models at /other" in result.output) == (2, True)

    @pytest.mark.parametrize("content", [{"a": b"b"}, {"manifest.json": b"[]"}, {"manifest.json": b"{"}])
    def test_rejects_an_archive_that_is_not_an_image(self, tmp_path, content):
        result = run(self.archive(tmp_path / "image.tar", content))
        assert result.exit_code == 2
        assert "Traceback" not in result.output

    def test_rejects_a_file_that_is_not_an_archive(self, tmp_path):
        (tmp_path / "image.tar").write_text("text")
        assert run(tmp_path / "image.tar").exit_code == 2


UNCHECKED = {
    "an empty name": ([""], "is empty"),
    "a name that is too long": (["n" * 5000], "can't be read"),
    "a null character in the name": (["a\0b"], "can't be read"),
    "a release that doesn't exist": ([".", "--server-version", "24.13"], "24.13"),
    "a release before the first": ([".", "--server-version", "19.12"], "19.12"),
    "cores below 0": ([".", "--cpus", "-1"], "not a number above 0"),
    "no cores": ([".", "--cpus", "0"], "not a number above 0"),
    "cores that are not a number": ([".", "--cpus", "nan"], "not a number above 0"),
    "GPUs below 0": ([".", "--gpus", "-1"], "-1"),
}


@pytest.mark.parametrize(("arguments", "words"), UNCHECKED.values(), ids=UNCHECKED)
def test_explains_invalid_arguments(arguments, words):
    result = run(*arguments)
    assert (result.exit_code, words in result.output) == (2, True), result.output


SPECS = {
    "not UTF-8": (b"kind: TritonModel\nmetadata: { name: \xff }\n", "utf-8"),
    "invalid YAML": (b"a: [", "spec.yaml"),
    **{
        f"a tag that doesn't fit: {value}": (f"kind: TritonModel\na: {value}\n".encode(), "spec.yaml")
        for value in (
            "!!map x",
            "!!map [x]",
            "!!bool x",
            "!!bool [x]",
            "!!int x",
            "!!int [x]",
            "!!float x",
            "!!set {x}",
            "!!binary eA==",
            "{[x]: x}",
            "{~: x}",
        )
    },
    "no JSON": (b"kind: TritonModel\na: .inf\n", "no number in JSON: quote it"),
    "deeply nested": (b"[" * 20_000, "nested too deeply"),
    "no TritonModel": (b"kind: Pod\n", "contains no TritonModel"),
    "TritonModel of another API group": (b"apiVersion: example.com/v1\nkind: TritonModel\n", "example.com/v1"),
}


@pytest.mark.parametrize(("text", "words"), SPECS.values(), ids=SPECS)
def test_explains_an_invalid_spec(tmp_path, good, text, words):
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(text)
    result = run(good, "--spec", spec)
    assert (result.exit_code, words in result.output) == (2, True), result.output
    assert isinstance(result.exception, SystemExit)


def test_reports_an_unreadable_directory(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir(mode=0o000)
    command = [sys.executable, "-c", "from kubectl_triton.main import main; main()", "validate", folder]
    if os.geteuid() == 0:  # Root can read all files only by its capabilities. Another user can't read root's clone.
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=ENV)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False), result.stderr
    assert "Permission denied" in result.stderr, result.stderr


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_reports_a_full_disk(bad, form):
    code = "from kubectl_triton.main import main; main()"
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-c", code, "validate", bad, "--format", form],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=ENV,
        )  # fmt: skip
    assert result.returncode == 2
    assert "can't write the findings: No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_accepts_a_path_that_is_not_utf8(tmp_path, form):
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/mod\xff"))
    BY_NAME["detection"].write(place)
    result = run(place, "--format", form)
    assert result.exit_code == 0, result.exception
    if form == "json":
        assert json.loads(result.stdout)["target"].endswith("/mod?")


def test_prefixes_sarif_paths_with_the_base(bad):
    log = json.loads(run(bad, "--format", "sarif", "--base", "deploy/models/").stdout)
    (location,) = log["runs"][0]["results"][0]["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": "deploy/models/pre/1/model.py"}


@pytest.mark.parametrize("options", [[], ["--with-server=cluster"]])
def test_reports_missing_docker(monkeypatch, options):
    monkeypatch.setenv("PATH", "")
    result = run("registry.example.com/models:1", *options)
    assert result.exit_code == 2
    assert "neither a directory, nor a file, nor an image: docker can't be run" in result.output


def test_accepts_the_good_repositories_of_the_corpus(tmp_path):
    """Runs the command without options about the pod."""
    for case in GOOD:
        assert run(case.write(tmp_path / case.name)).exit_code == 0


def test_the_image_of_a_spec_is_no_directory_of_this_machine(tmp_path, monkeypatch):
    """A reference such as `detection` would be checked as the user's own directory of that name."""
    BY_NAME["detection"].write(tmp_path / "detection")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "apiVersion: tritonoperator.io/v1alpha1\nkind: TritonModel\nmetadata: {name: a}\n"
        "spec: {modelImage: {reference: detection}}\n"
    )
    assert run("detection").exit_code == 0
    result = run("--spec", spec)
    assert result.exit_code == 2
    assert "docker can't be run" in result.output


@pytest.mark.parametrize("arguments", [["--", "--privileged"], ["--with-server", "--server-image=--privileged", "."]])
def test_the_name_of_an_image_is_no_option_of_docker(good, monkeypatch, arguments):
    monkeypatch.chdir(good)
    result = run(*arguments)
    assert result.exit_code == 2
    assert "it begins with a hyphen, as an option of docker does" in result.output


@pytest.mark.parametrize("form", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merge keys"])
def test_aliases_in_a_spec_do_not_multiply(form, tmp_path):
    levels = "".join(f"a{n}: &a{n} {form.format(', '.join([f'*a{n - 1}'] * 10))}\n" for n in range(1, 12))
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"kind: TritonModel\na0: &a0 {{k: 1}}\n{levels}")
    assert "with its aliases it has more than 100,000 values" in run("--spec", spec, tmp_path).output
    spec.write_text("kind: TritonModel\na: &a [*a]\n")
    assert "nested too deeply" in run("--spec", spec, tmp_path).output


def test_says_that_the_cpu_time_is_used_up(monkeypatch, tmp_path):
    @contextlib.contextmanager
    def limited():
        raise budget.BudgetError("not finished after 300 s of CPU time")
        yield

    monkeypatch.setattr(budget, "limited", limited)
    result = run(tmp_path)
    assert (result.exit_code, "not finished after 300 s of CPU time" in result.output) == (2, True)


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_without_a_server_no_code_of_the_models_runs(tmp_path, good, form):
    for program in good.rglob("*.py"):
        program.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + program.read_text())
    assert run(good, "--format", form).exit_code == 0
    assert not (tmp_path / "ran").exists()


FAILURE = Finding(
    "TR904", Severity.ERROR, "pre/1/model.py", 7, None, "each request (zeros): fails", "correct the model"
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Makes --with-server find a server that is ready, and each request fail. Returns what it gets: Run, Plan."""
    told: list[Any] = []

    @contextlib.contextmanager
    def started(_root: Path, _expected: Any, run: with_server.Run, _configs: Any) -> Iterator[tritonserver.Start]:
        told.append(run)
        yield tritonserver.Start(True, False, (), "", "127.0.0.1:8000", "", "127.0.0.1:8001")

    def requests(_address: str, plan: trial.Plan, say: trial.Say) -> list[Finding]:
        told.append(plan)
        say("sends requests to detect")
        return [FAILURE]

    monkeypatch.setattr(with_server, "_started", started)
    monkeypatch.setattr(trial, "run", requests)
    return told


def test_the_server_gets_the_options_of_the_command(good, served):
    assert run(good, "--with-server").exit_code == 1
    (start, plan) = served
    assert (start.image, start.seconds) == (tritonserver.IMAGE, 120)
    assert (plan.seconds, plan.load_seconds, plan.each_step) == (20, 120, False)
    assert plan.models == ["detect", "net", "post", "pre"]
    options = "--server-image=other:1", "--seconds=9", "--request-seconds=7", "--each-step"
    assert run(good, "--with-server", *options).exit_code == 1
    (start, plan) = served[2:]
    assert (start.image, start.seconds) == ("other:1", 9)
    assert (plan.seconds, plan.load_seconds, plan.each_step) == (7, 9, True)


def test_the_image_of_the_spec_is_that_of_the_server(tmp_path, good, served):
    run(good, "--with-server", "--spec", settings(tmp_path, "[]", "{image: mine:2}"))
    assert served[0].image == "mine:2"


@pytest.mark.parametrize(
    ("prefix", "options", "model"),
    [("", [], ""), ("", ["--entrypoint=detect"], "detect"), ("pre=", ["--entrypoint=detect"], "pre")],
)
def test_a_file_with_inputs_is_for_its_model_or_the_entrypoint(tmp_path, good, served, prefix, options, model):
    values = tmp_path / "in.json"
    values.write_text('{"data": []}')
    run(good, "--with-server", f"--input-data={prefix}{values}", *options)
    assert served[1].files == {model: (str(values), b'{"data": []}')}


def test_a_file_with_inputs_that_is_not_there_is_told_before_a_server_starts(good, served):
    result = run(good, "--with-server", "--input-data=none.json")
    assert (result.exit_code, served) == (2, [])
    assert "--input-data: none.json can't be read: No such file or directory" in result.output


def test_the_health_request_of_the_spec_and_each_health_json_are_sent(tmp_path, good, served):
    for path in ("pre/health.json", "net/health.json", "net/other.json"):
        (good / path).write_text(path)
    run(good, "--with-server")
    assert served[1].health == {
        name: (f"{name}/health.json", f"{name}/health.json".encode()) for name in ("pre", "net")
    }
    spec = tmp_path / "model.yaml"
    spec.write_text(
        "{kind: TritonModel, metadata: {name: x}, spec: {modelImage: {reference: r}, entrypoint: net, "
        "healthRequest: {file: net/other.json}}}"
    )
    run(good, "--with-server", "--spec", spec)
    assert served[3].health["net"] == ("net/other.json", b"net/other.json")
    assert served[3].health["pre"] == ("pre/health.json", b"pre/health.json")


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_findings_of_the_server_are_as_the_others_and_progress_is_no_output(good, served, form):
    result = run(good, "--with-server", "--format", form)
    assert result.exit_code == 1
    assert result.stderr == "sends requests to detect\n"
    if form == "text":
        assert result.stdout == f"{FAILURE}\n{good}: 4 models, 1 error, 0 warnings, 0 notes\n"
    elif form == "json":
        assert [finding["code"] for finding in json.loads(result.stdout)["findings"]] == ["TR904"]
    else:
        (sent,) = json.loads(result.stdout)["runs"]
        assert sent["tool"]["driver"]["rules"] == [
            {"id": "TR904", "shortDescription": {"text": with_server.CODES["TR904"]}}
        ]
        assert sent["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 7}
