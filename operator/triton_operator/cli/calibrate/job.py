"""The Job that runs a calibration in the cluster. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .pod import Object

_GRACE_SECONDS = 60
"""Time to delete the calibration's pod when the Job is deleted."""
_KEPT_SECONDS = 7 * 86400
"""So long the result can be read from the log."""


def job(model: str, namespace: str | None, account: str, image: str, options: Sequence[str], seconds: int) -> Object:
    """Returns a Job that runs `kubectl-triton calibrate` with these options as the ServiceAccount `account`.

    `seconds`: the time limit. The Job doesn't try again, because a calibration that failed has a reason.
    """
    container = {
        "name": "calibrate",
        "image": image,
        "command": ["kubectl-triton", "calibrate", model, *options],
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "serviceAccountName": account,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"{model[:40]}-calibrate-", **({"namespace": namespace} if namespace else {})},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"spec": pod},
        },
    }
