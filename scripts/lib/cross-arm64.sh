# shellcheck shell=bash
# Debian's cross compiler for arm64 as scripts/fetch-packages unpacks it into .cache, and the libraries to link with.
# Source it in the root of the repository; it defines functions and does nothing else.

# cross_arm64: writes build/arm64.ini for meson, and sets what the tools need: ARM64_GCC, ARM64_GXX (arrays), ARM64_TOOLS
# (the start of each tool's path) and LD_LIBRARY_PATH. Ends with 1 if something is not fetched.
cross_arm64() {
  local tools libraries group library
  for group in gcc-arm64 libraries-arm64; do
    [ -e ".cache/roots/$group/.complete" ] || {
      echo "${0##*/}: the arm64 tools are not fetched: scripts/fetch-packages gcc-arm64 libraries-arm64 gets them" >&2
      exit 1
    }
  done
  tools=$(realpath .cache/roots/gcc-arm64) libraries=$(realpath .cache/roots/libraries-arm64)
  ARM64_TOOLS=$tools/usr/bin/aarch64-linux-gnu-
  # In the sysroot, because meson writes other directories into the results as their search path. The linker follows the
  # absolute paths in libc.so below the sysroot.
  for library in "$libraries"{/usr,}/lib/aarch64-linux-gnu/lib*.so*; do
    [ -e "$tools/usr/aarch64-linux-gnu/lib/${library##*/}" ] ||
      ln -sf "../../../../libraries-arm64${library#"$libraries"}" "$tools/usr/lib/aarch64-linux-gnu/"
  done
  local flags=("--sysroot=$tools" -isystem "$libraries/usr/include")
  ARM64_GCC=("${ARM64_TOOLS}gcc" "${flags[@]}")
  # shellcheck disable=SC2034 # for scripts/package
  ARM64_GXX=("${ARM64_TOOLS}g++" "${flags[@]}")
  # The assembler's and the linker's own libraries.
  export LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  mkdir -p build
  cat >build/arm64.ini <<INI
[binaries]
c = [$(printf "'%s', " "${ARM64_GCC[@]}")]
ar = '${ARM64_TOOLS}ar'
strip = '${ARM64_TOOLS}strip'
pkgconfig = 'pkg-config'
[properties]
sys_root = '$tools'
pkg_config_libdir = '$libraries/usr/lib/aarch64-linux-gnu/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
INI
}
