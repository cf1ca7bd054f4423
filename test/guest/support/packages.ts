// The Debian packages of this tree, and an apt source with them, for guests that have no network.

import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { appendFile, copyFile, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Guest } from './guest.js';
import { runOk } from './process.js';
import { repository } from './repository.js';
import type { releases } from './roots.js';
import { SigningKey } from './signing-key.js';

/** The packages that a bare guest lacks and that our packages depend on. */
const needed: Readonly<Record<(typeof releases)[number], string>> = {
  bookworm: 'jansson-bookworm',
  trixie: 'jansson-trixie',
  sid: 'jansson-sid',
};

/** The version of the second set of packages. */
export const nextVersion = '99.0.0';
/** Where guests see the apt source. */
const place = '/packages';

/** Why there are no packages to test, or false; for the `skip` option of a test. */
export function whyNoPackages(): string | false {
  if (!existsSync(join(repository, '.git'))) return 'not a git checkout';
  for (const tool of ['dpkg-scanpackages', 'dpkg-shlibdeps', 'gpg', 'gpg-agent', 'gpgconf']) {
    if (!existsSync(`/usr/bin/${tool}`))
      return `${tool} is missing: scripts/setup --develop installs dpkg-dev and gpg`;
  }
  const node = join(repository, '.cache/nodes/22');
  return existsSync(node) ? false : 'scripts/fetch-node 22 was not run';
}

/** Why a release's dependencies are not here, or false. */
export function whyNoDependencies(release: keyof typeof needed): string | false {
  const group = needed[release];
  return existsSync(join(repository, '.cache/roots', group, '.complete'))
    ? false
    : `scripts/fetch-packages ${group} was not run`;
}

/** Builds the packages as they are for a release, but not compressed; then a set with another version and another shim. */
export async function buildPackages(): Promise<PackageSource> {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-test-packages-'));
  // apt reads it, and the key in it, as a user of its own.
  chmodSync(directory, 0o755);
  const options = { timeoutMs: 300_000 };
  await runOk(
    join(repository, 'scripts/package'),
    ['--no-build', '--debs', '--fast', '--out', directory],
    options,
  );
  for (const name of readdirSync(directory).filter((one) => one.endsWith('.deb'))) {
    await anotherVersion(directory, name, nextVersion);
  }
  return new PackageSource(directory, await SigningKey.make());
}

/**
 * Makes the same package with another version in control and package.json, and with another program: `other`, or the
 * package's own program with one byte more.
 */
async function anotherVersion(
  directory: string,
  name: string,
  version: string,
  other?: string,
): Promise<void> {
  const tree = join(directory, 'tree');
  const options = { timeoutMs: 300_000 };
  await runOk('dpkg-deb', ['-R', join(directory, name), tree], options);
  const replace = async (file: string, from: RegExp, to: string): Promise<void> => {
    const text = await readFile(join(tree, file), 'utf8');
    await writeFile(join(tree, file), text.replace(from, to));
  };
  await replace('DEBIAN/control', /^Version: .*$/m, `Version: ${version}`);
  const agent = 'usr/lib/vgpu-agent';
  const program = name.startsWith('vgpu-agent') ? `${agent}/build/shim/vgpu-probe` : 'usr/bin/vgpu-hostd';
  if (other === undefined) await appendFile(join(tree, program), '\0');
  else await copyFile(other, join(tree, program));
  const changed = [program];
  if (name.startsWith('vgpu-agent')) {
    await replace(`${agent}/package.json`, /"version": "[^"]*"/, `"version": "${version}"`);
    changed.push(`${agent}/package.json`);
  }
  for (const file of changed) {
    const sum = createHash('md5')
      .update(readFileSync(join(tree, file)))
      .digest('hex');
    await replace('DEBIAN/md5sums', new RegExp(`^[0-9a-f]{32}  ${file}$`, 'm'), `${sum}  ${file}`);
  }
  const target = name.replace(/_[^_]*_/, `_${version}_`);
  await runOk(
    'dpkg-deb',
    ['--root-owner-group', '-Znone', '--build', tree, join(directory, target)],
    options,
  );
  rmSync(tree, { recursive: true });
}

export class PackageSource {
  readonly directory: string;
  readonly #key: SigningKey;

  constructor(directory: string, key: SigningKey) {
    this.directory = directory;
    this.#key = key;
  }

  /** Adds the host's package as another version, whose daemon speaks another wire version. Before `complete`. */
  async addHostOfWire(number: number, version: string): Promise<void> {
    const name = readdirSync(this.directory).find((one) => one.startsWith(`vgpu-hostd_${nextVersion}_`));
    const daemon = join(repository, `build/shim/programs/vgpu-hostd-wire-${number}`);
    await anotherVersion(this.directory, name ?? '', version, daemon);
  }

  /** Adds what the packages depend on and a bare guest of that release lacks; writes the signed index. */
  async complete(release: keyof typeof needed): Promise<string> {
    const debs = join(repository, '.cache/debs', release);
    for (const name of readdirSync(debs).filter((one) => one.startsWith('libjansson4_'))) {
      await copyFile(join(debs, name), join(this.directory, name));
    }
    await this.sign(this.directory, this.#key);
    return `${this.directory}:${place}`;
  }

  /** Signs a repository with the operator's command. */
  async sign(directory: string, key: SigningKey): Promise<void> {
    const options = ['--key', key.fingerprint, '--packages', directory, directory];
    await runOk(join(repository, 'scripts/package-repository'), options, { env: key.env });
  }

  remove(): void {
    this.#key.remove();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/**
 * Leaves the guest only its packages: this source is its only apt source, documentation is installed, and the command of
 * the checkout and the Node beside it are removed.
 */
export async function bareOfCheckout(guest: Guest): Promise<void> {
  await guest.must(
    'sh',
    '-c',
    `rm -f /usr/local/bin/vgpu-agent /etc/dpkg/dpkg.cfg.d/99mmdebstrap /etc/apt/sources.list /etc/apt/sources.list.d/*
     echo 'deb [signed-by=${place}/vgpu-agent.asc] file:${place} ./' >/etc/apt/sources.list.d/test.list
     umount /usr/local/bin/node 2>/dev/null; rm -f /usr/local/bin/node
     umount -l ${repository} || exit 1
     apt-get -qq update && ! test -e ${repository}/package.json && ! command -v node`,
  );
}

/** The complaints of dpkg and apt; empty when there are none. A configuration file may have been edited. */
export async function complaints(guest: Guest): Promise<string> {
  const ran = await guest.run(
    'sh',
    '-c',
    `dpkg --audit; apt-get -qq check 2>&1
     for package in vgpu-agent vgpu-hostd; do
       test ! -e /var/lib/dpkg/info/$package.md5sums || dpkg --verify $package | grep -v ' c /etc/'
     done`,
  );
  return ran.stdout + ran.stderr;
}

/** The state of a package, as dpkg reports it. */
export async function stateOf(guest: Guest, name: string): Promise<string> {
  return (await guest.must('dpkg', '-s', name)).match(/^Status: (.*)$/m)?.[1] ?? '';
}
