"""Images that mean harm: nothing of them lands outside of its directory, and each is refused in words."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from triton_operator.cli import images, unpack
from triton_operator.cli.kubectl import main


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in fields.items():
        setattr(member, key, value)
    return member, content


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=kind, linkname=to)


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE)


def packed(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT, mode: str = "w:gz") -> bytes:
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
def unpacked(path: Path, *layers: bytes) -> Iterator[Path]:
    with images.repository(str(written(path / "image.tar", *layers)), "/models") as root:
        yield root


@pytest.fixture
def near(tmp_path, monkeypatch):
    """A directory whose files nobody may touch or read; what is unpacked is unpacked beside it."""
    place = tmp_path / "near"
    place.mkdir()
    (place / "secret").write_text("secret")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return place


def long_way() -> list[tuple[tarfile.TarInfo, bytes]]:
    """The way out of CVE-2025-4517: links whose target is too long a path for Python, but not for the kernel."""
    entries, above, steps = [], "models", "abcdefghijklmnop"
    for step in steps:
        entries += [folder(f"{above}/{'d' * 240}"), link(f"{above}/{step}", "d" * 240)]
        above += f"/{'d' * 240}"
    last = "/".join([*steps, "l" * 254])
    return [*entries, link(f"models/{last}", "../" * len(steps)), link("models/out", f"{last}/../../near")]


HOSTILE = {
    "a link to an absolute path": [link("models/out", "/etc")],
    "a link to an absolute path that isn't there": [link("models/out", "/not-there")],
    "a relative link": [link("models/out", "../../near")],
    "a relative link that leads nowhere": [link("models/out", "../../not-there")],
    "a link that leads out only by way of another": [link("models/a/b", ".."), link("models/out", "a/b/../../near")],
    "a link to a link": [link("models/up", ".."), link("models/out", "up/../near")],
    "a long way": long_way(),
    "a file behind a link": [link("models/out", "../../near"), entry("models/out/new", b"x")],
    "a file behind a link within": [folder("models/d"), link("models/l", "d"), entry("models/l/new", b"x")],
    "a directory behind a link": [link("models/out", "../../near"), folder("models/out/new")],
    "a deletion behind a link": [link("models/out", "../../near"), entry("models/out/.wh.secret")],
    "all deleted behind a link": [link("models/out", "../../near"), entry("models/out/.wh..wh..opq")],
    "a hard link behind a link": [
        link("models/out", "../../near"),
        link("models/read", "models/out/secret", tarfile.LNKTYPE),
    ],
    "a hard link to a link": [
        link("models/out", "../../near/secret"),
        link("models/read", "models/out", tarfile.LNKTYPE),
        entry("models/read", b"x"),
    ],
    "a hard link with ..": [link("models/read", "models/../../near/secret", tarfile.LNKTYPE)],
    "a hard link to an absolute path": [link("models/read", "/etc/passwd", tarfile.LNKTYPE)],
    "a hard link to itself": [link("models/read", "models/read", tarfile.LNKTYPE)],
    "hard links in a circle": [link("models/a", "x", tarfile.LNKTYPE), link("x", "models/a", tarfile.LNKTYPE)],
    "a name with ..": [entry("models/../../near/new", b"x")],
    "a name that begins with ..": [entry("../near/new", b"x")],
    "a deletion of ..": [entry("models/.wh...")],
    "a deletion of all": [entry("models/.wh.")],
    "a device": [entry("models/zero", type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
    "a disk": [entry("models/disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "a pipe": [entry("models/pipe", type=tarfile.FIFOTYPE)],
    "a kind that nobody knows": [entry("models/what", type=b"Z")],
    "a zero in a name": [entry("models/x", b"", pax_headers={"path": "models/a\0b"})],
    "directories without end": [entry("models/" + "d/" * 2000 + "x")],
    "directories one by one": [folder("models/" + "/".join("d" * n)) for n in range(1, 1500)],
    "a long name": [entry("models/" + "n" * 5000)],
    "a name without end": [entry("models/" + "n" * 2 * unpack.MAX_HEADER)],
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_refused(tmp_path, near, entries):
    image = written(tmp_path / "image.tar", packed(entry("models/good/config.pbtxt"), *entries))
    result = validate(image)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert str(image) in result.output
    assert [p.name for p in near.iterdir()] == ["secret"]
    assert (near / "secret").read_text() == "secret"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["image.tar", "near"]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_bomb(tmp_path, near, monkeypatch, form):
    """A sparse file: more than the disk holds, in a few bytes. Nothing of it is written."""
    if form == tarfile.PAX_FORMAT:
        layer = packed(entry("models/big", pax_headers={"GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**50)}))
    else:
        block = bytearray(entry("models/big", type=tarfile.GNUTYPE_SPARSE)[0].tobuf(tarfile.GNU_FORMAT))
        block[483:495] = b"%011o\0" % (2**33 - 1)
        layer = resummed(block) + bytes(2 * 512)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**30))
    result = validate(written(tmp_path / "image.tar", layer))
    assert result.exit_code == 2
    assert "there is room for" in result.output


def resummed(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def test_many_files(tmp_path, near, monkeypatch):
    monkeypatch.setattr(unpack, "MAX_ENTRIES", 10)
    layer = packed(*(entry(f"models/{n}/{n}") for n in range(6)))
    result = validate(written(tmp_path / "image.tar", layer))
    assert (result.exit_code, "more than 10 files" in result.output) == (2, True)


def test_many_hard_links_to_a_file_elsewhere(tmp_path, near, monkeypatch):
    """Each of them is a copy."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10_000))
    content = os.urandom(2000)
    layer = packed(entry("x", content), *(link(f"models/{n}", "x", tarfile.LNKTYPE) for n in range(6)))
    result = validate(written(tmp_path / "image.tar", layer))
    assert (result.exit_code, "there is room for" in result.output) == (2, True)


@pytest.mark.parametrize("where", ["header", "pax"])
def test_a_negative_size(tmp_path, near, where):
    """It makes tarfile read the same entry forever."""
    if where == "pax":
        layer = packed(entry("models/x", b"x", pax_headers={"size": "-1536"}), mode="w")
    else:
        block = bytearray(tarfile.TarInfo("models/x").tobuf(tarfile.GNU_FORMAT))
        block[124:136] = b"\xff" * 10 + (-1024 & 0xFFFF).to_bytes(2, "big")
        layer = resummed(block) * 2
    result = validate(written(tmp_path / "image.tar", layer))
    assert result.exit_code == 2
    assert "a header says -" in result.output


@pytest.mark.parametrize("cut", ["gz", "xz", "tar"])
def test_cut_short(tmp_path, near, cut):
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
        ({"manifest.json": " " * (images.MAX_DOCUMENT + 1)}, "larger than"),
        ({"manifest.json": [{"Layers": ["a"]}]}, "not found"),
        ({"manifest.json": [{"Layers": [{}]}]}, ""),
        ({"manifest.json": 1}, ""),
    ],
)
def test_manifests(tmp_path, near, files, words):
    path = tmp_path / "image.tar"
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in files.items()}
    path.write_bytes(packed(*(entry(name, text.encode()) for name, text in texts.items()), mode="w"))
    result = validate(path)
    assert (result.exit_code, words in result.output) == (2, True), result.output


def test_a_layer_that_is_a_link_to_itself(tmp_path, near):
    path = tmp_path / "image.tar"
    manifest = entry("manifest.json", json.dumps([{"Layers": ["a"]}]).encode())
    path.write_bytes(packed(manifest, link("a", "a"), mode="w"))
    assert validate(path).exit_code == 2


def test_what_stays_of_the_mode(tmp_path, near):
    """Who reads may read, and nobody becomes somebody else."""
    modes = {0o6755: 0o755, 0o2644: 0o644, 0o1777: 0o755, 0o000: 0o600, 0o640: 0o640}
    layer = packed(folder("models/d"), *(entry(f"models/d/{mode:o}", b"x", mode=mode) for mode in modes))
    with unpacked(tmp_path, layer) as root:
        held = {int(p.name, 8): stat.S_IMODE(p.stat().st_mode) for p in (root / "d").iterdir()}
        assert held == modes
        assert not (root / "d").stat().st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX)


def test_what_lies_elsewhere_is_left_out(tmp_path, near):
    """An image may have devices and links in other places."""
    other = [entry("dev/zero", type=tarfile.CHRTYPE), link("etc/mtab", "/proc/mounts"), entry("modelsx/y", b"y")]
    with unpacked(tmp_path, packed(entry("models/x", b"x"), *other)) as root:
        assert [p.name for p in root.iterdir()] == ["x"]


@pytest.mark.parametrize("prefix", ["", "./", "/"])
def test_links_within(tmp_path, near, prefix):
    layer = packed(
        entry(f"{prefix}data/x", b"elsewhere"),
        entry(f"{prefix}models/a/1/x", b"x"),
        link(f"{prefix}models/a/2", "1"),
        link(f"{prefix}models/b", "a/../a/1"),
        link(f"{prefix}models/nowhere", "a/3"),
        link(f"{prefix}models/circle", "circle"),
        link(f"{prefix}models/hard", f"{prefix}models/a/1/x", tarfile.LNKTYPE),
        link(f"{prefix}models/copy", f"{prefix}data/x", tarfile.LNKTYPE),
    )
    with unpacked(tmp_path, layer) as root:
        assert (root / "a" / "2" / "x").read_bytes() == (root / "b" / "x").read_bytes() == b"x"
        assert (root / "hard").samefile(root / "a" / "1" / "x")
        assert (root / "copy").read_bytes() == b"elsewhere"
        assert (root / "nowhere").is_symlink()
        assert not (root / "nowhere").exists()


def test_a_later_layer_replaces(tmp_path, near):
    """Whatever stands there: a file, a link, a directory. What a hard link shares is left."""
    first = packed(
        *(entry("models/dir/x", b"x"), entry("models/file", b"old"), link("models/link", "dir")),
        link("models/same", "models/file", tarfile.LNKTYPE),
        *(link("models/nowhere", "gone"), entry("models/gone/x"), entry("models/..data/x", b"x")),
    )
    second = packed(
        *(entry("models/dir", b"now a file"), entry("models/file", b"new"), entry("models/link/y", b"y")),
        *(entry("models/.wh.nowhere"), entry("models/.wh.gone"), entry("models/.wh.never-there")),
    )
    third = packed(entry("models/link", b"after"))
    with pytest.raises(images.ImageError, match="link is no directory"), unpacked(tmp_path, first, second):
        pass
    with unpacked(tmp_path, first, third) as root:
        assert (root / "link").read_bytes() == b"after"
        assert (root / "dir" / "x").read_bytes() == b"x"
    second = packed(
        *(entry("models/dir", b"now a file"), entry("models/file", b"new")),
        *(folder("models/link"), entry("models/link/y", b"y")),
        *(entry("models/.wh.nowhere"), entry("models/.wh.gone"), entry("models/.wh.never-there")),
    )
    with unpacked(tmp_path, first, second) as root:
        assert sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()) == [
            *("..data/x", "dir", "file", "link/y", "same")
        ]
        assert [(root / name).read_bytes() for name in ("dir", "file", "same")] == [b"now a file", b"new", b"old"]


def test_a_stream(tmp_path):
    """As `docker cp` gives it."""
    files = [folder("./"), folder("./a"), entry("./a/x", b"x"), link("./a/y", "./a/x", tarfile.LNKTYPE)]
    images._unpack(io.BytesIO(packed(*files, mode="w")), tmp_path)
    assert (tmp_path / "a" / "y").read_bytes() == b"x"
    with pytest.raises(unpack.RefusedError):
        images._unpack(io.BytesIO(packed(link("./out", "/etc"), mode="w")), tmp_path)
