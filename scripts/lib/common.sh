# shellcheck shell=bash
# Shared by every script here: where the repository is, how to talk, where node is.
# Source it; it defines functions and REPO and does nothing else.

REPO=$(CDPATH='' cd -P -- "${BASH_SOURCE[0]%/*}/../.." && pwd -P)

# The oldest Node that the dependencies allow (package.json "engines").
NODE_MIN_MAJOR=20
NODE_MIN_MINOR=17

# say TEXT...: a line of talk, to stderr; stdout is for results.
say() { printf '%s\n' "$*" >&2; }

# die STATUS TEXT...: says why and ends with STATUS.
die() {
  local status=$1
  shift
  say "${0##*/}: $*"
  exit "$status"
}

# need_root WHAT: ends with 6 (refused) unless root; WHAT names what needs it.
need_root() {
  [ "$EUID" = 0 ] || die 6 "$1 needs root: sudo $0"
}

# alive PID [STARTED]: whether the process runs. kill -0 also succeeds on a zombie, and
# PIDs come round again, so this reads the state and, where given, the start time.
alive() {
  local line fields
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${line##*) }"
  [ "${fields[0]}" != Z ] && [ "${fields[0]}" != X ] || return 1
  [ -z "${2:-}" ] || [ "${fields[19]}" = "$2" ]
}

# started PID: the kernel's start time of the process, which with the PID names it for good.
started() {
  local line fields
  read -r line <"/proc/$1/stat"
  read -ra fields <<<"${line##*) }"
  printf '%s\n' "${fields[19]}"
}

# version_fits VERSION: whether Node VERSION ("v20.17.0") is new enough.
version_fits() {
  local major minor
  IFS=. read -r major minor _ <<<"${1#v}"
  [[ $major =~ ^[0-9]+$ && $minor =~ ^[0-9]+$ ]] || return 1
  [ "$major" -gt "$NODE_MIN_MAJOR" ] || { [ "$major" = "$NODE_MIN_MAJOR" ] && [ "$minor" -ge "$NODE_MIN_MINOR" ]; }
}

# node_fits FILE: whether FILE is a Node that is new enough.
node_fits() {
  version_fits "$("$1" --version 2>/dev/null || true)"
}

# find_node: prints the path of a Node that is new enough: the system's, else the one that
# scripts/setup put into .cache/node. Status 1 when there is none.
find_node() {
  local candidate
  for candidate in "$(command -v node || true)" "$REPO/.cache/node/node_modules/node/bin/node"; do
    if [ -n "$candidate" ] && node_fits "$candidate"; then
      readlink -f "$candidate"
      return 0
    fi
  done
  return 1
}

# real_ollama: prints the path of a real Ollama's binary: VGPU_TEST_OLLAMA, else this machine's own.
# Status 1 when there is none; a stand-in is none.
real_ollama() {
  local path=${VGPU_TEST_OLLAMA:-$(command -v ollama || true)}
  [ -n "$path" ] && [ -x "$path" ] || return 1
  ! "$path" --version 2>/dev/null | grep -q stand-in || return 1
  readlink -f "$path"
}
