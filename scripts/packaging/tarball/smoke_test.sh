#!/bin/sh
# Does what was unpacked work here? Needs no GPU, no root and no network, and changes nothing: a vgpu-hostd with a
# SIMULATED GPU is started on a socket of its own, and a program runs on it, with every number checked.
# Exit status: 0 it works; 1 it does not.
set -eu
here=$(dirname "$(readlink -f "$0")")/..
work=$(mktemp -d "${TMPDIR:-/tmp}/vgpu-smoke-XXXXXX")
host=
finish() {
  [ -z "$host" ] || kill "$host" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
failed() {
  echo "FAILED  $1" >&2
  exit 1
}
passed() { echo "ok      $1"; }

"$here/agent/vgpu-agent" --version >"$work/version" || failed 'the agent does not start'
passed "vgpu-agent $(cat "$work/version")"
"$here/agent/vgpu-agent" version --verbose >"$work/build" || failed 'the agent does not find its libraries'
passed "$(grep '^shim' "$work/build")"

# Without a host there is no GPU, and it is said at once.
if VGPU_HOST=unix:$work/nobody.sock "$here/bin/vgpu-run" --host "unix:$work/nobody.sock" -- true 2>"$work/said"; then
  failed 'a GPU is found where no host is'
fi
grep -q 'does not answer' "$work/said" || failed "without a host: $(cat "$work/said")"
passed 'without a host: no GPU, and the reason is told'

"$here/tools/vgpu-hostd" --device software --listen "unix:$work/host.sock" >"$work/log" 2>&1 &
host=$!
i=0
until [ -S "$work/host.sock" ]; do
  i=$((i + 1))
  kill -0 "$host" 2>/dev/null || failed "vgpu-hostd does not start: $(cat "$work/log")"
  [ $i -lt 100 ] || failed 'vgpu-hostd does not listen after 10 s'
  sleep 0.1
done
passed 'a host with a SIMULATED GPU listens'
"$here/bin/vgpu-run" --host "unix:$work/host.sock" -- "$here/tools/vgpu-probe" --compute --timeout 120 >"$work/report" ||
  failed "the probe: $(cat "$work/report")"
passed 'a program finds the simulated GPU and computes on it, every number right'
echo 'All passed. The GPU was SIMULATED: this says nothing of the GPU of a host.'
