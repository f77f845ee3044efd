"""What a killed Docker leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.world.parts import docker_daemon


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without processes of containers. Returns the folder of its cgroups and interfaces."""
    monkeypatch.setattr(docker_daemon, "_CGROUPS", tmp_path)
    monkeypatch.setattr(docker_daemon, "_INTERFACES", tmp_path)
    monkeypatch.setattr(docker_daemon, "_container_processes", list)
    monkeypatch.setattr(docker_daemon, "_is_running", lambda _: False)
    return tmp_path


@pytest.mark.parametrize(
    ("state", "frozen", "thawed"),
    [("freezer/docker/0a/kubepods/0b/freezer.state", "FROZEN", "THAWED"), ("docker/0a/init/cgroup.freeze", "1", "0")],
)
def test_thaws_the_cgroups_of_former_containers(machine: Path, state: str, frozen: str, thawed: str) -> None:
    """A frozen process survives SIGKILL."""
    file, other = machine / state, machine / "freezer" / "user" / "freezer.state"
    for path, text in ((file, frozen), (other, "FROZEN")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    docker_daemon.end_leftovers(print)
    assert file.read_text() == thawed
    assert other.read_text() == "FROZEN", "not a container of Docker"


def test_deletes_the_interfaces_of_former_containers(machine: Path) -> None:
    """Such an interface has the address that a new container may get."""
    for name, bridge in (("veth1", "br-3458f92d1296"), ("veth2", "docker0"), ("veth3", "lxdbr0"), ("eth0", "docker0")):
        (machine / name).mkdir()
        (machine / bridge).mkdir(exist_ok=True)
        (machine / name / "master").symlink_to(f"../{bridge}")
    (machine / "veth4").mkdir()
    ran: list[tuple[str, ...]] = []
    docker_daemon.end_leftovers(lambda *command: ran.append(command))
    assert sorted(ran) == [("ip", "link", "delete", name) for name in ("veth1", "veth2")]


def test_leaves_the_containers_of_a_running_docker_alone(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be slow, or have another address than the one that this user has set."""
    monkeypatch.setattr(docker_daemon, "_is_running", lambda name: name == "dockerd")
    state = machine / "docker" / "0a" / "cgroup.freeze"
    state.parent.mkdir(parents=True)
    state.write_text("1")
    for name in ("veth1", "docker0"):
        (machine / name).mkdir()
    (machine / "veth1" / "master").symlink_to("../docker0")
    docker_daemon.end_leftovers(pytest.fail)
    assert state.read_text() == "1"


@pytest.mark.parametrize(
    ("own", "ended"),
    [
        pytest.param("", [2, 3, 4], id="on the machine"),
        pytest.param(f"/docker/{'a' * 64}", [3, 4], id="in a container of another Docker"),
    ],
)
def test_ends_the_processes_of_former_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, ended: list[int]
) -> None:
    """In a container with the cgroups of the machine, the user's shell has a cgroup of Docker, too."""
    outer, inner = f"/docker/{'a' * 64}", f"/docker/{'b' * 64}"
    cgroups = {"self": own, "1": "/user.slice", "2": outer, "3": f"{outer}{inner}/init", "4": inner, "5": inner}
    for name, cgroup in cgroups.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(f"8:pids:{cgroup or '/'}\n0::{cgroup or '/'}\n")
        if name != "5":  # a zombie
            (tmp_path / name / "exe").symlink_to("/bin/sh")
    monkeypatch.setattr(docker_daemon, "_PROCESSES", tmp_path)
    assert sorted(docker_daemon._container_processes()) == ended
