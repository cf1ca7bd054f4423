# shellcheck shell=bash
# The files of a copy of the agent that runs by itself: scripts/install-agent installs it, scripts/package packs it.
# Source it after common.sh, in the directory of the checkout.

# agent_files DIR [SHIM]: the agent without a Node, without its native addon and without vgpu-hostd.
agent_files() {
  local to=$1 shim=${2:-build/shim} part
  install -d -m 0755 "$to/dist/agent" "$to/build/shim" "$to/docs"
  cp -R --no-preserve=ownership dist/bundle "$to/dist/"
  cp -R --no-preserve=ownership dist/agent/schemas "$to/dist/agent/"
  cp -R --no-preserve=ownership profiles units "$to/"
  # Only what checks the page needs them.
  rm -rf "$to/units/cockpit/types"
  cp --no-preserve=ownership package.json LICENSE "$to/"
  cp -R --no-preserve=ownership docs/man docs/json "$to/docs/"
  for part in libcuda.so.1 libnvidia-ml.so.1 libvgpu-trace.so vgpu-probe vgpu-ptxas vgpu-watch; do
    [ ! -e "$shim/$part" ] || cp --no-preserve=ownership "$shim/$part" "$to/build/shim/"
  done
}

# journald_files DIR ADDON: the one package that is not in the bundle, with its native part.
journald_files() {
  local to=$1/node_modules/systemd-journald from=node_modules/systemd-journald
  install -d -m 0755 "$to/build/Release"
  cp --no-preserve=ownership "$from"/*.js "$from/package.json" "$from/LICENSE" "$to/"
  cp --no-preserve=ownership "$2" "$to/build/Release/journal_send.node"
}
