/** The dynamic loader's cache and the directories that ldconfig makes it of. */
import path from 'node:path';
import type { Distribution, LoaderCacheEntry, LoaderFacts } from '../../contracts/facts.js';
import { glob } from '../../lib/glob.js';
import { ldconfig } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { Root } from '../files/root.js';

const printTimeoutMs = 10_000;

/** In the cache's order: the loader takes the first that fits. Empty: no cache, or ldconfig failed. */
export async function readLoaderCache(
  root: Root,
  runner: CommandRunner,
): Promise<readonly LoaderCacheEntry[]> {
  const args = root.isLive ? ['-p'] : ['-r', root.prefix, '-p'];
  const ran = await runner.run(ldconfig, args, { timeoutMs: printTimeoutMs }).catch(() => null);
  return [...(ran?.stdout.toString('utf8') ?? '').matchAll(/^\t(.+) \((.+)\) => (.+)$/gm)].map(
    ([, soname = '', flags = '', file = '']) => ({ soname, path: file, flags }),
  );
}

// The directories that ldconfig reads, in its order: /etc/ld.so.conf with its includes, then the built-in ones.

const maxConfBytes = 256 * 1024;
/** ldconfig follows includes without a limit; a chain this long is a cycle. */
const maxDepth = 16;

type Directory = LoaderFacts['directories'][number];

/**
 * As ldconfig's parse_conf: `#` begins a comment, `include PATTERN...` is relative to the including file and
 * sorted, `hwcap` is ignored, `DIR=TYPE` loses its type, any other line is one directory. Directories that
 * do not exist are listed too; a name that comes again is not.
 */
export function readLoaderDirectories(root: Root, distribution: Distribution): readonly Directory[] {
  const found: Directory[] = [];
  readConf(root, '/etc/ld.so.conf', 0, found);
  for (const builtIn of builtInDirectories(distribution)) found.push({ path: builtIn, from: 'built in' });
  const seen = new Set<string>();
  return found.filter((one) => !seen.has(one.path) && seen.add(one.path));
}

function readConf(root: Root, file: string, depth: number, found: Directory[]): void {
  if (depth > maxDepth) return;
  const bytes = root.readFile(file, maxConfBytes);
  if (bytes === null) return;
  for (const raw of bytes.toString('utf8').split('\n')) {
    const line = raw.replace(/#.*/, '').trim();
    const include = /^include[ \t]+(.*)$/.exec(line)?.[1];
    if (include !== undefined) {
      for (const pattern of include.split(/[ \t]+/)) {
        for (const included of glob(root, path.resolve(path.dirname(file), pattern))) {
          readConf(root, included, depth + 1, found);
        }
      }
    } else if (line !== '' && !/^hwcap[ \t]/i.test(line)) {
      const directory = line.replace(/=.*/, '').trimEnd().replace(/\/+$/, '');
      if (directory.startsWith('/')) found.push({ path: directory, from: file });
    }
  }
}

/** Debian builds glibc for the multiarch directories and adds the plain ones; others have lib64 on 64 bit. */
function builtInDirectories(distribution: Distribution): readonly string[] {
  const { multiarch } = distribution;
  if (multiarch !== null) return [`/lib/${multiarch}`, `/usr/lib/${multiarch}`, '/lib', '/usr/lib'];
  return distribution.family === 'arch' ? ['/usr/lib'] : ['/lib64', '/usr/lib64', '/lib', '/usr/lib'];
}
