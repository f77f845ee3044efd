#!/usr/bin/env python3
"""kubectl triton, as krew installs it.

The first run installs the packages of requirements.txt and the wheel beside this file into a venv, and every run starts
the command in it. Settings of pip (PIP_INDEX_URL, PIP_NO_INDEX, PIP_FIND_LINKS, …) are respected. The venv is in the
plugin's folder, which krew deletes with the plugin, or in the user's cache if that folder can't be written.

This file has only syntax of Python 3.6, so that an older Python can name the problem.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST, NEWEST = 11, 20
COMMAND = "import sys; from kubectl_triton.main import main; sys.exit(main(prog_name='kubectl triton'))"
HINT = "can't install its packages; check pip's index (PIP_INDEX_URL), or set PIP_NO_INDEX=1 and PIP_FIND_LINKS=FOLDER"


def main():
    if sys.version_info < (3, OLDEST):
        pythons = [shutil.which(f"python3.{minor}") for minor in range(NEWEST, OLDEST - 1, -1)]
        newest = next(filter(None, pythons), None)
        if not newest:
            fail("needs Python 3.11 or later on PATH")
        os.execv(newest, [newest, __file__, *sys.argv[1:]])
    python = str(environment() / "bin" / "python")
    # -I: PYTHONPATH and the user's own packages don't matter.
    os.execv(python, [python, "-I", "-c", COMMAND, *sys.argv[1:]])


def environment():
    """Returns the folder of the venv, after making it if there is none that works."""
    name = f"venv-3.{sys.version_info[1]}"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = caches / "kubectl-triton" / wheel().stem
    for folder in (HERE / name, cache / name):
        if works(folder):
            return folder
    parent = HERE if os.access(str(HERE), os.W_OK) else cache
    parent.mkdir(parents=True, exist_ok=True)
    make(parent, parent / name)
    return parent / name


def works(folder):
    """Returns whether the venv exists. Its link to a Python that was deleted counts as missing."""
    return (folder / "bin" / "python").exists()


def make(parent, target):
    """Makes the venv beside its final place and renames it, so that an interrupted run leaves no half of one."""
    sys.stderr.write("kubectl triton: the first run installs its packages, about 50 MB\n")
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=str(parent)))
    try:
        run([sys.executable, "-m", "venv", folder], "can't make a venv (Debian: install python3-venv)")
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
        run([*pip, "--only-binary=:all:", "--require-hashes", "-r", HERE / "requirements.txt"], HINT)
        run([*pip, "--no-index", wheel()], HINT)
        if works(target):  # another run was faster, and may use it
            return
        shutil.rmtree(str(target), ignore_errors=True)
        folder.rename(target)
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)


def run(command, hint):
    """Runs the command. Standard output is only for that of `kubectl triton`."""
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode:
        sys.stderr.write(result.stdout.decode(errors="replace")[-2000:])
        fail(hint)


def fail(message):
    sys.stderr.write(f"kubectl triton: {message}\n")
    sys.exit(1)


def wheel():
    [file] = HERE.glob("*.whl")
    return file


if __name__ == "__main__":
    main()
