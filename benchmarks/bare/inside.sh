#!/bin/bash
# Runs on the bare machine as its init process. Clones the repository and times each command. Arguments: the commands.
set -u
ip link set lo up 2>/dev/null
cd /root && git clone -q /checkout triton-operator && cd triton-operator || exit 1
result=0
for command; do
  printf '=== %s\n' "$command"
  start=$(date +%s.%N)
  WORLD_REPORT=/root/parts.jsonl bash -c "$command" </dev/null
  code=$?
  printf '%s\t%s\t%s\n' "$command" "$code" "$(date +%s.%N) $start" >>/root/times
  printf '=== %s: exit %s after %s s\n' "$command" "$code" "$(($(date +%s) - ${start%.*}))"
  [ "$code" = 0 ] || { result=$code; break; }
done
exit $result
