# Whether the server is ready, and whether it answers the health request: spec.healthRequest. The arguments are the
# address of Triton, the path of its readiness, the path of the model, the request's file and its time limit in seconds.
#
# What is printed is in the Event of the kubelet. `wget` isn't used, because that of busybox ends a body at its first
# zero byte.
busybox=/.triton-operator/tools/busybox
host=$1
ready=$2
model=$3
file=$4
seconds=$5
# As long as Triton waits for `is_ready` in model.py.
patience=5
[ "$seconds" -gt "$patience" ] && patience=$seconds
# Sends its input to Triton and prints the answer, for at most $1 seconds. `timeout` of busybox leaves a process that
# tritonserver, the first process of the container, never reaps.
ask() (
  "$busybox" nc "$host" 8000 2>&1 <&3 &
  nc=$!
  "$busybox" sleep "$1" >/dev/null 2>&1 3<&- &
  timer=$!
  wait -n
  kill "$nc" "$timer" 2>/dev/null
  wait
) 3<&0
get() {
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" | ask "$patience"
}
post() {
  printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/octet-stream\r\n' "$1"
  case $file in
    *.json) ;;
    *) printf 'Inference-Header-Content-Length: 0\r\n' ;;
  esac
  printf 'Content-Length: %s\r\n\r\n' "$("$busybox" wc -c <"$file")"
  "$busybox" cat "$file"
}
# The beginning of an answer: its outputs may be large.
start() {
  "$busybox" head -c 1000
  "$busybox" cat >/dev/null
}
fail() {
  line=${answer%%[[:cntrl:]]*}
  body=${answer##*[[:cntrl:]]}
  [ "$body" = "$line" ] && body=
  echo "$1: ${line:-no answer in time} $body"
  exit 1
}
# Ends well if Triton has answered another request to the model since $1.
works_since() {
  for time in $(get "$model/stats" | "$busybox" grep -o '"last_inference":[0-9]*'); do
    [ "${time##*:}" -ge "${1}000" ] && exit 0
  done
}
began=$("$busybox" date +%s)
answer=$(get "$ready" | start)
case $answer in
  'HTTP/1.1 200 '*) ;;
  'HTTP/1.1 '*) fail "$ready" ;;
  # It may have much to do.
  *)
    works_since "$began"
    fail "$ready"
    ;;
esac
began=$("$busybox" date +%s)
[ -r "$file" ] || answer='there is no such file' fail "the health request $file"
answer=$(post "$model/infer" | ask "$seconds" | start)
case $answer in
  'HTTP/1.1 200 '*) exit 0 ;;
  # It has too many requests, perhaps because it hangs.
  'HTTP/1.1 429 '* | 'HTTP/1.1 503 '*) works_since $((began - seconds)) ;;
  'HTTP/1.1 '*) ;;
  *) works_since "$began" ;;
esac
fail "the health request $file"
