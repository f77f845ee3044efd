"""The reconciler's cache."""

from __future__ import annotations

from triton_operator.plan import Applied
from triton_operator.reconcile.cache import ReconcileCache

POD, SERVICE = ("Deployment", "a"), ("Service", "a")


def test_another_version_of_the_cluster_gets_the_fields_that_the_former_one_dropped() -> None:
    cache = ReconcileCache()
    cache.use_version((1, 34))
    cache.applied = {POD: Applied("1", b"", b"", (".spec.a",)), SERVICE: Applied("2", b"", b"")}
    cache.unchanged = {POD: ("1", "1", b""), SERVICE: ("2", "1", b"")}
    cache.use_version((1, 34))
    assert cache.applied.keys() == cache.unchanged.keys() == {POD, SERVICE}
    cache.use_version((1, 35))
    assert cache.applied.keys() == cache.unchanged.keys() == {SERVICE}
