# Starts tritonserver, and watches the processes of its Python models and /dev/shm. The arguments are tritonserver and its
# flags.
#
# The volumes of a pod outlive a server that was killed, so the next one removes what the Python backend, and backends
# that are based on it, would have removed at their end: their regions in /dev/shm, and unpacked environments of Python.
# Their names are random, so that each start would add new ones. Other files stay: a sidecar may share /dev/shm.
#
# A Python model runs in a process of its own, a child of tritonserver. If that dies, each request to the model fails,
# Triton never starts it again, and the server stays ready. The process stays a zombie until its model is unloaded. While
# a model is unloaded or fails to load it is one for a moment, so a process counts when it was seen dead $times times,
# and one that was never seen alive, whose model is perhaps still loading, $patience times more: Triton gives a process
# 30 s to start.
#
# A process that model.py has forked has the same name. When its parent ends it becomes a child of tritonserver, and then
# a zombie that stays. Linux marks a process that was forked and has executed no program by the flag 64.
#
# The variables of a function are those of a process of its own. tritonserver gets none of them.
clean() (
  busybox=/.triton-operator/tools/busybox
  "$busybox" rm -rf /dev/shm/triton_*_backend_shm_region_* /tmp/python_env_??????
  for flag; do
    case $flag in
      *,shm-region-prefix-name=?*)
        "$busybox" rm -f "/dev/shm/${flag#*,shm-region-prefix-name=}"????????-????-????-????-????????????
        ;;
    esac
  done
)
watch() {
  busybox=/.triton-operator/tools/busybox
  repair=Restart
  died='a backend process died:'
  space=
  looks=0
  seconds=1
  times=4
  patience=40
  # Its fourth field is the parent of this process, which exec makes tritonserver. `$$` isn't used, because Kubernetes
  # makes one dollar sign of two.
  IFS=' ' read -r line line line server line </proc/self/stat
  while "$busybox" sleep "$seconds"; do
    looks=$((looks + 1))
    if [ $((looks % 10)) = 0 ]; then
      before=$space
      measure
      [ "$before" ] || [ ! "$space" ] || echo "/dev/shm is $space" >&2
    fi
    dead=
    for stat in /proc/[0-9]*/stat; do
      IFS= read -r line <"$stat" || continue
      case $line in
        *"(triton_python_b) "*) ;;
        *) continue ;;
      esac
      pid=${stat#/proc/}
      pid=${pid%/stat}
      # The state, the parent, and as the seventh the flags.
      set -- ${line##*)}
      [ "$2" = "$server" ] && [ $(($7 & 64)) = 0 ] || continue
      if [ "$1" = Z ]; then
        eval "seen=\${seen_$pid:--$patience}"
        seen=$((seen + 1))
        eval "seen_$pid=$seen"
        [ $seen -ge "$times" ] && eval "dead=\"\${dead:+\$dead, }\${model_$pid:-a model that had just started}\""
      else
        # Only the command line of a live process has the path of its model.py, the second word.
        words=
        { IFS= read -r -d '' words && IFS= read -r -d '' words; } <"/proc/$pid/cmdline"
        eval "seen_$pid=0 model_$pid=\$words"
      fi
    done 2>/dev/null
    if [ "$dead" ]; then
      echo "$died $dead" >&2
      if [ "$repair" = Restart ]; then
        measure
        printf '%s\n' "$died $dead" ${space:+"/dev/shm was $space"} >/dev/termination-log
        kill -TERM "$server"
      fi
      return
    fi
  done
}
# Sets `space` to how much of /dev/shm is free if that is less than a sixteenth, and else to nothing.
measure() {
  # The second line has the name, the size, and the KiB that are used and free.
  set -- $("$busybox" df -k -P /dev/shm)
  space=
  [ $((${11} * 16)) -ge "$9" ] || space="nearly full ($((${11} / 1024)) of $(($9 / 1024)) MiB free)"
}
clean "$@"
# Where the hard limit is lower, threads get that. glibc reads the soft limit when tritonserver starts.
ulimit -S -s 1048576 2>/dev/null || ulimit -S -s "$(ulimit -H -s)"
# The models of spec.server.loadModels, one in a line, without white space. The variable is that of a subshell.
if [ -f /.triton-operator/load-models/models ]; then
  set -f
  set -- "$@" $(while read -r model; do echo "--load-model=$model"; done </.triton-operator/load-models/models)
  set +f
fi
watch &
exec "$0" "$@"
