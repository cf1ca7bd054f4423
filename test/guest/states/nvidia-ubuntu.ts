// NVIDIA's driver libraries as Ubuntu's packages and NVIDIA's own installer put them: regular files beside all
// other libraries, and a link that ldconfig sets to the highest version at every run.

import { join } from 'node:path';
import type { Guest } from '../support/guest.js';
import { multiarch, packageGroup, type StartingState } from './state.js';

const { root, skip } = packageGroup('driver-550');
export const ubuntuVersion = '550.163.01';
const library = (name: string): string => join(root, multiarch, 'nvidia/current', name);

/** NVIDIA's .run installer, or a copy by hand: no package knows the files. */
export const runInstaller: StartingState = {
  name: "NVIDIA's libraries from its own installer",
  design: 1,
  skip,
  prepare: async (guest) => {
    await guest.must(
      'bash',
      '-ec',
      `install -m 0755 ${library(`libcuda.so.${ubuntuVersion}`)} ${library(`libnvidia-ml.so.${ubuntuVersion}`)} ${multiarch}/
       ldconfig
       ln -s libcuda.so.1 ${multiarch}/libcuda.so
       [ "$(readlink ${multiarch}/libcuda.so.1)" = libcuda.so.${ubuntuVersion} ]`,
    );
  },
};

/** Copied by hand, without ldconfig: it sets the links when the next package is installed. */
export const copiedLibraries: StartingState = {
  name: "NVIDIA's libraries copied by hand, their links not set yet",
  design: 2,
  skip,
  prepare: async (guest) => {
    await guest.must(
      'cp',
      library(`libcuda.so.${ubuntuVersion}`),
      library(`libnvidia-ml.so.${ubuntuVersion}`),
      multiarch,
    );
  },
};

/** Copied by hand with the links followed: a regular file beside the version that ldconfig would link to. */
export const copiedTwice: StartingState = {
  name: "NVIDIA's libraries copied by hand under both names",
  design: 1,
  skip,
  prepare: async (guest) => {
    await copiedLibraries.prepare(guest);
    await guest.must(
      'bash',
      '-ec',
      `for name in libcuda libnvidia-ml; do cp ${multiarch}/$name.so.${ubuntuVersion} ${multiarch}/$name.so.1; done`,
    );
  },
};

/** Ubuntu's libnvidia-compute-550: the same files with their links, owned by a package. */
export const ubuntuPackage: StartingState & {
  /** Installs the package once more; its ldconfig trigger runs. */
  reinstall(guest: Guest): Promise<void>;
  /** Installs the package of a later driver in its place. */
  upgrade(guest: Guest): Promise<void>;
} = {
  name: "NVIDIA's libraries from a package of Ubuntu's layout",
  design: 3,
  skip,
  prepare: (guest) => installPackage(guest, ubuntuVersion),
  reinstall: async (guest) => {
    await guest.must('dpkg', '--force-unsafe-io', '--install', deb(ubuntuVersion));
  },
  upgrade: (guest) => installPackage(guest, ubuntuUpgrade),
};

/** The version that `upgrade` installs: the same bytes, which is all that ldconfig and the agent can tell. */
export const ubuntuUpgrade = '560.35.03';

const deb = (version: string): string => `/tmp/libnvidia-compute-${version}.deb`;

/** Debian has no package of this layout, so one is built: Ubuntu's names and links around NVIDIA's real files. */
async function installPackage(guest: Guest, version: string): Promise<void> {
  const tree = '/tmp/libnvidia-compute';
  await guest.must(
    'bash',
    '-ec',
    `mkdir -p ${tree}/DEBIAN ${tree}${multiarch}
     for name in libcuda libnvidia-ml; do
       install -m 0644 ${join(root, multiarch)}/nvidia/current/$name.so.${ubuntuVersion} ${tree}${multiarch}/$name.so.${version}
       ln -s $name.so.${version} ${tree}${multiarch}/$name.so.1
     done
     ln -s libcuda.so.1 ${tree}${multiarch}/libcuda.so
     printf '%s\\n' 'Package: libnvidia-compute' 'Version: ${version}-0ubuntu1' 'Architecture: amd64' \\
       'Maintainer: tests of vgpu-agent' 'Description: NVIDIA libcompute package' >${tree}/DEBIAN/control
     echo 'activate-noawait ldconfig' >${tree}/DEBIAN/triggers
     dpkg-deb --root-owner-group -Znone --build ${tree} ${deb(version)}
     rm -r ${tree}
     dpkg --force-unsafe-io --install ${deb(version)}`,
  );
}
