"""What a user who may not create pods may use, by docs/security.md."""

from __future__ import annotations

FIELDS = ("affinity", "containers", "nodeSelector", "tolerations", "topologySpreadConstraints", "volumes")
"""Fields of spec.podTemplate.spec."""
CONTAINER = ("name", "args", "command", "env", "volumeMounts", "workingDir")
"""Fields of the server's container."""
VALUE_FROM = ("fieldRef", "resourceFieldRef")
"""Sources of environment variables."""
ANNOTATIONS = ("kubectl.kubernetes.io/restartedAt",)
"""Annotations with a prefix."""
TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Keys of tolerations, beside the server's extended resources."""
