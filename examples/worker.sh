#!/bin/sh
# A worker for Workron in plain shell and curl: one job at a time, see docs/worker-protocol.md.
# Takes WORKRON_URL, WORKRON_API_KEY, QUEUE (default) and JOBS (stop after so many; 0: never).
set -u
api=${WORKRON_URL:-http://127.0.0.1:8080} id="$(hostname)-$$" n=0 done=0 out=$(mktemp) beat=$(mktemp)
call() { # METHOD PATH [curl arguments]; prints the body, then the status on a line of its own
  method=$1 path=$2; shift 2
  curl -sS -m 70 -X "$method" -H "Authorization: Bearer ${WORKRON_API_KEY:-}" -w '\n%{http_code}' "$@" "$api$path"
}
post() { call POST "$1" -H 'Content-Type: application/json' -d "$2" | tail -n 1; }
claim() { # the same request id until there is an answer: whatever gets lost, no job does
  until answer=$(call GET "/jobs/next?worker_id=$id&queue=${QUEUE:-default}&wait=20&request_id=$id:$n"); do sleep 1; done
  n=$((n + 1)) status=$(echo "$answer" | tail -n 1)
}
report() { # repeat until the scheduler has answered: a repeat changes nothing
  until code=$(post "/jobs/$job/$1" "$2") && [ "$code" -lt 500 ]; do sleep 1; done
}
heartbeats() { # while the command runs: 409 is a lost lease, "cancel" the wish to stop it
  while sleep 5; do
    call POST "/jobs/$job/heartbeat" -H 'Content-Type: application/json' -d "{\"fence\":$fence}" >"$beat" || continue
    case $(tail -n 1 "$beat") in 409 | 404) kill -9 "-$pid" ;; 200) grep -q '"cancel"' "$beat" && kill "-$pid" ;; esac
  done
}
stop() { [ -n "${pid:-}" ] && kill -9 "-$pid" 2>/dev/null && report release "{\"fence\":$fence}"; exit 0; }
trap stop TERM INT
while [ "$done" -lt "${JOBS:-0}" ] || [ "${JOBS:-0}" = 0 ]; do
  claim
  case $status in 200) ;; 204) continue ;; *) echo "$answer" >&2; sleep 1; continue ;; esac
  field() { echo "$answer" | sed '$d' | python3 -c "import json,sys; print(json.load(sys.stdin)['$1'] or '', end='')"; }
  job=$(field id) fence=$(field fence) command=$(field command)
  WORKRON_JOB_ID=$job WORKRON_FENCE=$fence setsid sh -c "$command" >"$out" 2>&1 </dev/null & pid=$!
  heartbeats & beats=$!
  wait "$pid"; code=$?
  kill "$beats" 2>/dev/null
  tail -c 131072 "$out" | call POST "/jobs/$job/output?fence=$fence" --data-binary @- >/dev/null
  [ "$code" = 0 ] && report done "{\"fence\":$fence}" || report fail "{\"fence\":$fence,\"exit_code\":$code}"
  pid='' done=$((done + 1))
done
