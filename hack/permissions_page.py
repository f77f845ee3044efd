"""docs/permissions.md: what the operator may do, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from triton_operator.manifests import rbac
from triton_operator.manifests.rbac import Grant

_HEAD = """\
<!-- Made by `make generate` from operator/triton_operator/manifests/rbac.py. -->
# What the operator may do

Each rule of `manifests/rbac/operator.yaml` with its reason. `tests/security/test_least_privilege.py` runs the operator
through what it does, on a real API server with an audit log: every verb is used there, or has in the test the reason
why it can't be seen, and no request is refused. There is no rule for Secrets and ConfigMaps, for the logs of pods or
for commands in them, for roles, and for writing a TritonModel but for its status.
"""


def text() -> str:
    return "\n".join(
        [
            _HEAD,
            "## In the namespaces that are served\n",
            *_table(rbac.grants()),
            "\n## In the cluster as a whole\n",
            "The namespaced installation does without (`manifests/namespaced`).\n",
            *_table(rbac.cluster_grants()),
            "\n## In its own namespace\n",
            *_table(rbac.own_grants()),
            "",
        ]
    )


def _table(grants: Iterable[Grant]) -> Iterable[str]:
    """One line for each reason."""
    yield "| Verbs | Resources | Why |"
    yield "|---|---|---|"
    lines: dict[tuple[str, str], list[str]] = {}
    for grant in grants:
        lines.setdefault((", ".join(grant.verbs), grant.why), []).extend(map(_of(grant), grant.resources))
    for (verbs, why), resources in lines.items():
        yield f"| {verbs} | {', '.join(resources)} | {why} |"


def _of(grant: Grant) -> Callable[[str], str]:
    group = f".{grant.group}" if grant.group else ""
    only = f" ({', '.join(grant.only)})" if grant.only else ""
    return lambda resource: f"`{resource}{group}`{only}"
