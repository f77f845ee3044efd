"""The parts of the tests, and which of them each target of the Makefile runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hack.world import settings

Lane = Literal["machine", "cluster"]
"""Parts of one lane run one after the other, and the lanes at the same time. At the end of the cluster's parts, the
parts of the machine that are left run two at a time.

machine  processes and containers on this machine, which compute while the cluster waits
cluster  the kind cluster of `make demo`
"""


@dataclass(frozen=True)
class Part:
    """Tests that run in one pytest process.

    Attributes:
        select: pytest's marker expression.
        workers: processes of pytest-xdist. Each has its own servers and runs whole files. Tests that mostly wait get
            more processes than the two cores of the smallest machine. 0: no other process.
        paths: folders; all tests without. A process reads only these: all tests take 13 s of CPU in each process.
        kubernetes: the release of its control plane; without, the one in KUBEBUILDER_ASSETS.
    """

    name: str
    what: str
    select: str
    lane: Lane = "machine"
    workers: int = 0
    paths: tuple[str, ...] = ()
    kubernetes: str = ""


_OTHERS = ("rules", "server", "integration", "release", "faults", "properties", "e2e", "docs")
_SHARED = "not operation and not installation"
_E2E = ("tests/e2e",)
_ADMISSION = (
    "tests/integration/test_admission.py", "tests/integration/test_compatibility.py",
    "tests/integration/test_manifests.py", "tests/integration/test_charts_install.py", "tests/integration/policies",
)  # fmt: skip

PARTS = (
    Part(
        "unit", "pure code and golden files", " and ".join(f"not {marker}" for marker in _OTHERS), workers=2,
        paths=("tests/unit", "tests/golden", "tests/model_images", "tests/properties", "tests/security"),
    ),
    Part("releases", "the charts and the files of a release", "release", workers=2, paths=("tests/integration",)),
    Part(
        "images", "the sample images with a real Triton in Docker", "server", workers=2, paths=("tests/model_images",),
    ),
    Part(
        "server", "the operator's programs with a real Triton in Docker", "server", workers=2,
        paths=("tests/server", "tests/corpus"),
    ),
    Part(
        "rules", "the rules and the dashboards' queries against a real Prometheus", "rules", workers=6,
        paths=("tests/rules", "tests/properties"),
    ),
    Part(
        "properties", "generated bad input against a real API server", "properties", workers=2,
        paths=("tests/properties",),
    ),
    Part(
        "security", "attacks and permissions with a real API server", "integration", workers=3,
        paths=("tests/security",),
    ),
    Part(
        "integration", "the operator against a real API server", "integration", workers=6,
        paths=("tests/integration", "tests/golden"),
    ),
    Part("faults", "the operator under faults of its surroundings", "faults", workers=3, paths=("tests/faults",)),
    *(
        Part(
            name, f"installation, admission and policies on Kubernetes {release}", "integration or release",
            workers=2, paths=_ADMISSION, kubernetes=release,
        )
        for name, release in (("oldest", settings.SUPPORTED[0]), ("newest", settings.SUPPORTED[-1]))
    ),
    Part("path", "one user's way through the kind cluster", "e2e and path and not installation", "cluster", 2, _E2E),
    Part("uninstall", "the end of that way", "e2e and path and installation", "cluster", paths=_E2E),
    Part("shared", "all that users do in the kind cluster", f"e2e and {_SHARED}", "cluster", 3, _E2E),
    Part("operations", "outages and changes of operator and cluster", "e2e and operation", "cluster", paths=_E2E),
    Part("installations", "other installations and what they need", "e2e and installation", "cluster", paths=_E2E),
)  # fmt: skip
"""In the order in which a lane runs them. What only computes runs beside the part `shared`, which computes most in the
cluster; what fails without a core for some seconds runs later."""

# The longest first, so that none is left alone at the end.
GROUPS: dict[str, tuple[str, ...]] = {
    "test": ("integration", "unit", "rules", "security", "images", "path", "uninstall"),
    "e2e": ("shared", "installations", "operations"),
    "compat-triton": ("server", "images"),
    "compat": ("integration", "security", "properties", "faults"),
    "test-all": tuple(part.name for part in PARTS if part.name not in ("path", "uninstall")),
}


def chosen(names: list[str], *, soak: bool = False, kubernetes: str = "") -> list[Part]:
    """Returns the parts of these names and groups, in their order. Raises ValueError for an unknown name.

    `soak`: the pure properties run too. `kubernetes`: the release of all control planes.
    """
    by_name = {part.name: part for part in PARTS}
    selected = dict.fromkeys(part for name in names for part in GROUPS.get(name, (name,)))
    if unknown := selected.keys() - by_name.keys():
        raise ValueError(f"no such part: {', '.join(sorted(unknown))}; one of {', '.join([*GROUPS, *by_name])}")
    parts = [replace(by_name[name], kubernetes=kubernetes or by_name[name].kubernetes) for name in selected]
    if not soak:
        return parts
    return [
        replace(part, select="", paths=("tests/properties",)) if part.name == "properties" else part for part in parts
    ]
