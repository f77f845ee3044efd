#!/usr/bin/env bash
# cluster.sh up: creates a kind cluster that pulls from a local registry; keeps an existing healthy one. PERIODS=short
#   makes the kubelet and the HPA controller of a running cluster look every 5 s, which the tests want: they don't wait for
#   Kubernetes. PERIODS=default sets Kubernetes' own periods of a minute and 15 s again, which the benchmarks measure.
# cluster.sh registry: starts only the registry.
# cluster.sh mirror: pushes the public images that were built from packages to the registry, for the cluster's pods.
# cluster.sh down: deletes the cluster and the registry.
. "$(dirname "$0")/lib.sh"

node=$CLUSTER-control-plane
# These files take effect only when a cluster is created: if they change, the cluster is created again.
made_with=$(digest_of hack/kind.yaml manifests/audit/policy.yaml)

registry() {
  docker network inspect kind >/dev/null 2>&1 || { remember network kind && docker network create kind >/dev/null; }
  remember container "$REGISTRY_NAME"
  if [ "$(docker inspect -f '{{.State.Running}}' "$REGISTRY_NAME" 2>/dev/null)" != true ]; then
    say "starting the registry $REGISTRY"
    docker start "$REGISTRY_NAME" >/dev/null 2>&1 || new_registry
  fi
  answers && return 0
  # Docker before 23 can kill the process that forwards the port (moby#44215). A restart of the container starts it.
  say "the registry $REGISTRY doesn't answer: restarting it"
  docker restart -t 2 "$REGISTRY_NAME" >/dev/null && answers && return 0
  say "the registry $REGISTRY doesn't answer: creating it again"
  docker logs --tail 20 "$REGISTRY_NAME" >&2 || true
  new_registry
  answers || {
    docker logs --tail 20 "$REGISTRY_NAME" >&2 || true
    docker ps -a >&2
    die "the registry at $REGISTRY doesn't answer"
  }
}

new_registry() {
  # A container whose creation failed halfway still has the name.
  docker rm -f -v "$REGISTRY_NAME" >/dev/null 2>&1 || true
  docker run -d --restart unless-stopped --name "$REGISTRY_NAME" --network kind -p "127.0.0.1:$REGISTRY_PORT:5000" \
    registry:2 >/dev/null
}

# answers: waits until the registry answers, at most 20 s. A machine that has just started Docker is busy.
answers() {
  local deadline=$((SECONDS + 20))
  until curl -fs -m 5 "http://$REGISTRY/v2/" >/dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.5
  done
}

# ours: the node runs, with these settings, this image and the address that its API server announces. After a restart
# Docker may give the node another address. kind's own node image then changes its settings, that from packages doesn't.
ours() {
  [ "$(docker inspect -f '{{.State.Running}}' "$node" 2>/dev/null)" = true ] &&
    docker exec "$node" grep -Fqx -e "    - --advertise-address=$(address)" /etc/kubernetes/manifests/kube-apiserver.yaml &&
    [ "$(docker exec "$node" cat /kind/made-with 2>/dev/null)" = "$made_with" ] &&
    [ "$(docker inspect -f '{{.Image}}' "$node")" = "$(docker image inspect -f '{{.Id}}' "$KIND_NODE_IMAGE" 2>/dev/null)" ]
}

address() { docker inspect -f '{{.NetworkSettings.Networks.kind.IPAddress}}' "$node"; }

# works: waits until the cluster answers and its node is ready, at most 300 s. A busy machine is only slow, and others
# may be using the cluster.
works() {
  local deadline=$((SECONDS + 300))
  until kind export kubeconfig --name "$CLUSTER" -q &&
    kubectl --request-timeout=30s get --raw /readyz >/dev/null 2>&1 &&
    kubectl wait node --all --for=condition=Ready --timeout=60s >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 2
  done
}

# In the node, localhost:PORT is the node itself, so containerd needs the registry's real address. If images are built
# from packages, this registry replaces every other registry, too.
trust_registry() {
  local name names=$REGISTRY
  if packages_world; then names="$names _default"; fi
  for name in $names; do
    docker exec -i "$node" sh -c "mkdir -p /etc/containerd/certs.d/$name && cat >/etc/containerd/certs.d/$name/hosts.toml" \
      <<<"[host.\"http://$REGISTRY_NAME:5000\"]"
  done
}

# An image's path in a registry omits the registry's name: quay.io/a/b:1 is a/b:1, busybox:1 is library/busybox:1.
mirror() {
  local tag path
  packages_world || return 0
  for tag in $(PYTHONDONTWRITEBYTECODE=1 "$(python)" -m hack.world mirrored); do
    case $tag in
      *.*/*/*) path=${tag#*/} ;;
      */*) path=$tag ;;
      *) path=library/$tag ;;
    esac
    curl -fsI -o /dev/null "http://$REGISTRY/v2/${path%:*}/manifests/${path##*:}" \
      -H 'Accept: application/vnd.docker.distribution.manifest.v2+json' && continue
    say "pushing $tag to the registry"
    docker tag "$tag" "$REGISTRY/$path"
    quietly "mirror-${path##*/}" docker push -q "$REGISTRY/$path"
    docker rmi "$REGISTRY/$path" >/dev/null
  done
}

# Until kube-proxy has the rules of a new Service, packets to its address leave the node. If the network outside answers,
# as that of some CI machines does, the API server keeps a connection to a server that isn't the Service's.
keep_services_inside() {
  docker exec "$node" sh -ec 'for chain in OUTPUT FORWARD; do
    rule="$chain -d 10.96.0.0/16 -o eth0 -j REJECT"
    iptables -w 30 -C $rule 2>/dev/null || iptables -w 30 -I $rule
  done'
}

up() {
  need_docker
  registry
  remember cluster "$CLUSTER"
  if ours && works; then
    say "the cluster $CLUSTER is up"
  else
    docker inspect "$node" >/dev/null 2>&1 && say "the cluster $CLUSTER is unhealthy or has other settings: deleting it"
    quietly kind-delete kind delete cluster --name "$CLUSTER"
    say "creating the cluster $CLUSTER ($KIND_NODE_IMAGE)"
    # The node mounts this folder for as long as it lives, perhaps longer than this clone.
    mkdir -p "$shared/audit"
    cp manifests/audit/policy.yaml "$shared/audit/"
    sed "s#hostPath: manifests/audit#hostPath: $shared/audit#" hack/kind.yaml >"$cache/kind.yaml"
    quietly kind-create kind create cluster --name "$CLUSTER" --image "$KIND_NODE_IMAGE" --config "$cache/kind.yaml" --wait 600s
    docker exec "$node" sh -c "echo $made_with >/kind/made-with"
  fi
  keep_services_inside
  trust_registry
  if [ -n "${PERIODS:-}" ]; then periods "$PERIODS"; fi
}

# periods short|default: changes nothing that is right, because both components restart.
periods() {
  local sync=0s flag='' state leader deadline=$((SECONDS + 120))
  case $1 in
    short) sync=5s flag='    - --horizontal-pod-autoscaler-sync-period=5s' ;;
    default) ;;
    *) die "PERIODS is short or default, not $1" ;;
  esac
  state=$(docker exec "$node" cat /kind/periods 2>/dev/null || echo default)
  [ "$state" != "$1" ] || return 0
  say "the cluster $CLUSTER: $1 periods of the kubelet and of the HPA controller"
  leader=$(controller_manager)
  docker exec -i "$node" bash -s <<SCRIPT
set -euo pipefail
sed -i 's/^syncFrequency:.*/syncFrequency: $sync/' /var/lib/kubelet/config.yaml
manifest=/etc/kubernetes/manifests/kube-controller-manager.yaml
sed '/--horizontal-pod-autoscaler-sync-period/d' \$manifest >/tmp/manifest
[ -z '$flag' ] || sed -i '/^    - kube-controller-manager$/a\\$flag' /tmp/manifest
cat /tmp/manifest >\$manifest
systemctl restart kubelet
echo $1 >/kind/periods
SCRIPT
  quietly "periods-$CLUSTER" kubectl wait node --all --for=condition=Ready --timeout=120s
  # The restarted controller manager leads after the lease of the former one has expired.
  until [ "$(controller_manager)" != "$leader" ]; do
    [ "$SECONDS" -lt "$deadline" ] || die "kube-controller-manager doesn't lead again: docker exec $node crictl ps -a"
    sleep 1
  done
}

controller_manager() {
  kubectl -n kube-system get lease kube-controller-manager -o jsonpath='{.spec.holderIdentity}' 2>/dev/null || echo "$leader"
}

down() {
  say "deleting the cluster $CLUSTER and its registry"
  if command -v kind >/dev/null; then kind delete cluster --name "$CLUSTER" -q || true; fi
  docker rm -f -v "$REGISTRY_NAME" >/dev/null 2>&1 || true
  rm -rf "$KUBECONFIG" "$cache/pushed" manifests/overlays/local manifests/overlays/local-sample
}

case ${1:-} in
  up | registry | mirror | down) "$1" ;;
  *) die "usage: $0 up|registry|mirror|down" ;;
esac
