"""The versions in go.mod, in the parts and in the manifests are the same."""

from __future__ import annotations

import re

import pytest

from hack.world import settings
from hack.world.parts import ALL, monitoring

PINNED = [
    ("kubernetes", "k8s.io/kubernetes", "kubernetes"),
    ("kubernetes", "sigs.k8s.io/kind", "kind"),
    ("kubernetes", "github.com/containerd/containerd/v2", "containerd"),
    ("kubernetes", "github.com/coredns/coredns", "coredns"),
    ("prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "prometheus-operator"),
    ("prometheus-adapter", "sigs.k8s.io/prometheus-adapter", "adapter"),
    ("helm", "helm.sh/helm/v4", "helm"),
    ("keda", "github.com/kedacore/keda/v2", "keda"),
    ("envoy-gateway", "github.com/envoyproxy/gateway", "gateway"),
    ("ratelimit", "github.com/envoyproxy/ratelimit", "ratelimit-program"),
    ("cosign", "github.com/sigstore/cosign/v2", "cosign"),
]


@pytest.mark.parametrize(("module", "package", "part"), PINNED, ids=[row[2] for row in PINNED])
def test_go_mod_pins_the_version_of_the_part(module: str, package: str, part: str) -> None:
    text = (settings.HERE / "go" / module / "go.mod").read_text()
    pinned = re.search(rf"^(?:require)?\s*{re.escape(package)} (v\S+)", text, re.MULTILINE)
    assert pinned is not None
    assert pinned[1] == ALL[part].version


@pytest.mark.parametrize("image", monitoring.IMAGES)
def test_the_monitoring_images_are_in_the_manifests(image: str) -> None:
    files = [*(settings.ROOT / "manifests").rglob("*.yaml"), *(settings.ROOT / "tests/support/vendor").glob("*.yaml")]
    assert any(image in file.read_text() for file in files)
