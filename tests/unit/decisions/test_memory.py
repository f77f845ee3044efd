"""What the reconciler remembers."""

from __future__ import annotations

from triton_operator.decisions.memory import Memory
from triton_operator.plan import Applied

POD, SERVICE = ("Deployment", "a"), ("Service", "a")


def test_another_version_of_the_cluster_gets_the_fields_that_the_former_one_dropped() -> None:
    memory = Memory(
        kubernetes=(1, 34),
        applied={POD: Applied("1", b"", b"", (".spec.a",)), SERVICE: Applied("2", b"", b"")},
        unchanged={POD: ("1", "1", b""), SERVICE: ("2", "1", b"")},
    )
    assert memory.with_version((1, 34)) == memory
    later = memory.with_version((1, 35))
    assert later.applied.keys() == later.unchanged.keys() == {SERVICE}
    assert later.kubernetes == (1, 35)
