// NVIDIA's driver libraries as Debian installs them: the real packages, their maintainer scripts and triggers,
// and so their alternatives. Everything happens in the guest's overlay.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Guest } from '../support/guest.js';
import { repository } from '../support/repository.js';
import { packageGroup, type StartingState } from './state.js';

export interface DebianDriver extends StartingState {
  /** Such as `535.261.03`. */
  readonly version: string;
  /** Installs libcuda1, libnvidia-ml1 and nvidia-alternative once more, as an upgrade does. */
  reinstall(guest: Guest): Promise<void>;
  /** Installs them with apt-get, from the files; missing dependencies are satisfied by empty packages. */
  installWithApt(guest: Guest): Promise<void>;
  /** Takes the libraries and the alternatives away, configuration included. */
  purge(guest: Guest): Promise<void>;
}

export const debian535 = driver('bookworm', 'driver-535', 'bookworm 535');
export const debian550 = driver('trixie', 'driver-550', 'trixie 550');

/** Debian 550 with the group "nvidia" set by hand, as update-glx and administrators do. */
export const debianManual: StartingState = {
  name: 'Debian alternatives set by hand',
  design: 1,
  skip: debian550.skip,
  prepare: async (guest) => {
    await debian550.prepare(guest);
    await guest.must('update-alternatives', '--set', 'nvidia', '/usr/lib/nvidia/current');
  },
};

function driver(suite: string, group: string, label: string): DebianDriver {
  const { root, skip } = packageGroup(group);
  const debs = skip === false ? readFileSync(join(root, '.complete'), 'utf8').trim().split('\n') : [];
  const version = /libcuda1_([\d.]+)-/.exec(debs.join(' '))?.[1] ?? 'unknown';
  const files = (names: readonly string[]): string[] =>
    names.map((name) => join(repository, '.cache/debs', suite, name));
  return {
    name: `NVIDIA's libraries from Debian (${label})`,
    design: 1,
    skip,
    version,
    prepare: async (guest) => {
      await quietTriggers(guest);
      await install(guest, files(debs));
    },
    installWithApt: async (guest) => {
      await quietTriggers(guest);
      await guest.must('bash', '-ec', emptyPackages, 'bash', version);
      const ran = await guest.runWith(
        { env: { DEBIAN_FRONTEND: 'noninteractive' }, timeoutMs: 400_000 },
        'apt-get',
        '-oDir::Etc::SourceList=/dev/null',
        '-oDir::Etc::SourceParts=/dev/null',
        '-oAPT::Sandbox::User=root',
        '-oDpkg::Options::=--force-unsafe-io',
        'install',
        '--yes',
        '--no-install-recommends',
        ...files(debs),
        '/tmp/pciutils.deb',
        '/tmp/libnvidia-pkcs11-openssl3.deb',
      );
      if (ran.code !== 0) throw new Error(`apt-get: exit status ${ran.code}\n${ran.stdout}${ran.stderr}`);
    },
    reinstall: (guest) =>
      install(guest, files(debs.filter((deb) => /^(libcuda1|libnvidia-ml1|nvidia-alternative)_/.test(deb)))),
    purge: (guest) =>
      dpkg(guest, '--purge', 'libcuda1', 'libnvidia-ml1', 'nvidia-smi', 'libnvidia-ptxjitcompiler1'),
  };
}

/** man-db's and the initramfs' triggers take seconds to minutes and have nothing to do with drivers. */
async function quietTriggers(guest: Guest): Promise<void> {
  await guest.must('rm', '-f', '/var/lib/man-db/auto-update');
  const conf = '/etc/initramfs-tools/update-initramfs.conf';
  await guest.must('sh', '-c', `[ ! -e ${conf} ] || sed -i 's/=yes/=no/' ${conf}`);
}

const emptyPackages = `
  mkdir -p /tmp/empty/DEBIAN
  for one in pciutils=1:9 libnvidia-pkcs11-openssl3=$1-1; do
    printf 'Package: %s\\nVersion: %s\\nArchitecture: amd64\\nMaintainer: test <test@localhost>\\nDescription: empty\\n' \
      "\${one%%=*}" "\${one#*=}" >/tmp/empty/DEBIAN/control
    dpkg-deb --build /tmp/empty "/tmp/\${one%%=*}.deb"
  done`;

/**
 * --force-depends: of what the packages depend on, pciutils and libnvidia-pkcs11-openssl3 are left out, which no
 * script of theirs needs. --force-unsafe-io: no fsync for a guest that is thrown away.
 */
async function install(guest: Guest, debs: readonly string[]): Promise<void> {
  await dpkg(guest, '--install', ...debs);
}

async function dpkg(guest: Guest, ...args: readonly string[]): Promise<void> {
  const ran = await guest.runWith(
    { env: { DEBIAN_FRONTEND: 'noninteractive' }, timeoutMs: 180_000 },
    'dpkg',
    '--force-depends',
    '--force-unsafe-io',
    ...args,
  );
  if (ran.code !== 0) throw new Error(`dpkg ${args[0]}: exit status ${ran.code}\n${ran.stdout}${ran.stderr}`);
}
