"""Measures the time of `make demo` on a bare machine that has only Debian, git, make and Python.

The machine is a new Debian system in a folder: an empty home, no Docker, and none of our tools on PATH. It shares this
machine's kernel and network. The benchmark stops this machine's Docker and doesn't start it again. It needs root on
Debian or Ubuntu, and the packages mmdebstrap and util-linux.

    make bench NAME=bare                                    runs make demo twice
    python -m benchmarks.bare --command "make test"         runs another command; repeat the option for several
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from hack.world.parts.base_images import mirror
from support.machine import machine

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "git,make,python3,ca-certificates"
# This machine's settings for the package registries. The bare machine gets a copy.
SITE_SETTINGS = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/apt/apt.conf.d/99*")
CERTIFICATES = Path("/usr/local/share/ca-certificates")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/bare-machine"), help="folder of the machine")
    parser.add_argument("--keep", action="store_true", help="use the machine of the last run")
    parser.add_argument("--release", default="bookworm", help="Debian release")
    parser.add_argument("--command", action="append", help="command to run there; default: make demo, twice")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        print("this benchmark needs root and the Debian package mmdebstrap", file=sys.stderr)
        return 2
    # Exit through the interpreter, so that --kill-child ends the machine.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    commands = options.command or ["make demo", "make demo"]
    stop_docker()
    if not (options.keep and options.folder.exists()):
        install(options.folder, options.release)
    clone_source(options.folder)
    code = run(options.folder, commands)
    times, parts = read(options.folder)
    for command, (status, seconds) in times:
        print(f"{seconds:8.0f} s  exit {status}  {command}")
    for name, took in sorted(parts.items(), key=lambda item: -item[1]):
        print(f"{took:8.0f} s  {name}")
    demos = [seconds for command, (status, seconds) in times if command == "make demo" and status == 0]
    figures = {
        "bare_to_boxes_s": demos[0] if demos and not options.keep else None,
        "second_demo_s": demos[1] if len(demos) > 1 else None,
        "commands": [{"command": command, "exit": status, "seconds": seconds} for command, (status, seconds) in times],
        "parts": parts,
        "exit": code,
        "machine": machine(),
    }
    print(json.dumps(figures))
    return code


def install(folder: Path, release: str) -> None:
    """Installs a minimal Debian with this machine's settings for the package registries."""
    if folder.exists():
        shutil.rmtree(folder)
    hooks = []
    for pattern in SITE_SETTINGS:
        hooks += [f"--customize-hook=copy-in {path} {path.parent}" for path in Path("/").glob(pattern)]
    for path in CERTIFICATES.glob("*.crt"):
        hooks.append(f"--customize-hook=copy-in {path} {CERTIFICATES}")
    hooks.append('--customize-hook=chroot "$1" update-ca-certificates')
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", *hooks, release, folder, mirror()],
        check=True,
    )


def clone_source(folder: Path) -> None:
    """Copies the committed repository to the machine and deletes the results of the last run."""
    target = folder / "checkout"
    for old in (
        target,
        folder / "root" / "triton-operator",
        folder / "root" / "times",
        folder / "root" / "parts.jsonl",
    ):
        shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
    subprocess.run(["git", "clone", "-q", "--bare", "--no-hardlinks", ROOT, target], check=True)


def stop_docker() -> None:
    """Stops this machine's Docker. Two daemons would overwrite each other's bridges and firewall rules."""
    pid_file = Path("/var/run/docker.pid")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        for _ in range(300):
            if not Path(f"/proc/{pid}").exists():
                break
            time.sleep(0.1)


def run(folder: Path, commands: list[str]) -> int:
    """Runs the commands on the machine with an empty environment and returns the exit code. Ends all its processes."""
    (folder / "inside.sh").write_bytes((Path(__file__).parent / "inside.sh").read_bytes())
    enter = f"""
    set -e
    mount --make-rprivate /
    mount --bind {folder} {folder}
    cd {folder}
    mount -t proc proc proc
    for name in dev sys; do mount --rbind /$name $name; done
    mkdir -p old
    pivot_root . old
    umount -l /old
    exec /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /inside.sh "$@"
    """
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc"]
    return subprocess.run([*namespaces, "bash", "-c", enter, "bare", *commands], check=False).returncode


def read(folder: Path) -> tuple[list[tuple[str, tuple[int, float]]], dict[str, float]]:
    """Returns the exit code and seconds of each command, and the seconds of each part of hack/world."""
    times = []
    for line in (folder / "root" / "times").read_text().splitlines():
        command, status, both = line.split("\t")
        end, start = map(float, both.split())
        times.append((command, (int(status), round(end - start, 1))))
    parts: dict[str, float] = {}
    report = folder / "root" / "parts.jsonl"
    for line in report.read_text().splitlines() if report.exists() else []:
        # Every run reports the cluster, but only the first creates it: take the longest.
        parts |= {name: max(took, parts.get(name, 0.0)) for name, took in json.loads(line)["parts"].items()}
    return times, parts


if __name__ == "__main__":
    sys.exit(main())
