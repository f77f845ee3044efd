"""Malicious images: the command reads and writes nothing outside of the image, and reports an error."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from click.testing import CliRunner, Result

from kubectl_triton.main import main
from kubectl_triton.validate import archives, images, unpack
from triton_repository_check.files import FileKind, Files, join


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in fields.items():
        setattr(member, key, value)
    return member, content


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=kind, linkname=to)


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE, mode=0o755)


def packed(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT, mode: str = "w:gz") -> bytes:
    if mode == "w:zst":
        return zstandard.compress(packed(*entries, form=form, mode="w"))
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode, format=form) as archive:
        for member, content in entries:
            archive.addfile(member, io.BytesIO(content))
    return held.getvalue()


def written(path: Path, *layers: bytes) -> Path:
    manifest = json.dumps([{"Layers": [f"{n}.tar" for n in range(len(layers))]}]).encode()
    blobs = [entry(f"{n}.tar", layer) for n, layer in enumerate(layers)]
    path.write_bytes(packed(entry("manifest.json", manifest), *blobs, mode="w"))
    return path


def validate(image: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["validate", str(image), *arguments])


@contextmanager
def stored(path: Path, *layers: bytes) -> Iterator[Files]:
    with images.repository(str(written(path / "image.tar", *layers)), "/models") as store:
        yield Files(store)


def paths(files: Files) -> list[str]:
    """Returns the paths of all regular files and links."""
    regular, todo = [], [""]
    while todo:
        at = todo.pop()
        for name in files.store.names(at):
            path = join(at, name)
            (todo if files.store.entry(path).kind is FileKind.FOLDER else regular).append(path)
    return sorted(regular)


def content(files: Files, path: str) -> bytes:
    return files.read(path, 100_000)


@pytest.fixture
def near(tmp_path, monkeypatch):
    """A directory that the command must not read or change, next to the temporary files."""
    place = tmp_path / "near"
    place.mkdir()
    (place / "secret").write_text("secret_of_another")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return place


def long_way() -> list[tuple[tarfile.TarInfo, bytes]]:
    """Returns the attack of CVE-2025-4517: links whose target is too long for Python, but not for the kernel."""
    entries, above, steps = [], "models", "abcdefghijklmnop"
    for step in steps:
        entries += [folder(f"{above}/{'d' * 240}"), link(f"{above}/{step}", "d" * 240)]
        above += f"/{'d' * 240}"
    last = "/".join([*steps, "l" * 254])
    return [*entries, link(f"models/{last}", "../" * len(steps)), link("models/out", f"{last}/../../near")]


def files_of(model: str) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [entry(f"models/{model}/config.pbtxt", b'backend: "python"'), entry(f"models/{model}/1/model.py", PROGRAM)]


PROGRAM = b"class TritonPythonModel:\n    def execute(self, requests):\n        return [None for _ in requests]\n"
TO_SECRET = "../../near/secret"

LEADING_OUT = {
    "a link to an absolute path": [link("models/good/labels", "/etc/passwd")],
    "a link to an absolute path that isn't there": [link("models/out", "/not-there")],
    "a relative link": [link("models/out", "../../near")],
    "a config.pbtxt": [link("models/m/config.pbtxt", "/etc/passwd"), folder("models/m/1")],
    "a model.py": [link("models/good/2/model.py", "/etc/passwd")],
    "a warm-up": [link("models/good/warmup/x", "/proc/self/mem")],
    "a link that leads out only by way of another": [link("models/a/b", ".."), link("models/out", "a/b/../../near")],
    "a link to a link": [link("models/up", ".."), link("models/out", "up/../near")],
    "a long way": long_way(),
    "a file behind a link": [link("models/out", "../../near"), entry("models/out/new", b"x")],
    "a file in the place of a link": [link("models/good/n", TO_SECRET), entry("models/good/n", b"x")],
    "a directory behind a link": [link("models/out", "../../near"), folder("models/out/new")],
    "a deletion behind a link": [link("models/out", "../../near"), entry("models/out/.wh.secret")],
    "all deleted behind a link": [link("models/out", "../../near"), entry("models/out/.wh..wh..opq")],
    "a hard link to a link": [
        link("models/out", TO_SECRET),
        link("models/read", "models/out", tarfile.LNKTYPE),
        entry("models/read", b"x"),
    ],
    "links that double": [link(f"models/good/l{n}", f"l{n + 1}/../l{n + 1}") for n in range(100)],
    "a circle of directories": [link("models/good/1/a", "../../good"), link("models/good/1/b", "a/1/b")],
    "a device": [entry("models/good/1/zero", type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
    "a disk": [entry("models/good/2/model.py", type=tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "a pipe": [entry("models/good/2/model.py", type=tarfile.FIFOTYPE)],
    "an unknown type": [entry("models/good/2/model.py", type=b"Z")],
}
"""Good images with entries that lead out of the image. The command checks them and ignores these entries."""

HOSTILE = {
    "a hard link behind a link": [
        link("models/out", "../../near"),
        link("models/read", "models/out/secret", tarfile.LNKTYPE),
    ],
    "a hard link with ..": [link("models/read", "models/../../near/secret", tarfile.LNKTYPE)],
    "a hard link to an absolute path": [link("models/read", "/etc/passwd", tarfile.LNKTYPE)],
    "a hard link to itself": [link("models/read", "models/read", tarfile.LNKTYPE)],
    "a hard link to a directory": [link("models/good/1/a", "models", tarfile.LNKTYPE)],
    "hard links in a circle": [link("models/a", "x", tarfile.LNKTYPE), link("x", "models/a", tarfile.LNKTYPE)],
    "a name with ..": [entry("models/../../near/new", b"x")],
    "a name that begins with ..": [entry("../near/new", b"x")],
    "a deletion of ..": [entry("models/.wh...")],
    "a deletion of all": [entry("models/.wh.")],
    "a null character in a name": [entry("models/x", b"", pax_headers={"path": "models/a\0b"})],
    "directories without end": [entry("models/" + "d/" * 2000 + "x")],
    "directories one by one": [folder("models/" + "/".join("d" * n)) for n in range(1, 1500)],
    "a long name": [entry("models/" + "n" * 5000)],
    "a name without end": [entry("models/" + "n" * 2 * unpack.MAX_HEADER)],
}
"""Entries that no image needs. The command rejects the image."""


def untouched(near: Path) -> None:
    assert [p.name for p in near.iterdir()] == ["secret"]
    assert (near / "secret").read_text() == "secret_of_another"
    assert sorted(p.name for p in near.parent.iterdir()) == ["image.tar", "near"]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("entries", LEADING_OUT.values(), ids=LEADING_OUT)
def test_reads_and_writes_nothing_outside_of_the_image(tmp_path, near, entries, mode):
    image = written(tmp_path / "image.tar", packed(*files_of("good"), *entries, mode=mode))
    result = validate(image)
    assert result.exit_code in (0, 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert not any(word in result.output for word in ("secret_of", "root:"))
    untouched(near)


@pytest.mark.parametrize("entries", LEADING_OUT.values(), ids=LEADING_OUT)
def test_copy_for_the_server_stays_inside_its_directory(tmp_path, near, entries):
    """The copy has only directories, regular files and links that stay inside."""
    image = written(tmp_path / "image.tar", packed(*files_of("good"), *entries))
    with (
        suppress(archives.ImageError),
        images.repository(str(image), "/models") as store,
        images.on_disk(store) as root,
    ):
        assert (root / "good/1/model.py").read_bytes() == PROGRAM
        for place in root.rglob("*"):
            assert place.is_dir() or place.is_file() or place.is_symlink()
            assert place.resolve().is_relative_to(root.resolve())
    untouched(near)


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_rejects_malicious_images(tmp_path, near, entries):
    image = written(tmp_path / "image.tar", packed(*files_of("good"), *entries))
    result = validate(image)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert str(image) in result.output
    untouched(near)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_does_not_read_a_sparse_file(tmp_path, near, form):
    """The file is larger than the disk, but its archive has only a few bytes."""
    if form == tarfile.PAX_FORMAT:
        sparse = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**50)}
        layer = packed(*files_of("good"), entry("models/good/2/model.py", pax_headers=sparse))
    else:
        block = bytearray(entry("models/good/2/model.py", type=tarfile.GNUTYPE_SPARSE)[0].tobuf(tarfile.GNU_FORMAT))
        block[483:495] = b"%011o\0" % (2**33 - 1)
        layer = packed(*files_of("good"), mode="w")[:-10240] + resummed(block) + bytes(2 * 512)
    result = validate(written(tmp_path / "image.tar", layer))
    assert result.exit_code in (1, 2), result.output
    untouched(near)


def test_rejects_a_layer_that_is_larger_than_the_disk(tmp_path, near, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2000))
    result = validate(written(tmp_path / "image.tar", packed(entry("models/x", bytes(2**20)))))
    assert (result.exit_code, "not enough disk space" in result.output) == (2, True)
    # Files outside of the models' directory, and files of uncompressed layers, need no disk space.
    layer = packed(*files_of("good"), entry("usr/x", bytes(2**20)))
    assert validate(written(tmp_path / "image.tar", layer)).exit_code == 0
    layer = packed(*files_of("good"), entry("models/good/1/x", bytes(2**20)), mode="w")
    assert validate(written(tmp_path / "image.tar", layer)).exit_code == 0


def resummed(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def test_rejects_too_many_files(tmp_path, near, monkeypatch):
    monkeypatch.setattr(unpack, "MAX_ENTRIES", 10)
    layer = packed(*(entry(f"models/{n}/{n}") for n in range(6)))
    result = validate(written(tmp_path / "image.tar", layer))
    assert (result.exit_code, "more than 10 " in result.output) == (2, True)


def test_rejects_a_file_with_too_many_entries(tmp_path, near, monkeypatch):
    monkeypatch.setattr(archives, "MAX_PARTS", 10)
    (tmp_path / "image.tar").write_bytes(packed(*(entry(f"{n}") for n in range(11)), mode="w"))
    result = validate(tmp_path / "image.tar")
    assert (result.exit_code, "more than 10 entries" in result.output) == (2, True), result.output


def test_copies_the_content_of_hard_links_once(tmp_path, near, monkeypatch):
    """Many hard links to a large file need its disk space only once."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10_000))
    layer = packed(entry("x", bytes(8000)), *(link(f"models/{n}", "x", tarfile.LNKTYPE) for n in range(60)))
    with stored(tmp_path, layer) as files:
        assert {len(content(files, f"{n}")) for n in range(60)} == {8000}


def test_rejects_a_decompression_bomb(tmp_path, near, monkeypatch):
    """The command stops at the maximum size of a layer, even if its archive has only a few kilobytes."""
    monkeypatch.setattr(unpack, "MAX_BYTES", 2**20)
    result = validate(written(tmp_path / "image.tar", packed(entry("usr/zeros", bytes(2**21)))))
    assert (result.exit_code, "2097152 bytes" in result.output) == (2, True), result.output


def test_rejects_too_many_layers(tmp_path, near, monkeypatch):
    monkeypatch.setattr(archives, "MAX_LAYERS", 2)
    layer = packed(*files_of("good"))
    result = validate(written(tmp_path / "image.tar", layer, layer, layer))
    assert (result.exit_code, "3 layers" in result.output) == (2, True), result.output


@pytest.mark.parametrize("where", ["header", "pax"])
def test_rejects_a_negative_size(tmp_path, near, where):
    """Without the check, tarfile reads the same entry forever."""
    if where == "pax":
        layer = packed(entry("models/x", b"x", pax_headers={"size": "-1536"}), mode="w")
    else:
        block = bytearray(tarfile.TarInfo("models/x").tobuf(tarfile.GNU_FORMAT))
        block[124:136] = b"\xff" * 10 + (-1024 & 0xFFFF).to_bytes(2, "big")
        layer = resummed(block) * 2
    result = validate(written(tmp_path / "image.tar", layer))
    assert result.exit_code == 2
    assert "a header has an invalid size: -" in result.output


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "w:zst"])
def test_reads_a_layer_of_any_compression(tmp_path, near, mode):
    weights = os.urandom(60_000)
    layer = packed(entry("etc/x", bytes(70_000)), entry("models/b", weights), entry("models/a", b"short"), mode=mode)
    with stored(tmp_path, layer) as files:
        assert (content(files, "b"), content(files, "a")) == (weights, b"short")


def test_reads_a_zstd_layer_of_several_frames(tmp_path, near):
    """As eStargz and pzstd write it."""
    archive = packed(entry("models/a", bytes(60_000)), mode="w")
    layer = b"".join(zstandard.compress(archive[at : at + 20_000]) for at in range(0, len(archive), 20_000))
    with stored(tmp_path, layer) as files:
        assert content(files, "a") == bytes(60_000)


def test_rejects_a_zstd_layer_that_asks_for_much_memory(tmp_path, near):
    options = zstandard.ZstdCompressionParameters(window_log=30)
    compressor = zstandard.ZstdCompressor(compression_params=options).compressobj()
    layer = compressor.compress(packed(*files_of("good"), mode="w")) + compressor.flush()
    result = validate(written(tmp_path / "image.tar", layer))
    assert (result.exit_code, "can't be decompressed" in result.output) == (2, True), result.output


@pytest.mark.parametrize("cut", ["gz", "xz", "zst", "tar"])
def test_rejects_a_truncated_layer(tmp_path, near, cut):
    content = entry("models/x", os.urandom(100_000))
    layer = packed(content, mode="w" if cut == "tar" else f"w:{cut}")[:50_000]
    result = validate(written(tmp_path / "image.tar", layer))
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.exception


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"index.json": {"manifests": [{"digest": "a:b"}]}, "blobs/a/b": {"manifests": [{"digest": "a:b"}]}},
            "no manifest",
        ),
        ({"manifest.json": "[" * 100_000}, ""),
        ({"manifest.json": " " * (archives.MAX_DOCUMENT + 1)}, "larger than"),
        ({"manifest.json": [{"Layers": ["a"]}]}, "not found"),
        ({"manifest.json": [{"Layers": [{}]}]}, ""),
        ({"manifest.json": 1}, ""),
    ],
)
def test_rejects_invalid_manifests(tmp_path, near, files, words):
    path = tmp_path / "image.tar"
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in files.items()}
    path.write_bytes(packed(*(entry(name, text.encode()) for name, text in texts.items()), mode="w"))
    result = validate(path)
    assert (result.exit_code, words in result.output) == (2, True), result.output


def test_rejects_a_layer_that_is_a_link_to_itself(tmp_path, near):
    path = tmp_path / "image.tar"
    manifest = entry("manifest.json", json.dumps([{"Layers": ["a"]}]).encode())
    path.write_bytes(packed(manifest, link("a", "a"), mode="w"))
    assert validate(path).exit_code == 2


def test_leaves_out_files_outside_of_the_models_directory(tmp_path, near):
    """An image may contain devices, links, and links to directories in other places."""
    other = [entry("dev/zero", type=tarfile.CHRTYPE), link("etc/mtab", "/proc/mounts"), entry("modelsx/y", b"y")]
    usual = [folder("usr/lib"), link("lib", "usr/lib"), entry("lib/x", b"x")]
    with stored(tmp_path, packed(entry("models/x", b"x"), *other, *usual)) as files:
        assert paths(files) == ["x"]


@pytest.mark.parametrize(
    "to",
    ["/srv/models", "srv/models", "../srv/models", "/link/models", "srv/../srv/./models/", "/srv/models/../models"],
)
def test_follows_a_link_to_the_models_directory(tmp_path, near, to):
    layer = packed(entry("srv/models/m/1/x", b"x"), link("link", "srv"), link("models", to))
    with stored(tmp_path, layer) as files:
        assert paths(files) == ["m/1/x"]


@pytest.mark.parametrize("prefix", ["", "./", "/"])
def test_follows_links_inside_of_the_models_directory(tmp_path, near, prefix):
    layer = packed(
        entry(f"{prefix}data/x", b"elsewhere"),
        entry(f"{prefix}models/a/1/x", b"x"),
        link(f"{prefix}models/a/2", "1"),
        link(f"{prefix}models/b", "a/../a/1"),
        link(f"{prefix}models/c", "/models/a/1"),
        link(f"{prefix}models/nowhere", "a/3"),
        link(f"{prefix}models/circle", "circle"),
        link(f"{prefix}models/hard", f"{prefix}models/a/1/x", tarfile.LNKTYPE),
        link(f"{prefix}models/copy", f"{prefix}data/x", tarfile.LNKTYPE),
    )
    with stored(tmp_path, layer) as files:
        assert {content(files, f"{name}/x") for name in ("a/1", "a/2", "b", "c")} == {b"x"}
        assert (content(files, "hard"), content(files, "copy")) == (b"x", b"elsewhere")
        assert {files.look(name).kind for name in ("nowhere", "circle")} == {FileKind.NOTHING}
        with images.on_disk(files.store) as root:
            assert {(root / name / "x").read_bytes() for name in ("a/1", "a/2", "b", "c")} == {b"x"}
            assert sorted(p.name for p in root.iterdir()) == ["a", "b", "c", "copy", "hard"]


def test_a_later_layer_replaces_and_deletes_files(tmp_path, near):
    """A layer replaces files, links and directories, but not the content that another hard link shares."""
    first = packed(
        *(entry("models/dir/x", b"x"), entry("models/file", b"old"), link("models/link", "dir")),
        link("models/same", "models/file", tarfile.LNKTYPE),
        *(link("models/nowhere", "gone"), entry("models/gone/x"), entry("models/..data/x", b"x")),
    )
    second = packed(entry("models/link/y", b"behind the link"))
    third = packed(
        *(entry("models/dir", b"now a file"), entry("models/file", b"new"), entry("models/link", b"after")),
        *(entry("models/.wh.nowhere"), entry("models/.wh.gone"), entry("models/.wh.never-there")),
    )
    with stored(tmp_path, first, second) as files:
        assert content(files, "dir/y") == b"behind the link"
    with stored(tmp_path, first, second, third) as files:
        assert paths(files) == ["..data/x", "dir", "file", "link", "same"]
        assert [content(files, name) for name in ("dir", "file", "same")] == [b"now a file", b"new", b"old"]


def test_accepts_names_that_are_not_utf8(tmp_path, near):
    layer = packed(*files_of("good"), entry("models/good/1/\udcff\n", b"x"), form=tarfile.GNU_FORMAT)
    image = written(tmp_path / "image.tar", layer)
    assert validate(image).exit_code == 0
    assert validate(image, "--format", "json").exit_code == 0


def test_does_not_read_the_content_of_weights(tmp_path, near, monkeypatch):
    """The content of a large file in an uncompressed layer is neither read nor copied."""
    size = 200 * 2**20
    head = entry("models/good/1/weights", b"")[0]
    head.size = size
    path = tmp_path / "image.tar"
    manifest = json.dumps([{"Layers": ["0.tar"]}]).encode()
    layer = packed(*files_of("good"), mode="w")[: -10240 + 512 * 6]
    inner = len(layer.rstrip(b"\0")) // 512 * 512 + 512
    layer = layer[:inner] + head.tobuf(tarfile.GNU_FORMAT)
    outer = entry("0.tar")[0]
    outer.size = len(layer) + size + 1024
    with path.open("wb") as file:
        file.write(packed(entry("manifest.json", manifest), mode="w")[:1024])
        file.write(outer.tobuf(tarfile.GNU_FORMAT) + layer)
        file.seek(size + 2048, os.SEEK_CUR)
        file.write(b"\0")
    assert path.stat().st_blocks < 1000
    with images.repository(str(path), "/models") as store:
        assert store.entry("good/1/weights").size == size
    untouched(near)


def test_reads_the_stream_of_docker_cp(tmp_path):
    """The archive has the format of `docker cp`."""
    held = [folder("./"), folder("./a"), entry("./a/x", b"x"), link("./a/y", "./a/x", tarfile.LNKTYPE)]
    store = images.streamed(io.BytesIO(packed(*held, link("./out", "/etc"), mode="w")), "/models")
    files = Files(store)
    assert content(files, "a/y") == b"x"
    assert files.look("out").kind is FileKind.OUTSIDE


@pytest.mark.parametrize(
    ("mode", "owner", "readable"),
    [(0o644, 0, True), (0o600, 0, False), (0o640, 0, False), (0o400, 1000, True), (0o044, 1000, False)],
)
def test_a_file_that_the_servers_may_not_read_is_an_error(tmp_path, mode: int, owner: int, readable: bool) -> None:
    config = b'backend: "python"\nmax_batch_size: 0\n'
    place = written(
        tmp_path / "image.tar",
        packed(
            entry("models/m/config.pbtxt", config, mode=mode, uid=owner, gid=0),
            entry(
                "models/m/1/model.py", b"class TritonPythonModel:\n    def execute(self, requests):\n        raise\n"
            ),
        ),
    )
    lines = [line for line in validate(place).output.splitlines() if "TR002" in line]
    assert lines == ([] if readable else [line for line in lines if "m/config.pbtxt" in line])
    assert bool(lines) == (not readable)


def test_a_file_of_the_servers_group_is_readable(tmp_path) -> None:
    model_file = entry("models/m/config.pbtxt", b"x", mode=0o040, uid=0, gid=1000)
    with stored(tmp_path, packed(model_file)) as files:
        file = files.look("m/config.pbtxt")
    assert (file.readable, file.executable) == (True, False)


def test_a_program_for_model_py_must_be_executable(tmp_path) -> None:
    def lines(mode: int) -> list[str]:
        place = written(
            tmp_path / f"{mode}.tar",
            packed(
                entry("models/m/config.pbtxt", b'backend: "python"\n', mode=0o644),
                entry("models/m/triton_python_backend_stub", b"x", mode=mode),
            ),
        )
        return [line for line in validate(place).output.splitlines() if "TR213" in line]

    assert len(lines(0o644)) == 1
    assert lines(0o755) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"mode": 0o755}, []),
        ({"mode": 0o700}, ["models/good/1"]),
        ({"mode": 0o700, "uid": 1000}, []),
        ({"mode": 0o744}, ["models/good/1"]),
    ],
)
def test_finds_directories_that_no_server_can_read(tmp_path, change, expected):
    """Also if a later layer changes the mode."""
    entries = [folder("models/good/1"), *files_of("good")]
    layers = packed(*entries), packed(entry("models/good/1", type=tarfile.DIRTYPE, **change))
    output = validate(written(tmp_path / "image.tar", *layers)).output
    unreadable = [f"models/{line.split(':')[0]}" for line in output.splitlines() if " TR002:" in line]
    assert unreadable == expected


def copies(folder: Path) -> list[int]:
    """Returns the sizes of the temporary files."""
    return [path.stat().st_size for path in folder.glob("triton-validate-*")]


def test_copies_only_the_models_in_compressed_layers_into_one_file(tmp_path, near):
    plain = packed(entry("models/m/plain", bytes(9000)), mode="w")
    layers = [
        packed(entry("models/m/first", bytes(5000)), entry("usr/x", bytes(70_000)), entry("modelsx/y", bytes(300))),
        packed(entry("models/m/second", bytes(3000)), mode="w:zst"),
    ]
    with stored(tmp_path, *layers, plain) as files:
        sizes = {path: len(content(files, path)) for path in paths(files)}
        assert sizes == {"m/first": 5000, "m/second": 3000, "m/plain": 9000}
        assert copies(tmp_path) == [5000 + 3000]
    with stored(tmp_path, plain) as files:
        assert len(content(files, "m/plain")) == 9000
        assert copies(tmp_path) == []
    untouched(near)


def test_copies_the_models_of_a_file_that_is_compressed_as_a_whole(tmp_path, near):
    image = written(tmp_path / "image.tar", packed(entry("models/m/plain", bytes(9000)), entry("x", b"x"), mode="w"))
    image.write_bytes(gzip.compress(image.read_bytes()))
    with images.repository(str(image), "/models") as store:
        assert len(content(Files(store), "m/plain")) == 9000
        assert copies(tmp_path) == [9000]
    untouched(near)


@pytest.mark.parametrize("name", ["etc/../x", "models/..", "usr/lib/../../x", "./../x"])
def test_rejects_names_with_dots_in_each_directory(tmp_path, near, name):
    result = validate(written(tmp_path / "image.tar", packed(*files_of("good"), entry(name, b"x"))))
    assert (result.exit_code, "invalid file name in an image" in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(("most", "status"), [(100, 0), (99, 2)])
def test_takes_as_many_entries_as_the_limit(tmp_path, near, monkeypatch, most, status):
    """Also if they are all for one directory."""
    monkeypatch.setattr(unpack, "MAX_ENTRIES", most)
    layer = packed(*files_of("good"), *[folder("usr")] * 98)
    result = validate(written(tmp_path / "image.tar", layer))
    assert (result.exit_code, "more than 99 entries" in result.output) == (status, bool(status)), result.output
