"""Generates docs/permissions.md from the operator's RBAC rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from triton_operator.manifests import rbac
from triton_operator.manifests.rbac import Grant

_HEAD = """\
<!-- Made by `make generate` from operator/triton_operator/manifests/rbac.py. -->
# What the operator may do

For security reviewers: each permission of the operator (`manifests/rbac/operator.yaml`) and its reason.

It has no permission for Secrets and ConfigMaps, for pod logs and `exec`, for roles, or for writing TritonModels except
their status. `tests/security/test_least_privilege.py` runs the operator on a real API server with an audit log. It
checks that no request is rejected and that each verb is used, or gives the reason why the test can't use it.
"""


def text() -> str:
    return "\n".join(
        [
            _HEAD,
            "## In the namespaces that it watches\n",
            *_table(rbac.grants()),
            "\n## In the whole cluster\n",
            "The installation for one namespace (`manifests/namespaced`) doesn't have these.\n",
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
