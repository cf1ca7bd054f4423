#!/bin/bash
# How scripts/guest boots a guest. Three stages, each one namespace deeper; not to be run by
# hand. Reads G_STATE, G_ID, G_NAME, G_ROOT, G_SIZE, G_PREP, G_HOSTD, G_PROFILE, G_NODE, G_WITHHELD;
# arguments are bind:SRC:DST and bind-ro:SRC:DST.
set -euo pipefail
SELF=$(readlink -f "$0")
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$SELF")/common.sh"
S=$G_STATE

# Stage 1, in a private mount namespace: make the guest's cgroup and be in it while the cgroup
# namespace is made, so that it becomes that namespace's root.
cgroup() {
  mkdir -p "$S/cgroup" "$S/mnt"
  mount -t cgroup2 cgroup2 "$S/cgroup"
  mkdir "$S/cgroup/$G_ID"
  echo 0 >"$S/cgroup/$G_ID/cgroup.procs"
  exec unshare --cgroup -- bash "$SELF" supervise "$@"
}

# Stage 2: the supervisor. It leaves the guest's cgroup (a process from outside the PID
# namespace reads as PID 0 in there and confuses systemd), then boots in a loop.
supervise() {
  local child status
  local -a hostd
  echo 0 >"$S/cgroup/cgroup.procs"
  mount -t tmpfs -o "size=$G_SIZE,mode=0755" guest "$S/mnt"
  mkdir "$S/mnt/upper" "$S/mnt/work" "$S/mnt/root"
  if [ -n "$G_HOSTD" ]; then
    hostd=("$REPO/build/shim/vgpu-hostd" --device software --listen "unix:$S/vgpu/hostd.sock")
    [ -z "$G_PROFILE" ] || hostd+=(--profile "$G_PROFILE")
    setpriv --pdeathsig TERM "${hostd[@]}" >"$S/hostd.log" 2>&1 &
  fi
  trap 'kill -s RTMIN+4 "$(cat "$S/pid")" 2>/dev/null' TERM INT
  while :; do
    setpriv --pdeathsig KILL --bounding-set "$G_WITHHELD" \
      unshare --mount --pid --ipc --uts --net --propagation private --fork --kill-child=SIGKILL -- bash "$SELF" inside "$@" &
    child=$! status=0
    while :; do
      wait "$child" && status=0 || status=$?
      kill -0 "$child" 2>/dev/null || break
    done
    rm -f "$S/pid"
    # the kernel ends the init of a PID namespace with SIGHUP for reboot, SIGINT for poweroff
    case $status in
      129) echo "guest: reboot" ;;
      130) exit 0 ;;
      *)
        say "guest: PID 1 ended with status $status"
        exit "$status"
        ;;
    esac
  done
}

# api_filesystems ROOT: /proc, /sys, /dev, /run and /tmp of the guest.
api_filesystems() {
  local root=$1 node major minor
  mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
  mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$root/sys"
  mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"
  mount -t tmpfs -o nosuid,mode=0755,size=16m tmpfs "$root/dev"
  for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r node major minor <<<"$node"
    mknod -m 0666 "$root/dev/$node" c "$major" "$minor"
  done
  mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5,nosuid,noexec devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin"
  ln -s fd/1 "$root/dev/stdout"
  ln -s fd/2 "$root/dev/stderr"
  mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
  mount -t mqueue -o nosuid,nodev,noexec mqueue "$root/dev/mqueue"
  mount -t tmpfs -o nosuid,nodev,mode=0755,size=512m tmpfs "$root/run"
  mount -t tmpfs -o nosuid,nodev,mode=1777,size=1g tmpfs "$root/tmp"
  # a boot ID of its own, or journalctl -b takes all boots of the guest for one
  cat /proc/sys/kernel/random/uuid >"$root/run/boot_id"
  mount --bind "$root/run/boot_id" "$root/proc/sys/kernel/random/boot_id"
}

# bind ROOT bind|bind-ro SRC DST
bind() {
  local root=$1 how=$2 src=$3 dst=$1$4
  if [ -d "$src" ]; then
    mkdir -p "$dst"
  else
    mkdir -p "$(dirname "$dst")"
    [ -e "$dst" ] || : >"$dst"
  fi
  mount --bind "$src" "$dst"
  [ "$how" = bind ] || mount -o remount,bind,ro "$dst"
}

# bare ROOT: removes vgpu-agent, NVIDIA's driver, Ollama and container engines of this machine from the guest's overlay, so
# that a guest starts bare.
bare() {
  local root=$1 dir
  rm -rf "$root"/opt/vgpu "$root"/etc/vgpu "$root"/etc/vgpu-agent "$root"/var/lib/vgpu-agent "$root"/usr/lib/vgpu-agent \
    "$root"/usr/bin/vgpu-hostd "$root"/usr/share/vgpu "$root"/etc/default/vgpu-hostd "$root"/var/lib/vgpu-host \
    "$root"/etc/systemd/system/*.wants/vgpu-* \
    "$root"/etc/ld.so.conf.d/*vgpu* "$root"/etc/systemd/system/*.d/*vgpu* "$root"/etc/systemd/system/vgpu-* \
    "$root"/usr/local/bin/vgpu-agent "$root"/usr/local/bin/ollama "$root"/usr/local/lib/ollama \
    "$root"/usr/share/ollama "$root"/etc/systemd/system/ollama.service{,.d} "$root"/etc/alternatives/nvidia*
  # Removes this machine's container engines; a root that was made with an engine keeps it.
  if [ "$G_ROOT" = / ]; then
    rm -rf "$root/etc/cdi"
    rm -f "$root"/usr/{,local/}{,s}bin/{podman,docker,containerd,crio,nerdctl,kubelet}
  fi
  for dir in "$root"/usr/lib "$root"/usr/lib64 "$root"/usr/lib/*-linux-gnu "$root"/usr/local/lib; do
    rm -rf "$dir"/libcuda.so* "$dir"/libnvidia-ml.so* "$dir/nvidia/current"
  done
  # a new loader cache takes 0.2 s, so only if the machine's cache lists a removed library
  if grep -qaE 'libcuda\.so|libnvidia-ml\.so|/vgpu/' "$root/etc/ld.so.cache" 2>/dev/null; then
    chroot "$root" /sbin/ldconfig 2>/dev/null || true
  fi
}

# mask DIR NAME...: an empty file masks a unit or generator as a link to /dev/null does (systemd.unit(5),
# systemd.generator(7)), and the shell can create it without starting ln.
mask() {
  local dir=$1 name
  shift
  rm -f "${@/#/$dir/}"
  for name; do : >"$dir/$name"; done
}

# first_boot ROOT: makes this root an independent guest; the changes are in the overlay and survive reboots.
first_boot() {
  local root=$1
  local -a generators
  rm -rf "$root"/etc/systemd/system/*.wants "$root/var/log/journal"
  rm -f "$root/.dockerenv" "$root/etc/machine-id" "$root/var/lib/dbus/machine-id"
  : >"$root/etc/fstab"
  echo "$G_NAME" >"$root/etc/hostname"
  printf '127.0.0.1 localhost %s\n::1 localhost\n' "$G_NAME" >"$root/etc/hosts"
  tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
  mkdir -p "$root/var/lib/dbus" "$root/var/log/journal" "$root/etc/systemd/system" \
    "$root/etc/systemd/journald.conf.d" "$root/usr/local/bin"
  ln -s /etc/machine-id "$root/var/lib/dbus/machine-id"
  printf '[Journal]\nStorage=persistent\nRateLimitIntervalSec=0\nAudit=no\nReadKMsg=no\n' \
    >"$root/etc/systemd/journald.conf.d/50-guest.conf"
  mask "$root/etc/systemd/system" systemd-logind.service dbus-org.freedesktop.login1.service getty.target console-getty.service serial-getty@.service \
    systemd-{timesyncd,networkd,resolved,udevd,udev-trigger,update-utmp,update-utmp-runlevel}.service \
    systemd-{networkd,udevd-kernel,udevd-control,initctl,journald-audit}.socket \
    systemd-{binfmt,sysctl,modules-load,firstboot,pcrphase,pcrphase-sysinit,hwdb-update}.service \
    systemd-{update-done,remount-fs,machine-id-commit}.service systemd-tmpfiles-clean.timer \
    systemd-ask-password-{wall,console}.path ldconfig.service proc-sys-fs-binfmt_misc.automount \
    dev-{hugepages,mqueue}.mount sys-fs-fuse-connections.mount sys-kernel-{config,debug,tracing}.mount
  # A dozen programs that run at each daemon-reload and find nothing here (no fstab, no disks, no consoles).
  mkdir -p "$root/etc/systemd/system-generators"
  generators=("$root"/{usr/lib,usr/local/lib,lib}/systemd/system-generators/*)
  mask "$root/etc/systemd/system-generators" "${generators[@]##*/}"
  ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
  bare "$root"
  ln -s "$REPO/dist/bundle/main.js" "$root/usr/local/bin/vgpu-agent"
}

# root_copy ROOT: if other users can write this checkout, the guest's service would refuse to run it; the guest then gets
# a copy, like an installation.
root_copy() {
  local root=$1
  ! root_only "$REPO/dist/bundle" || return 0
  [ -e "$S/agent" ] || "$REPO/scripts/install-agent" --into "$S/agent"
  bind "$root" bind-ro "$S/agent" /usr/lib/vgpu-agent
  ln -sfn /usr/lib/vgpu-agent/dist/bundle/main.js "$root/usr/local/bin/vgpu-agent"
}

# fit_node ROOT: dist/bundle/main.js starts with "env node": where that would find none that is new
# enough, the one that the scripts use comes first in PATH. So does the one that --node names.
fit_node() {
  local root=$1 node
  if [ -n "$G_NODE" ]; then
    bind "$root" bind-ro "$G_NODE" /usr/local/bin/node
    return
  fi
  # the check costs 0.1 s; the machine's Node fits unless scripts/setup had to fetch one
  [ "$G_ROOT" != / ] || [ -e "$REPO/.cache/nodes/.setup" ] || return 0
  chroot "$root" /usr/bin/env PATH="$PATH" bash -c 'node --version' >"$root/run/node-version" 2>/dev/null || true
  ! version_fits "$(cat "$root/run/node-version")" || return 0
  node=$(find_node) || return 0
  bind "$root" bind-ro "$node" /usr/local/bin/node
}

# Stage 3: PID 1 of the guest, still a shell.
inside() {
  local hostpid how src dst root=$S/mnt/root
  read -r hostpid _ </proc/self/stat # the old /proc still counts in outer PIDs
  echo 0 >"$S/cgroup/$G_ID/cgroup.procs"
  mount -t overlay overlay -o "lowerdir=$G_ROOT,upperdir=$S/mnt/upper,workdir=$S/mnt/work" "$root"
  api_filesystems "$root"
  if [ ! -e "$S/mnt/booted" ]; then
    first_boot "$root"
    : >"$S/mnt/booted"
  fi
  bind "$root" bind-ro "$REPO" "$REPO"
  bind "$root" bind "$S/vgpu" /run/vgpu
  fit_node "$root"
  root_copy "$root"
  for how in "$@"; do
    IFS=: read -r how src dst <<<"$how"
    bind "$root" "$how" "$src" "$dst"
  done
  mkdir -p "$root/run/host"
  echo guest >"$root/run/host/container-manager"
  hostname "$G_NAME"
  [ -z "$G_PREP" ] || bash "$G_PREP" "$root"
  echo "$hostpid" >"$S/pid.new"
  mv "$S/pid.new" "$S/pid"
  cd "$root"
  pivot_root . .
  umount -l .
  mount --make-rshared / # a container's manager must do this, systemd does not; LoadCredential= needs it
  exec env -i container=guest PATH="$PATH" LANG=C.UTF-8 \
    /lib/systemd/systemd --system --log-target=journal --show-status=false
}

stage=$1
shift
"$stage" "$@"
