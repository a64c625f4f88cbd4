#!/bin/sh
# A worker for Workron in plain shell and curl, one job at a time: see docs/worker-protocol.md. Jobs' env and cwd are left out.
# Takes WORKRON_URL, WORKRON_API_KEY, QUEUE (default) and JOBS (stop after so many; 0: never).
api=${WORKRON_URL:-http://127.0.0.1:8080} id="$(uname -n)-$$" n=0 ended=0 out=$(mktemp) beat=$(mktemp)
call() { # METHOD PATH [curl arguments]: prints the body, then the status on a line of its own
  method=$1 path=$2; shift 2
  curl -sS -m 70 -X "$method" -H "Authorization: Bearer ${WORKRON_API_KEY:-none}" -w '\n%{http_code}' "$@" "$api$path"
}
post() { call POST "/jobs/$job/$1" -H 'Content-Type: application/json' -d "$2"; }
report() { # until the scheduler has answered: a repeat changes nothing
  until code=$(post "$1" "$2" | tail -n 1) && [ "$code" -lt 500 ] && [ "$code" -gt 0 ]; do sleep 1; done
}
claim() { # with the same request id until there is an answer: whatever gets lost on the way, no job does
  until answer=$(call GET "/jobs/next?worker_id=$id&queue=${QUEUE:-default}&wait=8&request_id=$id:$n"); do sleep 1; done
  n=$((n + 1)) status=$(echo "$answer" | tail -n 1)
}
heartbeats() { # while the command and we run: 404 and 409 say that the job is not ours any more, "cancel" asks to stop it
  while sleep "${HEARTBEAT:-5}" && kill -0 "$$"; do
    post heartbeat "{\"fence\":$fence}" >"$beat" || continue
    case $(tail -n 1 "$beat") in 404 | 409) end KILL ;; 200) grep -q '"cancel"' "$beat" && end TERM ;; esac
  done
}
end() { kill -s "$1" -- "-$pid" || kill -s "$1" "$pid"; } # the whole group; in its first moments it is none yet
trap 'stop=1; [ -n "$pid" ] && end KILL' TERM INT; trap 'rm -f "$out" "$beat"' EXIT
while pid='' && [ -z "${stop:-}" ] && { [ "${JOBS:-0}" = 0 ] || [ "$ended" -lt "$JOBS" ]; }; do
  claim
  case $status in 200) ;; 204) continue ;; *) echo "$answer" >&2; sleep 1; continue ;; esac
  job=${answer#*'"id":"'} job=${job%%'"'*} fence=${answer##*'"fence":'} fence=${fence%%[!0-9]*}
  command=$(printf %s "${answer#*'"command":"'}" | sed -E 's/^(([^"\\]|\\.)*)".*/\1/; s/\\"/"/g; 1q')
  [ -n "${stop:-}" ] && { report release "{\"fence\":$fence}"; break; }
  case $answer in *'"command":null'*) command='echo "this worker runs only shell commands"; exit 126' ;; esac
  WORKRON_JOB_ID=$job WORKRON_FENCE=$fence setsid sh -c "$(printf %b "$command")" >"$out" 2>&1 </dev/null & pid=$!
  heartbeats & beats=$!
  wait "$pid"; code=$?
  kill -s KILL "$beats"; ended=$((ended + 1))
  tail -c 131072 "$out" | call POST "/jobs/$job/output?fence=$fence" --data-binary @- >"$beat"
  if [ -n "${stop:-}" ]; then report release "{\"fence\":$fence}"
  elif [ "$code" = 0 ]; then report done "{\"fence\":$fence}"
  else report fail "{\"fence\":$fence,\"exit_code\":$code}"; fi
done
