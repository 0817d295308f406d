#!/bin/sh
# Record an owner of benchmarks/owner.py: record.sh KIND SEED [SECONDS]    as root, for the control groups
#
# The owner's programs, screen included, run in a control group of their own, before all others' (cpu.shares), so that
# whoever else works on the machine neither counts nor slows them down.
set -eu
kind=$1 seed=$2 seconds=${3:-300}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
python=.venv/bin/python
group=/sys/fs/cgroup/unified/owner-$$ weight=/sys/fs/cgroup/cpu/owner-$$
mkdir "$group" "$weight"
echo 20480 >"$weight/cpu.shares"
screen=:$((200 + $$ % 700))
sh -c 'echo $$ >"$1/cgroup.procs"; echo $$ >"$2/cgroup.procs"; shift 2; exec "$@"' run "$group" "$weight" \
    Xvfb "$screen" -screen 0 1280x800x24 -nolisten tcp -ac 2>/dev/null &
x=$!
sleep 2
DISPLAY=$screen sh -c 'echo $$ >"$1/cgroup.procs"; echo $$ >"$2/cgroup.procs"; shift 2; exec "$@"' run "$group" "$weight" \
    "$python" -m benchmarks.owner "$kind" "$seed" "$((seconds + 60))" &
owner=$!
sleep 15
DISPLAY=$screen "$python" -m moregpu_tray record-load --seconds "$seconds" --group "$group" "$here/$kind-$seed.json"
kill "$owner" 2>/dev/null || true
sleep 1
while read -r process; do kill "$process" 2>/dev/null || true; done <"$group/cgroup.procs"
kill "$x" 2>/dev/null || true
sleep 2
rmdir "$group" "$weight" 2>/dev/null || true
