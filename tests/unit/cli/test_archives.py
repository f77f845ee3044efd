"""Archives with several images, and with what isn't an image: which one the command judges, and what it says."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubectl_triton.main import main
from kubectl_triton.validate import archives, platforms

Json = dict[str, Any]
OCI, DOCKER = "application/vnd.oci.image.", "application/vnd.docker."
INDEX, MANIFEST = f"{OCI}index.v1+json", f"{OCI}manifest.v1+json"
AMD64, ARM64 = {"os": "linux", "architecture": "amd64"}, {"os": "linux", "architecture": "arm64"}
UNKNOWN = {"os": "unknown", "architecture": "unknown"}
HELM = "application/vnd.cncf.helm.config.v1+json"
PROGRAM = b"class TritonPythonModel:\n    def execute(self, requests):\n        return [None for _ in requests]\n"


def tar(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return content.getvalue()


def models(name: str) -> bytes:
    """Returns a layer with one model of this name."""
    return tar({f"models/{name}/config.pbtxt": b'backend: "python"', f"models/{name}/1/model.py": PROGRAM})


class Layout:
    """An OCI layout, as tools write it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(self, content: bytes | Json, media_type: str, **more: Any) -> Json:
        """Adds a file and returns its descriptor."""
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        digest = hashlib.sha256(text).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = text
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(text), **more}

    def image(self, platform: Json, model: str, listed: bool = True, **more: Any) -> Json:
        config = self.blob({**platform, "rootfs": {"type": "layers", "diff_ids": []}}, f"{OCI}config.v1+json")
        layer = self.blob(gzip.compress(models(model), mtime=0), f"{OCI}layer.v1.tar+gzip")
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
        return self.blob(manifest, MANIFEST, **({"platform": platform} if listed else {}), **more)

    def artifact(self, config: str, layer: str, artifact_type: str = "", **more: Any) -> Json:
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            **({"artifactType": artifact_type} if artifact_type else {}),
            "config": self.blob({}, config),
            "layers": [self.blob(b"no tar", layer)],
        }
        return self.blob(manifest, MANIFEST, **more)

    def attestation(self, image: Json) -> Json:
        """As `docker buildx build` adds it to each image."""
        notes = {"vnd.docker.reference.digest": image["digest"], "vnd.docker.reference.type": "attestation-manifest"}
        return self.artifact(f"{OCI}config.v1+json", "application/vnd.in-toto+json",
                             platform=UNKNOWN, annotations=notes)  # fmt: skip

    def index(self, *manifests: Json, **more: Any) -> Json:
        return self.blob({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}, INDEX, **more)

    def written(self, path: Path, *manifests: Json, **files: bytes) -> Path:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        path.write_bytes(tar({**self.files, "index.json": json.dumps(index).encode(), **files}))
        return path


def validate(image: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["validate", str(image), *arguments])


def judged(image: Path, *arguments: str) -> tuple[str, str | None]:
    """Returns the names of the models that the command judges, and the platform that it names."""
    result = validate(image, "--format", "json", *arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    return ",".join(document["models"]), document["platform"]


@pytest.fixture
def layout() -> Layout:
    return Layout()


@pytest.fixture
def built(tmp_path: Path, layout: Layout) -> Path:
    """As `docker buildx build --platform linux/arm64,linux/amd64 -o type=oci`: an index with attestations in it."""
    arm, amd = layout.image(ARM64, "arm"), layout.image(AMD64, "amd")
    index = layout.index(arm, amd, layout.attestation(arm), layout.attestation(amd))
    return layout.written(tmp_path / "image.tar", index)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ("amd", "linux/amd64")),
        (["--platform", "linux/amd64"], ("amd", "linux/amd64")),
        (["--platform", "linux/arm64"], ("arm", "linux/arm64")),
        (["--platform", "linux/arm64/v8"], ("arm", "linux/arm64")),
        (["--platform", "Linux/aarch64"], ("arm", "linux/arm64")),
    ],
)
def test_judges_the_image_for_the_platform(built: Path, arguments: list[str], expected: tuple[str, str]) -> None:
    assert judged(built, *arguments) == expected


def test_each_format_names_the_platform(built: Path) -> None:
    assert validate(built, "--platform", "linux/arm64").stdout.startswith(f"{built} (linux/arm64): 1 model, 0 errors")
    log = json.loads(validate(built, "--format", "sarif").stdout)
    assert log["runs"][0]["properties"] == {"platform": "linux/amd64"}


def test_a_platform_that_is_not_there_is_refused_with_those_that_are(built: Path) -> None:
    result = validate(built, "--platform", "linux/s390x")
    assert result.exit_code == 2
    assert "no image for linux/s390x, only for linux/arm64, linux/amd64: name one of these" in result.stderr


def test_without_an_image_for_amd64_several_are_refused(tmp_path: Path, layout: Layout) -> None:
    variants = [{"os": "linux", "architecture": "arm", "variant": variant} for variant in ("v6", "v7")]
    images = [layout.image(platform, f"arm{n}") for n, platform in enumerate(variants)]
    image = layout.written(tmp_path / "image.tar", *images)
    assert "only for linux/arm/v6, linux/arm: name one of these, such as --platform linux/arm/v6" in (
        validate(image).stderr
    )
    assert judged(image, "--platform", "linux/arm") == ("arm1", "linux/arm")
    assert judged(image, "--platform", "linux/arm/v6") == ("arm0", "linux/arm/v6")
    assert validate(image, "--platform", "linux/arm/v5").exit_code == 2


@pytest.mark.parametrize("listed", [True, False])
def test_the_only_image_is_judged_for_any_platform(tmp_path: Path, layout: Layout, listed: bool) -> None:
    """The index may leave out the platform, which the configuration of the image has."""
    arm = layout.image(ARM64, "arm", listed)
    image = layout.written(tmp_path / "image.tar", layout.index(arm, layout.attestation(arm)))
    assert judged(image) == ("arm", "linux/arm64")
    assert "only for linux/arm64" in validate(image, "--platform", "linux/amd64").stderr


@pytest.mark.parametrize("platform", [{"os": "windows", "architecture": "amd64"}, {"os": "linux", "architecture": "x"}])
def test_the_only_image_is_judged_whatever_its_platform_is(tmp_path: Path, layout: Layout, platform: Json) -> None:
    name = f"{platform['os']}/{platform['architecture']}"
    assert judged(layout.written(tmp_path / "image.tar", layout.image(platform, "m"))) == ("m", name)
    assert judged(saved(tmp_path / "saved.tar", ("m", platform))) == ("m", name)


def test_the_usual_platform_is_not_named(tmp_path: Path, layout: Layout) -> None:
    image = layout.written(tmp_path / "image.tar", layout.image(AMD64, "amd", listed=False))
    assert judged(image) == ("amd", None)
    assert validate(image).stdout.startswith(f"{image}: 1 model")


@pytest.mark.parametrize("variant", ["v1", ""])
def test_the_usual_variant_goes_before_others(tmp_path: Path, layout: Layout, variant: str) -> None:
    plain = layout.image({**AMD64, "variant": variant}, "plain")
    image = layout.written(tmp_path / "image.tar", layout.image({**AMD64, "variant": "v3"}, "fast"), plain)
    assert judged(image) == ("plain", "linux/amd64")
    assert judged(image, "--platform", "linux/amd64/v3") == ("fast", "linux/amd64/v3")


def test_the_same_image_under_two_names_is_one(tmp_path: Path, layout: Layout) -> None:
    images = [layout.image(AMD64, "amd", annotations={"io.containerd.image.name": f"x:{n}"}) for n in (1, 2)]
    assert judged(layout.written(tmp_path / "image.tar", *images)) == ("amd", None)


def test_two_images_for_a_platform_are_refused_with_their_names(tmp_path: Path, layout: Layout) -> None:
    images = [layout.image(AMD64, name, annotations={"io.containerd.image.name": name}) for name in ("a", "b")]
    result = validate(layout.written(tmp_path / "image.tar", *images))
    assert result.exit_code == 2
    assert "2 images for linux/amd64: a, b. Save only one of them in a file" in result.stderr


def test_shows_no_control_characters_of_the_archive(tmp_path: Path, layout: Layout) -> None:
    evil = {"os": "linux", "architecture": "\x1b[2Jevil"}
    image = layout.written(tmp_path / "image.tar", layout.image(evil, "m"), layout.image(ARM64, "arm"))
    assert "only for linux/?[2Jevil, linux/arm64" in validate(image).stderr
    names = [layout.image(AMD64, name, annotations={"io.containerd.image.name": f"\x1b{name}"}) for name in ("a", "b")]
    assert "2 images for linux/amd64: ?a, ?b" in validate(layout.written(tmp_path / "image.tar", *names)).stderr
    chart = layout.artifact("application/\x1b[2J", "text/plain")
    assert "is an artifact (application/?[2J)" in validate(layout.written(tmp_path / "image.tar", chart)).stderr


def test_an_image_that_docker_has_left_out_is_not_there(tmp_path: Path, layout: Layout) -> None:
    """`docker save` writes the whole index, and only the images that were pulled."""
    arm, amd = layout.image(ARM64, "arm"), layout.image(AMD64, "amd")
    del layout.files["blobs/" + amd["digest"].replace(":", "/")]
    image = layout.written(tmp_path / "image.tar", layout.index(arm, amd))
    assert judged(image) == ("arm", "linux/arm64")
    assert "images for linux/amd64 that the file doesn't contain: pull the image with --platform linux/amd64" in (
        validate(image, "--platform", "linux/amd64").stderr
    )


OTHERS: dict[str, tuple[tuple[str, ...], str]] = {
    "Helm chart": ((HELM, "application/vnd.cncf.helm.chart.content.v1.tar+gzip"), f"is a Helm chart ({HELM})"),
    "signature": (
        (f"{OCI}config.v1+json", "application/vnd.dev.cosign.simplesigning.v1+json"),
        "is a signature (application/vnd.dev.cosign.simplesigning.v1+json)",
    ),
    "SBOM": (
        ("application/vnd.oci.empty.v1+json", "application/spdx+json", "application/spdx+json"),
        "is an SBOM (application/spdx+json)",
    ),
    "other SBOM": (
        ("application/vnd.oci.empty.v1+json", "application/vnd.cyclonedx+json", "application/vnd.cyclonedx+json"),
        "is an SBOM (application/vnd.cyclonedx+json)",
    ),
    "other signature": (
        ("application/vnd.cncf.notary.signature", "application/jose+json"),
        "is a signature (application/vnd.cncf.notary.signature)",
    ),
    "attestation": (
        (f"{OCI}config.v1+json", "application/vnd.in-toto+json"),
        "is an attestation (application/vnd.in-toto+json)",
    ),
    "unknown artifact": (
        ("application/vnd.oci.empty.v1+json", "text/plain", "application/x.weights"),
        "is an artifact (application/x.weights)",
    ),
}


@pytest.mark.parametrize(("types", "words"), OTHERS.values(), ids=OTHERS)
def test_says_what_is_not_an_image(tmp_path: Path, layout: Layout, types: tuple[str, ...], words: str) -> None:
    result = validate(layout.written(tmp_path / "image.tar", layout.artifact(*types)))
    assert result.exit_code == 2
    assert f"image.tar: {words}, not an image: build an image with the model repository" in result.stderr


def test_an_attestation_without_its_image_is_refused(tmp_path: Path, layout: Layout) -> None:
    attestation = layout.attestation({"digest": "sha256:gone"})
    result = validate(layout.written(tmp_path / "image.tar", attestation))
    assert result.exit_code == 2
    assert "image.tar: is an attestation, not an image: build an image" in result.stderr


def test_a_platform_makes_no_image_of_a_chart(tmp_path: Path, layout: Layout) -> None:
    result = validate(layout.written(tmp_path / "image.tar", layout.artifact(HELM, "text/plain", platform=AMD64)))
    assert f"is a Helm chart ({HELM}), not an image" in result.stderr


def test_names_all_that_is_there_without_an_image(tmp_path: Path, layout: Layout) -> None:
    entries = (layout.artifact(*OTHERS["SBOM"][0]), layout.artifact(HELM, "text/plain"))
    result = validate(layout.written(tmp_path / "image.tar", *entries))
    assert f"has no image, only an SBOM (application/spdx+json), a Helm chart ({HELM}): build" in result.stderr


def test_an_image_beside_what_is_none_is_judged(tmp_path: Path, layout: Layout) -> None:
    entries = [layout.artifact(*types) for types, _ in OTHERS.values()]
    assert judged(layout.written(tmp_path / "image.tar", *entries, layout.image(AMD64, "amd"))) == ("amd", None)


def saved(path: Path, *images: tuple[str, Json | None]) -> Path:
    """As `docker save` of older versions, and podman: with manifest.json alone."""
    entries, files = [], {}
    for number, (model, platform) in enumerate(images):
        files[f"{number}.tar"] = models(model)
        files |= {f"{number}.json": json.dumps(platform).encode()} if platform else {}
        entries.append({"Config": f"{number}.json", "RepoTags": [f"{model}:1"], "Layers": [f"{number}.tar"]})
    path.write_bytes(tar({**files, "manifest.json": json.dumps(entries).encode()}))
    return path


def test_chooses_from_the_images_of_docker_save(tmp_path: Path) -> None:
    image = saved(tmp_path / "image.tar", ("arm", ARM64), ("amd", AMD64))
    assert judged(image) == ("amd", "linux/amd64")
    assert judged(image, "--platform", "linux/arm64") == ("arm", "linux/arm64")
    assert judged(saved(tmp_path / "arm.tar", ("arm", ARM64))) == ("arm", "linux/arm64")
    assert judged(saved(tmp_path / "old.tar", ("old", None))) == ("old", None)
    two = validate(saved(tmp_path / "two.tar", ("a", AMD64), ("b", AMD64)))
    assert "2 images for linux/amd64: a:1, b:1" in two.stderr
    nowhere = validate(saved(tmp_path / "nowhere.tar", ("a", None), ("b", None)))
    assert "doesn't say for which platforms its 2 images are: save only one of them" in nowhere.stderr
    nowhere = validate(saved(tmp_path / "nowhere.tar", ("a", None)), "--platform", "linux/arm64")
    assert "leave out --platform" in nowhere.stderr


def test_the_index_goes_before_dockers_list(tmp_path: Path, layout: Layout) -> None:
    """Docker writes both since version 25, and lists only the images for its own platform in the latter."""
    arm, amd = layout.image(ARM64, "arm"), layout.image(AMD64, "amd")
    layout.files["a.tar"] = models("arm")
    listed = json.dumps([{"Config": "a.json", "RepoTags": ["x:1"], "Layers": ["a.tar"]}]).encode()
    image = layout.written(tmp_path / "image.tar", layout.index(arm, amd), **{"manifest.json": listed})
    assert judged(image) == ("amd", "linux/amd64")


def test_reads_names_with_a_dot(tmp_path: Path, layout: Layout) -> None:
    """As `tar -C layout .` writes them."""
    layout.written(tmp_path / "plain.tar", layout.image(AMD64, "amd"))
    with tarfile.open(tmp_path / "plain.tar") as plain:
        files = {f"./{member.name}": plain.extractfile(member).read() for member in plain}  # type: ignore[union-attr]
    (tmp_path / "image.tar").write_bytes(tar(files))
    assert judged(tmp_path / "image.tar") == ("amd", None)


def nested(layout: Layout, levels: int) -> Json:
    entry = layout.image(AMD64, "amd")
    for _ in range(levels):
        entry = layout.index(entry)
    return entry


def test_indexes_in_indexes_are_read_to_a_depth(tmp_path: Path, layout: Layout) -> None:
    assert judged(layout.written(tmp_path / "image.tar", nested(layout, archives.MAX_INDEXES - 1))) == ("amd", None)
    result = validate(layout.written(tmp_path / "image.tar", nested(layout, archives.MAX_INDEXES)))
    assert (result.exit_code, "more than 4 indexes are nested" in result.stderr) == (2, True), result.stderr


def test_rejects_too_many_entries(tmp_path: Path, layout: Layout) -> None:
    entry = layout.image(AMD64, "amd")
    image = layout.written(tmp_path / "image.tar", *[entry] * archives.MAX_MANIFESTS)
    assert judged(image) == ("amd", None)
    image = layout.written(tmp_path / "image.tar", *[entry] * archives.MAX_MANIFESTS, entry)
    assert "more than 256 entries" in validate(image).stderr
    # An index that multiplies itself.
    inner = layout.index(*[entry] * 20)
    assert "more than 256 entries" in validate(layout.written(tmp_path / "image.tar", *[inner] * 20)).stderr


def test_rejects_manifests_that_are_too_large_together(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_DOCUMENTS", 10_000)
    manifests = [layout.blob({"layers": [], "note": str(n) + " " * 2000}, MANIFEST) for n in range(6)]
    result = validate(layout.written(tmp_path / "image.tar", *manifests))
    assert (result.exit_code, "more than 10000 bytes" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("text", ["linux", "linux/", "/amd64", "linux/amd64/v1/x", "linux amd64", "", "--privileged"])
def test_explains_an_invalid_platform(built: Path, text: str) -> None:
    result = validate(built, f"--platform={text}")
    assert (result.exit_code, "is not a platform, such as linux/amd64" in result.stderr) == (2, True), result.stderr


def test_docker_gets_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker has only the images of one platform, and creates a container of another if it may pull it."""
    commands: list[tuple[str, ...]] = []

    def docker(*arguments: str) -> str:
        commands.append(arguments)
        raise archives.ImageError("stop")

    monkeypatch.setattr("kubectl_triton.validate.images.docker", docker)
    CliRunner().invoke(main, ["validate", "registry.example.com/x:1", "--platform", "linux/arm64"])
    CliRunner().invoke(main, ["validate", "registry.example.com/x:1"])
    assert [command[:2] for command in commands] == [
        ("create", "--platform=linux/arm64"),
        ("create", "registry.example.com/x:1"),
    ]


def test_platforms_have_one_spelling() -> None:
    assert platforms.parse("linux/x86_64") == platforms.described({**AMD64, "variant": "v1"}) == platforms.DEFAULT
    assert str(platforms.parse("linux/arm/v7")) == "linux/arm"
    assert platforms.described({"os": "linux", "architecture": "a" * 100}) is None
    assert platforms.described(UNKNOWN) is platforms.described({"os": []}) is platforms.described("linux") is None
