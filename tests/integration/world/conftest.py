"""One operator with its shipped permissions, for the tests of this folder.

No kubelet and no controllers run. A test that needs a pod's status writes it as the kubelet does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import operator_process
from support.controlplane import ControlPlane
from support.operator_process import Operator


@pytest.fixture(scope="package")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    kubeconfig = operator_process.install(control_plane)
    with operator_process.running(kubeconfig, tmp_path_factory.mktemp("operator")) as process:
        yield process
        assert process.stop() == 0
        # No test of this folder caused an unexpected error.
        assert "Traceback" not in process.log
        assert process.errors == []
