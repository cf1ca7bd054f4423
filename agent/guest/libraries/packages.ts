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
  if (!root.isLive) return new Map();
  const dpkg = root.stat(dpkgInfo);
  if (dpkg !== null)
    return cache.of([dpkg.mtimeNs, ...wanted].join('\0'), () => dpkgOwners(root, runner, wanted));
  if (family === 'redhat' || family === 'suse')
    return ownersOneByOne(runner, 'rpm', ['-qf', '--queryformat', '%{NAME}\\n'], wanted);
  if (family === 'arch') return ownersOneByOne(runner, 'pacman', ['-Qoq'], wanted);
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

/** One question for each file: the tools print only names, and of a file without an owner an error or nothing. */
async function ownersOneByOne(
  runner: CommandRunner,
  program: string,
  args: readonly string[],
  files: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const answers = await Promise.all(
    files.map(async (file): Promise<[string, string]> => {
      const ran = await runner.run(program, [...args, '--', file], { timeoutMs: queryTimeoutMs });
      const [name = ''] = ran.stdout.toString('utf8').split('\n');
      return [file, name];
    }),
  );
  return new Map(answers.filter(([, name]) => /^[A-Za-z0-9@._+-]+$/.test(name)));
}
