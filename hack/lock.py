"""Pins every Python package with its hashes: requirements/*.lock from pyproject.toml, and that of the server image.

Keeps the pinned versions unless --upgrade is given. --check only reports whether the requirements changed since the
locks were made; it needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
BUILD = LOCKS / "build.in"
SUPPLY = LOCKS / "supply.in"
CLIENT = LOCKS / "client.in"
DOCS = LOCKS / "docs.in"
PERF_ANALYZER = LOCKS / "perf_analyzer.in"
SERVER = ROOT / "model_images" / "server" / "requirements.txt"
SERVER_LOCK = str(SERVER.with_suffix(".lock"))
UV = "uv>=0.9,<1"
# Dependencies of tritonclient that the operator never imports: it uses one generated file of tritonclient, and
# h11, hpack and hyperframe for requests to servers. Without the others the image is 130 MB smaller. Rich,
# Textual and their dependencies are for the terminal of kubectl-triton, leather and plotille for its charts,
# zstandard for its reader of images, and cel-python for the rules of the CRD.
UNUSED = (
    "brotli", "cel-python", "gevent", "geventhttpclient", "google-re2", "greenlet", "grpcio", "jmespath", "lark",
    "leather", "linkify-it-py", "markdown-it-py", "mdit-py-plugins", "mdurl", "ml-dtypes", "numpy", "pendulum",
    "platformdirs", "plotille", "pygments", "python-rapidjson", "rich", "textual", "zope-event", "zope-interface",
    "zstandard",
)  # fmt: skip
# Dependencies of the operator or of tritonclient[http] that kubectl-triton never imports.
UNUSED_BY_PLUGIN = (
    "aiohttp-retry", "brotli", "dateparser", "gevent", "geventhttpclient", "greenlet", "iso8601", "jsonpatch",
    "jsonpointer", "kopf", "prometheus-api-client", "prometheus-client", "python-json-logger", "pytz", "regex",
    "tzdata", "tzlocal", "zope-event", "zope-interface",
)  # fmt: skip
OMITTED = {"operator.lock": UNUSED, "plugin.lock": UNUSED_BY_PLUGIN}
SOURCES = {
    "operator.lock": ["pyproject.toml"],
    "build.lock": [str(BUILD.relative_to(ROOT))],
    "dev.lock": ["pyproject.toml", "--extra=dev", str(BUILD.relative_to(ROOT))],
    "plugin.lock": ["pyproject.toml", "-c", "requirements/dev.lock"],
    "supply.lock": [str(SUPPLY.relative_to(ROOT))],
    "docs.lock": [str(DOCS.relative_to(ROOT))],
    "client.lock": [str(CLIENT.relative_to(ROOT)), "-c", "requirements/dev.lock"],
    "perf_analyzer.lock": [str(PERF_ANALYZER.relative_to(ROOT))],
    # In the folder that the image is built from.
    SERVER_LOCK: [str(SERVER.relative_to(ROOT))],
}


def fingerprint() -> str:
    """Returns the first line of each lock: a fingerprint of the requirements that the locks are made from."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = [
        project["project"]["requires-python"],
        sorted(project["project"]["dependencies"]),
        sorted(project["project"]["optional-dependencies"]["dev"]),
        sorted(project["build-system"]["requires"]),
        BUILD.read_text(),
        SUPPLY.read_text(),
        CLIENT.read_text(),
        DOCS.read_text(),
        PERF_ANALYZER.read_text(),
        SERVER.read_text(),
    ]
    return "# Made by `make lock` for " + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def uv() -> Path:
    """Returns the path of the resolver. Installs it in its own venv: it isn't a dependency of the project."""
    home = ROOT / ".cache" / "uv"
    program = home / "bin" / "uv"
    if not program.exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", UV], check=True)
    return program


def compile_lock(name: str, upgrade: bool) -> str:
    out = LOCKS / name
    # No header and no index URL: the file must not depend on the command line or on where packages come from.
    # The server image has Ubuntu's Python.
    python = "3.10" if name == SERVER_LOCK else "3.11"
    command = [uv(), "pip", "compile", *SOURCES[name], "-o", out, "-q", "--universal", f"--python-version={python}"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command += [f"--no-emit-package={package}" for package in OMITTED.get(name, ())]
    if name not in ("operator.lock", SERVER_LOCK):
        command += ["-c", LOCKS / "operator.lock"]
    subprocess.run([*command, *(["--upgrade"] if upgrade else [])], check=True, cwd=ROOT)
    return out.read_text()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    options = parser.parse_args()
    first = fingerprint()
    if options.check:
        stale = [n for n in SOURCES if not (LOCKS / n).exists() or (LOCKS / n).read_text().split("\n", 1)[0] != first]
        for name in stale:
            print(f"{LOCKS / name} is stale, run `make lock`", file=sys.stderr)
        return 1 if stale else 0
    for name in SOURCES:
        text = compile_lock(name, options.upgrade)
        body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
        (LOCKS / name).write_text(f"{first}\n{body}")
        print(f"wrote {(LOCKS / name).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
