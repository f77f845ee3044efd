# Copies every 15 seconds what /proc says of the processes of the container, and what its cgroup says of its memory, for
# the container that exposes it (process_exporter/look.py). Only a process of the same container sees the others. One may end meanwhile.
#
# Busybox reads all files in one go: the shell would read each byte with a system call, and start a program for each. The
# command lines come last, since they may contain anything. The last line says that nothing is missing, because a full
# volume takes a part.
show_processes() {
  busybox=/.triton-operator/tools/busybox
  look=/.triton-operator/processes/look
  IFS=' ' read -r line line line server line </proc/self/stat
  while :; do
    {
      echo "server $server"
      "$busybox" grep -H '^btime' /proc/stat
      "$busybox" grep -H '' /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.stat /sys/fs/cgroup/memory/memory.stat
      "$busybox" grep -H '^Rss' /proc/[0-9]*/status
      "$busybox" grep -H '' /proc/[0-9]*/stat
      "$busybox" head -v -c 4096 /proc/[0-9]*/cmdline
      printf '\nend\n'
    } >"$look.new" 2>/dev/null && "$busybox" mv -f "$look.new" "$look"
    "$busybox" sleep 15
  done 2>/dev/null
}
