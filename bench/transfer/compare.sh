#!/usr/bin/env bash
# put over UCX beside ucx_perftest's ucp_put_bw (apt: ucx-utils), for the same message sizes over the
# same transports, in turns, so that both see the same machine.
# usage: bench/transfer/compare.sh [BUILD_FOLDER] [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
bench="${1:-build/cpu}/bench/transfer_bench"
rounds="${2:-3}"
export UCX_LOG_LEVEL=fatal UCX_WARN_UNUSED_ENV_VARS=n

perftest() {  # transports bytes number -> MB/s
  local port=$((20000 + RANDOM % 20000))
  UCX_TLS=$1 UCX_NET_DEVICES=lo ucx_perftest -p "$port" -t ucp_put_bw -s "$2" -n "$3" >/dev/null 2>&1 &
  local server=$!
  sleep 1
  UCX_TLS=$1 UCX_NET_DEVICES=lo ucx_perftest 127.0.0.1 -p "$port" -t ucp_put_bw -s "$2" -n "$3" \
    | awk '/^Final/ { printf "%.0f", $(NF - 2) }'
  wait "$server" || true
}

printf '%-10s %9s %18s %12s %7s\n' backend bytes 'ucp_put_bw MB/s' 'put MB/s' ratio
for ((round = 0; round < rounds; ++round)); do
  for pair in ucx:sysv,cma ucx-tcp:tcp; do
    backend=${pair%%:*} transports=${pair#*:}
    number=7000
    [ "$backend" = ucx ] || number=1000
    small=$(perftest "$transports" 73728 "$number")
    large=$(perftest "$transports" 1048576 $((number / 14)))
    "$bench" "$backend" | awk -v backend="$backend" -v small="$small" -v large="$large" '
      /^stream/ {
        theirs = $3 == 73728 ? small : large
        printf "%-10s %9d %18.0f %12.0f %7.2f\n", backend, $3, theirs, $4, $4 / theirs
      }'
  done
done
