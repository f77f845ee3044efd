"""Makes the missing parts of a goal, in parallel where possible."""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import docker, machine, schedule, settings
from .job import FailedError, Job
from .part import Part, Source
from .progress import Progress, minutes, roughly, say
from .schedule import Step

# Disk space besides the parts: containers, logs and temporary files of builds.
_SPARE_MEGABYTES = 2000
# Needed to link kube-apiserver, and by the cluster with its servers.
_MEMORY_MEGABYTES = 5500


def up(goals: Iterable[str], parts: Mapping[str, Part], source: Source) -> dict[str, float]:
    """Makes the missing parts of the goals and their dependencies. Returns {name: seconds} of the parts that it made.

    Raises FailedError if a part can't be made or the machine is too small.
    """
    targets = set(goals)
    steps = schedule.closure(targets, parts, source)
    with _alone():
        keys = _keys(steps, source)
        took: dict[str, float] = {}
        # First, because only a running Docker lists its images.
        first = {name: steps[name] for name in ("docker",) if name in steps and not steps[name].part.present()}
        if first:
            _install(first)
            took |= _make_all(first, keys)
        todo = _missing(targets, steps, keys)
        if todo:
            _install(todo)
            _check_machine(todo)
            took |= _make_all(todo, keys)
        return took


@contextmanager
def _alone() -> Iterator[None]:
    """Holds a lock, so that only one clone of this user makes parts at a time."""
    settings.HOME.mkdir(parents=True, exist_ok=True)
    with (settings.HOME / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"world: waiting for another run that locks {settings.HOME}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _keys(steps: Mapping[str, Step], source: Source) -> dict[str, str]:
    """Returns, for each part, a digest of its recipe, its inputs and its dependencies."""
    keys: dict[str, str] = {}
    for name, step in steps.items():
        digest = hashlib.sha256(f"{source} {step.part.version} {step.recipe.made_from}".encode())
        for path in step.recipe.inputs:
            for file in _files(settings.ROOT / path[1:] if path.startswith("/") else settings.HERE / path):
                digest.update(f"{file.relative_to(settings.ROOT)}\0".encode() + file.read_bytes())
        for need in sorted(schedule.needs(step, steps)):
            if steps[need].part.stamped:
                digest.update(keys[need].encode())
        keys[name] = digest.hexdigest()
    return keys


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _missing(goals: Collection[str], steps: Mapping[str, Step], keys: Mapping[str, str]) -> dict[str, Step]:
    """Returns the goals to make and, of their dependencies, those to make. Skips dependencies of current parts."""
    current = {name: _current(step, keys[name]) for name, step in steps.items()}
    needed_by: dict[str, set[str]] = {name: set() for name in steps}
    for name, step in steps.items():
        for need in schedule.needs(step, steps):
            needed_by[need].add(name)
    todo: dict[str, Step] = {}
    for name in reversed(list(steps)):  # dependents before dependencies
        if not current[name] and (name in goals or needed_by[name] & todo.keys()):
            todo[name] = steps[name]
    return {name: todo[name] for name in steps if name in todo}


def _current(step: Step, key: str) -> bool:
    if not step.part.present():
        return False
    if not step.part.stamped:
        return True
    stamp = settings.STAMPS / step.name
    # No stamp: this program didn't make it, but it is usable, such as a program on PATH or a pulled image.
    return not stamp.exists() or stamp.read_text() == key


def _install(todo: Mapping[str, Step]) -> None:
    """Installs missing Debian packages that the parts need. Raises FailedError if it may not install them."""
    packages = machine.missing({command for step in todo.values() for command in step.recipe.commands})
    if not packages:
        return
    if not machine.may_install():
        raise machine.must_be_installed(packages)
    say(f"world: installing from Debian: {' '.join(packages)} (NO_INSTALL=1 prevents this; make purge removes them)")
    job = Job("debian-packages")
    start = time.monotonic()
    try:
        machine.install(job, packages)
    except FailedError as error:
        raise _explained(job, error) from None
    say(f"  installed in {minutes(time.monotonic() - start)}")


def _check_machine(todo: Mapping[str, Step]) -> None:
    """Prints the expected time and disk space. Raises FailedError if the machine has too little disk or memory."""
    megabytes = sum(step.recipe.megabytes for step in todo.values())
    compiles = any(step.recipe.compiles for step in todo.values())
    megabytes += 6000 if compiles else 0
    seconds = schedule.forecast(todo, {})
    parts = "1 part" if len(todo) == 1 else f"{len(todo)} parts"
    say(
        f"world: {parts} to make, about {roughly(seconds)}, up to {megabytes / 1024:.1f} GiB of disk: {', '.join(todo)}"
    )
    places = [settings.HOME]
    if root := docker.output("info", "--format", "{{.DockerRootDir}}"):
        places.append(Path(root))
    for place in places:
        free = machine.free_megabytes(place)
        if free < megabytes + (_SPARE_MEGABYTES if megabytes > 1000 else 0):
            raise FailedError(
                f"{place} has {free / 1024:.1f} GiB free; {(megabytes + _SPARE_MEGABYTES) / 1024:.1f} GiB are needed",
                "free disk space, or set TRITON_OPERATOR_CACHE to a folder on a larger disk",
            )
    memory = machine.memory_megabytes()
    if (compiles or "cluster" in todo) and memory < _MEMORY_MEGABYTES:
        raise FailedError(
            f"this machine has {memory / 1024:.1f} GiB of memory; {_MEMORY_MEGABYTES / 1024:.1f} are needed"
        )


def _make_all(todo: dict[str, Step], keys: Mapping[str, str]) -> dict[str, float]:
    steps, left, took = dict(todo), dict(todo), {}
    jobs: dict[str, Job] = {}
    futures: dict[concurrent.futures.Future[None], str] = {}
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=schedule.AT_ONCE)
    with Progress(len(steps)) as progress:
        try:
            while left:
                names = schedule.startable(left, jobs.keys(), steps)
                for name in names:
                    jobs[name] = Job(name)
                    futures[pool.submit(_make, steps[name], jobs[name], keys[name])] = name
                progress.started(names, schedule.forecast(left, progress.running() | dict.fromkeys(names, 0.0)))
                completed, _ = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in completed:
                    name = futures.pop(future)
                    job = jobs.pop(name)
                    if isinstance(error := future.exception(), FailedError):
                        raise _explained(job, error, steps[name].recipe.advice)
                    future.result()
                    del left[name]
                    running = {other: progress.elapsed(other) for other in jobs}
                    took[name] = progress.done(name, schedule.forecast(left, running))
        finally:
            for job in jobs.values():
                job.cancel()
            pool.shutdown(wait=True, cancel_futures=True)
    return took


def _make(step: Step, job: Job, key: str) -> None:
    stamp = settings.STAMPS / step.name
    try:
        # Without a valid stamp an interrupted part is made again.
        stamp.unlink(missing_ok=True)
        if step.part.stamped:
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text("unfinished")
        step.recipe.make(job)
        if step.part.stamped:
            stamp.write_text(key)
    finally:
        job.close()


def _explained(job: Job, error: FailedError, advice: str = "") -> FailedError:
    """Returns the error with the part's name and the last lines of its log."""
    tail = "\n".join(f"    {line}" for line in job.tail())
    advice = error.advice or advice or "run the same command again; finished parts are kept"
    return FailedError(f"{job.name} failed: {error}\n  the last lines of {job.log_path}:\n{tail}", advice)
