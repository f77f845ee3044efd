"""The versions of Kubernetes that the operator supports.

It imports nothing, so that hack/world can read it without the Python packages.
"""

TESTED = ("v1.31.13", "v1.32.9", "v1.33.5", "v1.34.4", "v1.35.4", "v1.36.3", "v1.37.2")
"""The releases that `make compat` tests, one of each supported minor version, oldest first.

The rule: at least the minor versions that the Kubernetes project maintains, and the two before them for managed
clusters with long support. An older one stays for as long as it costs nothing."""


def minor(version: str) -> tuple[int, int]:
    """Returns the major and minor version of e.g. `v1.31.13` or `1.31+`; (0, 0) if it has another form."""
    major, _, rest = version.removeprefix("v").partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return (int(major), int(digits)) if major.isdecimal() and digits else (0, 0)


IMAGE_VOLUMES = (1, 35)
"""The first version with image volumes by default."""
OLDEST, NEWEST = minor(TESTED[0]), minor(TESTED[-1])


def name(version: tuple[int, int]) -> str:
    """Returns a version as people write it, e.g. `1.31`."""
    return f"{version[0]}.{version[1]}"


def cluster(version: tuple[int, int]) -> str:
    """Returns the subject of a sentence about a cluster of this version; (0, 0) if it isn't known."""
    return "this cluster's Kubernetes" if version == (0, 0) else f"this cluster's Kubernetes {name(version)}"


def too_old(version: tuple[int, int]) -> str:
    """Returns what to tell if a cluster's version isn't supported any more; "" if it is, or isn't known."""
    if version == (0, 0) or version >= OLDEST:
        return ""
    return f"Kubernetes {name(version)} is older than {name(OLDEST)}, the oldest version that the operator supports"
