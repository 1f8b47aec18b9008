#!/usr/bin/env bash
# Evaluate a store on a scheduler and workers that connect through a file.
# bash examples/deploy/scheduler_file.sh STORE [WORKERS] [OPTIONS OF avgk evaluate]
#
# Here all of them run on this machine. On several, put the file into a shared folder, omit
# --host, and start each command on its machine, with any batch system.
set -euo pipefail
store=$1 workers=${2:-2}
shift $(($# < 2 ? $# : 2))
folder=$(mktemp -d)
file=$folder/scheduler.json
# shellcheck disable=SC2046  # one word per process id
trap 'kill $(jobs -p); wait; rm -rf "$folder"' EXIT

dask scheduler --host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0 --scheduler-file "$file" 2> "$folder/log" &
for ((i = 0; i < workers; i++)); do
  dask worker --host 127.0.0.1 --nthreads 1 --scheduler-file "$file" --local-directory "$folder" 2>> "$folder/log" &
done

# avgk plans for the memory of the connected workers.
until [ -s "$file" ]; do
  kill -0 "$!" && sleep 0.1
done
python -c "from distributed import Client; Client(scheduler_file='$file').wait_for_workers($workers, timeout=120)"
avgk evaluate "$store" --scheduler-file "$file" "$@"
