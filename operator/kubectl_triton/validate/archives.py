"""Finds the images in an archive from `docker save` or an OCI tool, and chooses one by its platform."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from triton_repository_check.text import one_line

from . import platforms
from .platforms import Platform

MAX_DOCUMENT = 16 * 2**20
"""Maximum size of a manifest in bytes. Registries accept 4 MiB."""
MAX_DOCUMENTS = 4 * MAX_DOCUMENT
"""Maximum size of all manifests that are read, in bytes."""
MAX_INDEXES = 4
"""Maximum number of nested indexes. Usually there are one or two."""
MAX_MANIFESTS = 256
"""Maximum number of entries of all indexes. An image for all platforms of Docker has 20."""
MAX_PARTS = 10_000
"""Maximum number of entries of a file with an image: for each layer one or, in older versions of Docker, four."""
MAX_LAYERS = 1024
"""Maximum number of layers. Docker creates at most 127."""

_ATTESTATION = ("vnd.docker.reference.type", "attestation-manifest")
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_LAYERS = ("application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs.")
_NAMES = {
    "application/vnd.cncf.helm.config.v1+json": "a Helm chart",
    "application/vnd.dev.cosign.simplesigning.v1+json": "a signature",
    "application/vnd.cncf.notary.signature": "a signature",
    "application/vnd.in-toto+json": "an attestation",
    "application/spdx+json": "an SBOM",
    "text/spdx+json": "an SBOM",
    "text/spdx": "an SBOM",
    "application/vnd.cyclonedx+json": "an SBOM",
    "application/vnd.cyclonedx+xml": "an SBOM",
    "application/vnd.syft+json": "an SBOM",
}
"""What is in registries beside images, by its type."""
_SHOWN = 10
"""Maximum number of names in a message."""
_LENGTH = 200
"""Maximum length of a name in a message."""


class ImageError(ValueError):
    """The image doesn't contain the repository, or can't be read."""


@dataclass(frozen=True)
class Image:
    """An image in an archive.

    - `platform`: None if the archive doesn't say it.
    - `name`: its name or digest, for messages; empty if it has none.
    - `manifest`: the file with its manifest; empty if `layers` is known from Docker's manifest.json.
    - `layers`: the files with the layers, lowest first.
    """

    platform: Platform | None
    name: str
    manifest: str = ""
    layers: tuple[str, ...] = ()


class Content(NamedTuple):
    """What an archive has: images, images whose content is left out, and the names of what isn't an image."""

    images: Sequence[Image]
    absent: Sequence[Image] = ()
    others: Sequence[str] = ()


def choose(content: Content, platform: Platform | None) -> Image:
    """Returns the image for `platform`; without it, the one for linux/amd64, or else the only one.

    Raises ImageError, which names the platforms that are there.
    """
    images = content.images
    if not images and not content.absent:
        raise ImageError(_no_image(content.others))
    target = platform or platforms.DEFAULT
    fitting = _of_platform(images, target)
    if not fitting and platform is None and len(images) == 1:
        fitting = images
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(one_line(image.name[:_LENGTH]) for image in fitting[:_SHOWN])
        raise ImageError(f"the file has {len(fitting)} images for {target}: {names}. Save only one of them in a file")
    raise ImageError(_no_platform(content, target))


def _no_platform(content: Content, platform: Platform) -> str:
    if _of_platform(content.absent, platform) or not content.images:
        listed = ", ".join(platform_names(content.absent)[:_SHOWN]) or "other platforms"
        return (
            f"the index of the file names images for {listed} that the file doesn't contain: pull the image with "
            f"--platform {platform}, and save it again"
        )
    present = platform_names(content.images)
    if not present:
        do = "leave out --platform" if len(content.images) == 1 else "save only one of them in a file"
        return f"the file doesn't say for which platforms its {len(content.images)} images are: {do}"
    return (
        f"the file has no image for {platform}, only for {', '.join(present[:_SHOWN])}: name one of these, such as "
        f"--platform {present[0]}, or build the image for {platform}, too"
    )


def platform_names(images: Sequence[Image]) -> list[str]:
    """Returns the platforms of the images, each once, in their order."""
    return list(dict.fromkeys(one_line(str(image.platform)) for image in images if image.platform))


def _of_platform(images: Sequence[Image], platform: Platform) -> Sequence[Image]:
    """Returns the images for the platform. Without a variant, another than the usual one fits if it has no rival."""
    same = [image for image in images if image.platform == platform]
    if same or platform.variant:
        return same
    return [image for image in images if image.platform and image.platform[:2] == platform[:2]]


def _no_image(others: Sequence[str]) -> str:
    if not others:
        return "the file contains no manifest of an image"
    do = "build an image with the model repository, as with COPY in a Dockerfile, and save that"
    kinds = list(dict.fromkeys(others))
    if len(kinds) == 1:
        return f"is {kinds[0]}, not an image: {do}"
    return f"has no image, only {', '.join(kinds[:_SHOWN])}: {do}"


class Archive:
    """The documents of an archive."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        """Reads the headers. Raises ImageError if there are too many, and tarfile.TarError."""
        self._archive = archive
        self._members = dict[str, tarfile.TarInfo]()
        self._room = MAX_DOCUMENTS
        for count, member in enumerate(archive):
            self._members[member.name.removeprefix("./")] = member
            if count == MAX_PARTS:
                raise ImageError(f"not an image: the file has more than {MAX_PARTS} entries")

    def open(self, name: str) -> IO[bytes]:
        """Returns the content of a file. Raises ImageError if there is none."""
        member = self._members.get(name)
        blob = self._archive.extractfile(member) if member else None
        if blob is None:
            raise ImageError(f"{one_line(name)} is not found in the file")
        return blob

    def content(self) -> Content:
        """Returns what Docker's manifest.json and OCI's index.json name. Raises ImageError."""
        if "index.json" in self._members:
            content = self._indexed()
            # Docker writes both since version 25. Only the index has the platforms.
            if content.images or "manifest.json" not in self._members:
                return content
        if "manifest.json" not in self._members:
            raise ImageError("not an image: the file is neither from docker save nor an OCI archive")
        return Content([self._from_docker(entry) for entry in _some(self.document("manifest.json"))])

    def layers(self, image: Image) -> list[str]:
        """Returns the files with the layers, lowest first. Raises ImageError."""
        names = list(image.layers)
        if image.manifest:
            manifest = self.document(image.manifest)
            if not isinstance(manifest, dict) or "layers" not in manifest:
                raise ImageError("the file contains no manifest")
            if other := _other(manifest):
                raise ImageError(_no_image([other]))
            names = [_blob(layer["digest"]) for layer in manifest["layers"]]
        if len(names) > MAX_LAYERS:
            raise ImageError(f"the image has {len(names)} layers, but at most {MAX_LAYERS} are supported")
        return names

    def document(self, name: str) -> Any:
        """Returns the JSON in the file. Raises ImageError if it is too large or isn't there."""
        text = self.open(name).read(MAX_DOCUMENT + 1)
        if len(text) > MAX_DOCUMENT:
            raise ImageError(f"{one_line(name)} is larger than {MAX_DOCUMENT} bytes")
        self._room -= len(text)
        if self._room < 0:
            raise ImageError(f"the manifests of the file have more than {MAX_DOCUMENTS} bytes")
        return json.loads(text)

    def _from_docker(self, entry: Mapping[str, Any]) -> Image:
        """Returns the image of one entry of manifest.json."""
        config = entry.get("Config")
        tags = entry.get("RepoTags") or []
        platform = self._configured(config) if isinstance(config, str) else None
        return Image(platform, str(tags[0] if tags else config or ""), layers=tuple(entry["Layers"]))

    def _configured(self, name: str) -> Platform | None:
        """Returns the platform in the configuration of an image, if the archive has it."""
        return platforms.described(self.document(name)) if name in self._members else None

    def _indexed(self) -> Content:
        images: dict[str, Image] = {}
        absent: dict[str, Image] = {}
        others: list[str] = []
        for entry in self._entries():
            name = _blob(entry["digest"])
            platform = platforms.described(entry.get("platform"))
            image = Image(platform, _label(entry), name)
            if _ATTESTATION in (entry.get("annotations") or {}).items():
                others.append("an attestation")
                continue
            if name not in self._members:
                absent[name] = image
                continue
            if platform is None:
                manifest = self.document(name)
                if other := _other(manifest):
                    others.append(other)
                    continue
                config = manifest.get("config") or {}
                image = Image(self._configured(_blob(config.get("digest", ""))), image.name, name)
            images.setdefault(name, image)
        return Content([*images.values()], [*absent.values()], others)

    def _entries(self) -> Iterator[Mapping[str, Any]]:
        """Yields the entries of index.json and of the indexes in it that aren't indexes themselves."""
        todo: list[tuple[str, int]] = [("index.json", 1)]
        count = 0
        while todo:
            name, depth = todo.pop(0)
            if depth > MAX_INDEXES:
                raise ImageError(f"the file contains no manifest: more than {MAX_INDEXES} indexes are nested")
            for entry in _some(self.document(name).get("manifests")):
                count += 1
                if count > MAX_MANIFESTS:
                    raise ImageError(f"the indexes of the file have more than {MAX_MANIFESTS} entries")
                blob = _blob(entry["digest"])
                if blob in self._members and self._is_index(entry, blob):
                    todo.append((blob, depth + 1))
                else:
                    yield entry

    def _is_index(self, entry: Mapping[str, Any], blob: str) -> bool:
        kind = entry.get("mediaType")
        if kind in _INDEXES:
            return True
        # Without its type, the content says what it is.
        return kind is None and entry.get("platform") is None and "manifests" in (self.document(blob) or {})


def _some(entries: Any) -> Sequence[Mapping[str, Any]]:
    """Returns a list of objects. Raises ImageError if it isn't one, or is empty."""
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ImageError("the file contains no manifest")
    return entries


def _other(manifest: Any) -> str:
    """Returns what a manifest is that isn't one of an image, with its type; empty for one of an image."""
    if not isinstance(manifest, dict) or "layers" not in manifest:
        return "a document without layers"
    config = (manifest.get("config") or {}).get("mediaType")
    types = [str(layer["mediaType"]) for layer in manifest["layers"] if layer.get("mediaType")]
    unusual = [kind for kind in types if not kind.startswith(_LAYERS)]
    if config in (None, *_CONFIGS) and not unusual:
        return ""
    kinds = [str(kind) for kind in (manifest.get("artifactType"), config) if kind and kind not in _CONFIGS] + unusual
    kind = next((kind for kind in kinds if kind in _NAMES), kinds[0])
    return f"{_NAMES.get(kind, 'an artifact')} ({one_line(kind[:_LENGTH])})"


def _label(entry: Mapping[str, Any]) -> str:
    """Returns the name of an entry of an index, or its digest."""
    notes = entry.get("annotations") or {}
    name = notes.get("io.containerd.image.name") or notes.get("org.opencontainers.image.ref.name")
    return str(name or entry["digest"])


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/", 1)
