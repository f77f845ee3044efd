"""Checksums of the release's files, and their signature.

A signature is ECDSA on P-256 over the SHA-256 of SHA256SUMS, in base64: the format of `cosign sign-blob`, which openssl
reads and writes too.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from hack.world import settings

from .project import ReleaseError

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"


def write(folder: Path) -> None:
    """Writes SHA256SUMS for all files below the folder, in the format of sha256sum."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    lines = [f"{digest(folder / name)}  {name}\n" for name in names if not name.startswith(SUMS)]
    (folder / SUMS).write_text("".join(lines))


def digest(file: Path) -> str:
    """Returns the SHA-256 of the file in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def sign(folder: Path, key: Path) -> None:
    """Signs SHA256SUMS and writes the signature beside it.

    - `key`: of `cosign generate-key-pair` (needs cosign and COSIGN_PASSWORD), or an EC key as PEM (needs openssl).
    """
    sums, target = folder / SUMS, folder / SIGNATURE
    if "SIGSTORE" in key.read_text() or "COSIGN" in key.read_text():
        # Without the public transparency log: the key is the trust, and the release works without the internet.
        options = ["--tlog-upload=false", "--use-signing-config=false", "--new-bundle-format=false", "--yes"]
        _run(["cosign", "sign-blob", "--key", str(key), *options, "--output-signature", str(target), str(sums)])
    else:
        signature = _run(["openssl", "dgst", "-sha256", "-sign", str(key), str(sums)])
        target.write_text(base64.b64encode(signature).decode())


def _run(command: list[str]) -> bytes:
    path = settings.search_path()
    if not shutil.which(command[0], path=path):
        raise ReleaseError(f"signing with this key needs {command[0]} on PATH")
    result = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PATH": path})
    if result.returncode:
        raise ReleaseError(f"{command[0]}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout
