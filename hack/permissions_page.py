"""Generates docs/permissions.md: the operator's RBAC rules and their reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from triton_operator.manifests import rbac
from triton_operator.manifests.rbac import Grant

_HEAD = """\
<!-- Made by `make generate` from operator/triton_operator/manifests/rbac.py. -->
# What the operator may do

For cluster administrators and security reviewers: which permissions the operator has, and why it needs each one.

The tables list the rules of `manifests/rbac/operator.yaml` with their reasons. The operator has no rule for:

- Secrets
- logs of pods, and commands in pods
- roles and role bindings
- writing a TritonModel, except its status

`tests/security/test_least_privilege.py` runs the operator on a real API server with an audit log. The test checks that
the operator uses every verb, or gives the reason why the audit log can't show it. It also checks that the API server
refuses no request.
"""


def text() -> str:
    return "\n".join(
        [
            _HEAD,
            "## In the served namespaces\n",
            *_table(rbac.grants()),
            "\n## In the whole cluster\n",
            "The namespaced installation (`manifests/namespaced`) doesn't have these rules.\n",
            *_table(rbac.cluster_grants()),
            "\n## In its own namespace\n",
            *_table(rbac.own_grants()),
            "",
        ]
    )


def _table(grants: Iterable[Grant]) -> Iterable[str]:
    """Yields the lines of a Markdown table with one row for each reason."""
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
