#!/usr/bin/env bash
# image.sh NAME CONTEXT [BUILD-OPTION…]: builds an image, pushes it to the local registry unless it is there,
# and prints the reference by digest. The default of TAG is dev.
. "$(dirname "$0")/lib.sh"

name=$1 context=$2 tag=${TAG:-dev}
shift 2
repository=triton-operator/$name
reference=$REGISTRY/$repository:$tag
stamp=$cache/pushed/$name-$tag

in_registry() {
  curl -fsI -o /dev/null "http://$REGISTRY/v2/$repository/manifests/$1" \
    -H 'Accept: application/vnd.docker.distribution.manifest.v2+json' -H 'Accept: application/vnd.oci.image.manifest.v1+json' \
    -H 'Accept: application/vnd.oci.image.index.v1+json'
}

start=$SECONDS
docker image inspect "$reference" >/dev/null 2>&1 || say "building $reference"
quietly "build-$name-$tag" docker build -t "$reference" --label io.tritonoperator.world=clone "$@" "$context"
id=$(docker image inspect -f '{{.Id}}' "$reference")
read -r pushed digest 2>/dev/null <"$stamp" || pushed='' digest=''
if [ "$pushed" != "$id" ] || ! in_registry "$digest"; then
  quietly "push-$name-$tag" docker push "$reference"
  digest=$(sed -n 's/^.*digest: \(sha256:[0-9a-f]*\).*$/\1/p' "$cache/log/push-$name-$tag" | tail -n 1)
  [ -n "$digest" ] || die "docker push of $reference printed no digest; see $cache/log/push-$name-$tag"
  mkdir -p "$cache/pushed"
  echo "$id $digest" >"$stamp"
  say "pushed $reference after $((SECONDS - start)) s"
fi
echo "$REGISTRY/$repository@$digest"
