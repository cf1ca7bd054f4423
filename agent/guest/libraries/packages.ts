/** Which package owns a file, from the package manager's own records. */
import type { DistributionFamily } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { Root } from '../files/root.js';

const queryTimeoutMs = 20_000;
const dpkgInfo = '/var/lib/dpkg/info';

/**
 * The owner of each of `files` that has one, by the name the package manager gives (`libcuda1:amd64`).
 * On merged /usr a package may list a file under either name of its directory; both count. Where no package
 * manager is known the answer is empty.
 */
export async function packageOwners(
  root: Root,
  runner: CommandRunner,
  family: DistributionFamily,
  files: readonly string[],
  cache: OwnerCache = new OwnerCache(),
): Promise<ReadonlyMap<string, string>> {
  const wanted = [...new Set(files)];
  if (wanted.length === 0) return new Map();
  // Only the tool reads its database, and only that of its own system.
  if (!root.isLive) return new Map();
  const dpkg = root.stat(dpkgInfo);
  if (dpkg !== null)
    return cache.of([dpkg.mtimeNs, ...wanted].join('\0'), () => dpkgOwners(root, runner, wanted));
  if (family === 'redhat' || family === 'suse') return rpmOwners(runner, wanted);
  if (family === 'arch') return pacmanOwners(runner, wanted);
  return new Map();
}

/** Remembers dpkg's answer while its records are the same: dpkg replaces a list by a rename in their directory. */
export class OwnerCache {
  #key = '';
  #owners: Promise<ReadonlyMap<string, string>> = Promise.resolve(new Map());

  of(key: string, ask: () => Promise<ReadonlyMap<string, string>>): Promise<ReadonlyMap<string, string>> {
    if (key !== this.#key) {
      this.#owners = ask();
      this.#key = key;
      this.#owners.catch(() => {
        this.#key = '';
      });
    }
    return this.#owners;
  }
}

/** A file that several packages own is told with all of them; a diversion is told without an owner. */
const ownerLine = /^(?!(?:local )?diversion )([^,\s]+)(?:, .*)?: (\/.*)$/gm;

async function dpkgOwners(
  root: Root,
  runner: CommandRunner,
  files: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const names = files.map((file) => ({ file, known: dpkgNames(root, file) }));
  const patterns = new Set(
    names.flatMap(({ known }) => known.map((one) => one.replace(/[*?[\]\\]/g, '\\$&'))),
  );
  const { stdout } = await runner.run('dpkg-query', ['-S', '--', ...patterns], { timeoutMs: queryTimeoutMs });
  const told = new Map<string, string>();
  for (const [, owner = '', file = ''] of stdout.toString('utf8').matchAll(ownerLine)) told.set(file, owner);
  return new Map(
    names.flatMap(({ file, known }): [string, string][] => {
      const owner = known.map((one) => told.get(one)).find((one) => one !== undefined);
      return owner === undefined ? [] : [[file, owner]];
    }),
  );
}

/** The names under which dpkg may know a file: as given, by its real directory, and without merged `/usr`. */
function dpkgNames(root: Root, file: string): readonly string[] {
  const names = new Set([file]);
  const real = root.canonical(file);
  if (real !== null) {
    names.add(real);
    if (real.startsWith('/usr/') && root.canonical(real.slice('/usr'.length)) === real) {
      names.add(real.slice('/usr'.length));
    }
  }
  return [...names];
}

/** `rpm -qf` answers one line for each file, in order, also for a file without an owner. */
async function rpmOwners(
  runner: CommandRunner,
  files: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const result = await runner.run('rpm', ['-qf', '--queryformat', '%{NAME}\n', '--', ...files], {
    timeoutMs: queryTimeoutMs,
  });
  const lines = result.stdout.toString('utf8').trimEnd().split('\n');
  const owners = new Map<string, string>();
  // A file that two packages own gives two lines, so lines do not match files any more: query each file separately.
  if (lines.length !== files.length) {
    if (files.length === 1) return lines[0] ? new Map([[files[0] ?? '', lines[0]]]) : owners;
    const answers = await Promise.all(files.map((file) => rpmOwners(runner, [file])));
    for (const [file, owner] of answers.flatMap((answer) => [...answer])) owners.set(file, owner);
    return owners;
  }
  files.forEach((file, index) => {
    const line = lines[index] ?? '';
    if (/^[A-Za-z0-9._+-]+$/.test(line)) owners.set(file, line);
  });
  return owners;
}

/** One file for each query: `pacman -Qoq` prints only names, and nothing for a file without an owner. */
async function pacmanOwners(
  runner: CommandRunner,
  files: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const owners = new Map<string, string>();
  for (const file of files) {
    const result = await runner.run('pacman', ['-Qoq', '--', file], { timeoutMs: queryTimeoutMs });
    const [owner = ''] = result.stdout.toString('utf8').split('\n');
    if (owner !== '') owners.set(file, owner);
  }
  return owners;
}
