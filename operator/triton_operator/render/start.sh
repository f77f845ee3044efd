# Starts tritonserver, and watches the processes of its Python models and /dev/shm. The arguments are tritonserver and its
# flags.
#
# The volumes of a pod outlive a server that was killed, so the next one removes what the Python backend, and backends
# that are based on it, would have removed at their end: their regions in /dev/shm, and unpacked environments of Python.
# Their names are random, so that each start would add new ones. Other files stay: a sidecar may share /dev/shm.
#
# Each instance of a Python model runs in a process of its own, a child of tritonserver, and has a region in /dev/shm. If
# the process dies, each request to the instance fails, and Triton never starts it again. Whether the process stays a
# zombie depends on Triton's release, and from 25.12 on on who asks whether the model is ready. Its region stays on all,
# until the model is unloaded. It also stays for some seconds while Triton finds out that a model fails to load. So a
# process is dead if there is its region without it, and Triton says that the model is loaded.
#
# A reload, or more instances of a model, may fail beside processes that serve it. Such a region is gone after $enough
# seconds up to Triton 2.59 (25.07), and after $patience from 2.60 on. From 2.64 on (25.12) Triton says earlier which it
# is: the model isn't ready if a process that serves it is dead. But model.py may say so, too, while a reload fails: then
# there is a process of the same instance. $long_patience is for a process that was never seen alive, whose model isn't
# known, and for a server that doesn't tell strangers whether a model is loaded (--http-restricted-api).
#
# A process that model.py has forked has the same command line, and becomes a child of tritonserver when its parent ends.
# Linux marks a process that was forked and has executed no program by the flag 64.
#
# Triton listens after all models are loaded, and has no handler for SIGTERM before: as the first process of its container
# it would not get the signal. Nothing is sent to a server that doesn't answer.
#
# A request may end each process that it reaches, and its client sends it again and again. The kubelet then waits longer
# and longer before it starts the server, up to five minutes, and no model answers. So after three restarts, each within
# $hold seconds after the server began to listen, the next one isn't ended so within $hold seconds: its other models keep
# answering. After a container has run for ten minutes, the kubelet starts it at once again.
#
# The number of restarts is in the name of a directory in /dev/shm, a volume of the pod. mkdir and rmdir wait for nothing,
# follow no link and need no space, and a directory has no content that could be wrong. Each model can change it, too, and
# delay a restart by $hold.
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
  ready=/v2/health/ready
  health=
  mark=/dev/shm/triton-operator-restarted
  space=
  looks=0
  seconds=1
  enough=4
  patience=15
  long_patience=40
  hold=600
  tab='	'
  newline='
'
  server=http://127.0.0.1:8000
  files='/dev/shm/triton_*_backend_shm_region_*'
  for flag; do
    case $flag in
      --http-address=ipv6:*) server='http://[::1]:8000' ;;
      *,shm-region-prefix-name=?*)
        files="$files /dev/shm/${flag#*,shm-region-prefix-name=}????????-????-????-????-????????????"
        ;;
    esac
  done
  # Its fourth field is the parent of this process, which exec makes tritonserver. `$$` isn't used, because Kubernetes
  # makes one dollar sign of two.
  IFS=' ' read -r line line line parent line </proc/self/stat
  # How many servers before this one a dead process has ended.
  restarts=0
  for line in 1 2 3; do
    "$busybox" rmdir "$mark-$line" 2>/dev/null && restarts=$line
  done
  # Until which uptime a dead process ends the server too early: nothing until the server listens, since one that loads
  # for minutes answers nothing meanwhile. Whether a dead process waits for it.
  now=0
  early=0
  [ "$restarts" = 0 ] || early=
  waits=
  live=$newline
  # A line for each region without its process: its name, for how many seconds, and if the process was seen the path of
  # its model.py and the name of its instance. -1 seconds: it was reported.
  orphans=$newline
  while "$busybox" sleep "$seconds"; do
    looks=$((looks + 1))
    if [ $((looks % 10)) = 0 ]; then
      before=$space
      measure
      [ "$before" ] || [ ! "$space" ] || echo "/dev/shm is $space" >&2
    fi
    [ "$early" = 0 ] || uptime
    if [ ! "$early" ]; then
      case $(ask "$server/v2/health/live") in *refused*) ;; *) early=$((now + hold)) ;; esac
    fi
    # For how many seconds the wait has been over.
    over=
    [ ! "$waits" ] || [ "$now" -lt "$early" ] || over=$((now - early))
    previous=$live
    find_live
    # A look at hundreds of processes takes hundredths of a second.
    seconds=$((1 + number / 64))
    before=$orphans
    orphans=$newline
    dead=
    for region in $files; do
      # The pattern itself, if no file has such a name; or the file is gone.
      [ -e "$region" ] || continue
      region=${region#/dev/shm/}
      # A shell that is about to execute the process has it in its command line, too.
      case $live in *"$region"*) continue ;; esac
      count=1
      instance=
      case $before in
        *"$newline$region$tab"*)
          line=${before#*"$newline$region$tab"}
          line=${line%%"$newline"*}
          count=${line%%"$tab"*}
          instance=${line#*"$tab"}
          [ "$count" = -1 ] || count=$((count + seconds))
          ;;
        *)
          case $previous in
            *"$tab$region$tab"*)
              instance=${previous#*"$tab$region$tab"}
              instance=${instance%%"$newline"*}
              ;;
          esac
          ;;
      esac
      path=${instance%"$tab"*}
      words=${path:-a model that had just started}
      if [ "$count" -ge "$enough" ] && is_dead; then
        echo "$died $words" >&2
        dead="${dead:+$dead, }$words"
        count=-1
      elif [ "$count" = -1 ] && [ "$over" ]; then
        # A model that was loaded again has no such region. Triton may never finish to unload one whose process is dead.
        count=$long_patience
        if is_dead || [ "$over" -ge 60 ]; then dead="${dead:+$dead, }$words"; fi
        count=-1
      fi
      orphans="$orphans$region$tab$count$tab$instance$newline"
    done
    if [ "$dead" ] && [ "$repair" = Restart ]; then
      : "${early:=$((now + hold))}"
      if [ "$now" -lt "$early" ]; then
        if [ "$restarts" = 3 ] && others_answer; then
          [ "$waits" ] ||
            echo "the server restarts in $(((early - now + 59) / 60)) min if this process is still dead then, since it" \
              "has restarted for this reason three times in a row. Its other models keep answering until then" >&2
          waits=1
          continue
        fi
      elif [ ! "$waits" ]; then
        restarts=0
      fi
      [ "$restarts" = 3 ] || restarts=$((restarts + 1))
      measure
      printf '%s\n' "$died $dead" ${space:+"/dev/shm was $space"} >/dev/termination-log
      "$busybox" mkdir "$mark-$restarts" 2>/dev/null
      kill -TERM "$parent"
      return
    fi
    [ "${over:-0}" -lt 60 ] || waits=
  done
}
# Sets `live` to a line for each child of tritonserver that runs: when it started, and the third, second and ninth word of
# its command line. Those of a process of a model are its region, the path of its model.py, and the name of its instance.
# A command line is read once: the shell reads each of its bytes with a system call.
find_live() {
  live=$newline
  number=0
  # In one go: the shell would read each byte with a system call, and there may be hundreds of processes.
  stats=$("$busybox" cat /proc/[0-9]*/stat)
  set -f
  IFS=$newline
  for line in $stats; do
    IFS=' '
    pid=${line%% *}
    # The state, the parent, as the seventh the flags, and as the 20th the start. T is a process that was stopped: it
    # answers nothing, either.
    set -- ${line##*)}
    [ "$2" = "$parent" ] && [ $(($7 & 64)) = 0 ] || continue
    case $1 in Z | X | T) continue ;; esac
    eval "line=\$process_$pid"
    case $line in
      "${20}$tab"*) ;;
      *)
        path=
        region=
        instance=
        {
          IFS= read -r -d '' line
          IFS= read -r -d '' path
          IFS= read -r -d '' region
          if [ -f "/dev/shm/$region" ]; then
            for line in 4 5 6 7 8 9; do IFS= read -r -d '' instance; done
          fi
        } <"/proc/$pid/cmdline"
        line=${20}$tab$region$tab$path$tab$instance
        [ "$instance" ] && eval "process_$pid=\$line"
        ;;
    esac
    live=$live$line$newline
    number=$((number + 1))
  done
  unset IFS
  set +f
} 2>/dev/null
# Whether the process of $instance is dead, whose region has been without it for $count seconds. $path: its model.py.
is_dead() {
  # Files that a client sends with the request to load are in a folder that doesn't have the model's name. Triton decodes
  # no path of a request, so it can't be asked for some names.
  case $path in
    '' | /tmp/* | *[!a-zA-Z0-9/._-]*) ;;
    *)
      version=${path%/*}
      model=${version%/*}
      model=$server/v2/models/${model##*/}/versions/${version##*/}
      case $(ask "$model") in
        # Triton describes a model that is loaded.
        '{'*)
          case $live in *"$tab$path$tab"*) ;; *) return 0 ;; esac
          [ "$count" -lt "$patience" ] || return 0
          case $(ask "$server/v2") in *'"version":"2.'[1-5]?.*) return 0 ;; esac
          case $live in *"$tab$instance$newline"*) return 1 ;; esac
          case $(ask "$model/ready") in *' 400 '*) return 0 ;; *) return 1 ;; esac
          ;;
        *' 403 '*) ;;
        *) return 1 ;;
      esac
      ;;
  esac
  [ "$count" -ge "$long_patience" ] || return 1
  case $(ask --post-data= "$server/v2/repository/index") in
    *'"LOADING"'* | *'"UNLOADING"'*) return 1 ;;
    '['* | *' 403 '*) return 0 ;;
    *) return 1 ;;
  esac
}
# Whether clients reach other models of a server in which the processes of $dead are dead. If they don't, it is no use to
# wait: the server has no other model, or the readiness probe keeps it out of the Service. $ready is what that asks, and
# $health the model to which it sends a request, or an ensemble with this step.
others_answer() {
  case $(ask --post-data= "$server/v2/repository/index") in
    *'"READY"'*'"READY"'* | *' 403 '*) ;;
    *) return 1 ;;
  esac
  case $(ask "$server$ready") in *' 400 '*) return 1 ;; esac
  [ "$health" ] || return 0
  line=$(ask "$server$health/config")
  for path in $dead; do
    path=${path%/*/*}
    case $line in *"\"${path##*/}\""*) return 1 ;; esac
  done
}
# Sets `now` to the seconds since the node has started. They don't jump as the wall clock may.
uptime() {
  IFS=' .' read -r now line </proc/uptime
}
# Prints the body of Triton's answer, or words with its status code. A model may take 5 s to say whether it is ready.
ask() {
  "$busybox" wget -q -Y off -T 6 -O - "$@" 2>&1
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
# The models of spec.server.loadModels, one in a line, without white space. What comes after white space would be a flag of
# its own, so such a line isn't read: not the operator has written it. The variables are those of a subshell.
if [ -f /.triton-operator/load-models/models ]; then
  set -f
  set -- "$@" $(while read -r model rest; do [ "$rest" ] || echo "--load-model=$model"; done </.triton-operator/load-models/models)
  set +f
fi
watch "$@" &
exec "$0" "$@"
