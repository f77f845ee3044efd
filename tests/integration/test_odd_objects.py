"""Unusual objects that the API server accepts: they don't affect other TritonModels."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import gen, operator_process
from support.api import Api, condition, eventually
from support.controlplane import ControlPlane
from support.people import make

pytestmark = pytest.mark.integration

# Everyone who may write an object may write this, and the API server stores it.
NO_MANAGER = {
    "operation": "Update",
    "apiVersion": "tritonoperator.io/v1alpha1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:annotations": {"f:x": {}}}},
}


def test_reconciles_a_tritonmodel_with_managed_fields_without_a_manager(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    make(api, "odd", {"tritonoperator.io/max-qps": "7", "x": "y"})
    api.patch("TritonModel", "odd", {"metadata": {"managedFields": [NO_MANAGER]}})
    managed_fields = api.get("TritonModel", "odd")["metadata"]["managedFields"]
    assert [entry.get("manager") for entry in managed_fields] == [None]
    with operator_process.running(operator_process.install(control_plane), tmp_path) as operator:
        make(api)
        for name in ("odd", gen.NAME):
            eventually(lambda name=name: api.find("Deployment", name), 20, lambda: operator.log)
            eventually(lambda name=name: condition(api.get("TritonModel", name), "Ready"), 20, lambda: operator.log)
        assert 'tritonmodel="odd"' in operator.get("/metrics")
        assert "Traceback" not in operator.log
