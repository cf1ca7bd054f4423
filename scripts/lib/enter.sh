# shellcheck shell=bash
# How a program is started in a guest of scripts/guest, which sources this file. The tests start a few thousand programs in
# guests: test/guest/support/guest.ts runs the text of this file itself and so saves 7 ms of processor time for each.

# Capabilities over resources without a namespace: root of a guest may not set the machine's clock, for example.
export G_WITHHELD=-sys_time,-sys_module,-sys_rawio

# Arguments of nsenter behind -t PID. --no-fork: an nsenter that forks passes no signals on, and stops itself when the guest's
# shutdown stops its child, which then holds up the guest's end.
# shellcheck disable=SC2034
G_NAMESPACES=(-m -p -i -u -n -C --no-fork)

# start_inside [NAME=VALUE]... CMD...: runs CMD in the guest whose namespaces this shell is in. The shell stays in the outer
# PID namespace: it moves to a cgroup of the guest, else systemd and journald see CMD in "/..", and passes signals on.
start_inside() {
  local child status
  # SHLVL: an outermost bash whose standard input is a socket, as tests have it, takes itself for a remote shell and runs
  # /root/.bashrc, which may change all that follows and costs 0.2 s a command.
  local -a environment=(container=guest HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" SHLVL=1
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  cd /root || exit 1
  [ -d /sys/fs/cgroup/payload ] || mkdir -p /sys/fs/cgroup/payload 2>/dev/null
  { echo 0 >/sys/fs/cgroup/payload/cgroup.procs; } 2>/dev/null
  setpriv --pdeathsig TERM --bounding-set "$G_WITHHELD" \
    env -i --default-signal=INT,QUIT -- "${environment[@]}" "$@" <&0 &
  child=$!
  # shellcheck disable=SC2064
  trap "kill -TERM $child" TERM
  # shellcheck disable=SC2064
  trap "kill -INT $child" INT
  while :; do
    wait "$child" && exit 0 || status=$?
    kill -0 "$child" 2>/dev/null || exit "$status"
  done
}
