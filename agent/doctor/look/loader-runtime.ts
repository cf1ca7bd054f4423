/**
 * What a glibc loader was built with and finds out about its processor. It tells itself
 * (`ld.so --list-diagnostics`, glibc 2.33 and later), so nothing here is guessed from a distribution's name.
 */
import type { CommandRunner } from '../../run-command.js';
import { type RunUser, runAs } from '../../trust/run-as.js';

export interface LoaderRuntime {
  /** `[2, 36]`. */
  readonly version: readonly [number, number];
  /** `$LIB`: `lib/x86_64-linux-gnu`, `lib64`. */
  readonly lib: string;
  /** `$PLATFORM`; null when there is none. */
  readonly platform: string | null;
  /** The default directories, in order, without a slash at the end. */
  readonly systemDirectories: readonly string[];
  /** Subdirectories that are looked into before a directory itself, best first: `glibc-hwcaps/x86-64-v3`. */
  readonly subdirectories: readonly string[];
}

const askTimeoutMs = 5_000;

/** Root asks as nobody, too: what a loader says of itself is the same for everybody. */
const nobody: RunUser = { uid: 65534, gid: 65534, groups: [] };

/** Asks as `user`. Null when this is no glibc loader, one before 2.33, or it cannot be run. */
export async function readLoaderRuntime(
  runner: CommandRunner,
  loader: string,
  user: Pick<RunUser, 'uid' | 'groups'> | null,
): Promise<LoaderRuntime | null> {
  const [gid, ...groups] = user?.groups ?? [];
  const asks = user === null || user.uid === 0 || gid === undefined ? nobody : { uid: user.uid, gid, groups };
  const isRoot = process.geteuid?.() === 0;
  const told = await (isRoot
    ? runAs(runner, asks, loader, ['--list-diagnostics'], { timeoutMs: askTimeoutMs })
    : runner.run(loader, ['--list-diagnostics'], { timeoutMs: askTimeoutMs })
  ).catch(() => null);
  return told?.code === 0 ? parseLoaderDiagnostics(told.stdout.toString('utf8')) : null;
}

/** Reads the `NAME=VALUE` lines of `--list-diagnostics`. */
export function parseLoaderDiagnostics(text: string): LoaderRuntime | null {
  const values = new Map<string, string>();
  for (const line of text.split('\n')) {
    const match = /^([a-z0-9_.[\]]+)=(?:"((?:[^"\\]|\\.)*)"|(0x[0-9a-f]+))$/.exec(line);
    if (match?.[1] !== undefined) values.set(match[1], match[2] ?? match[3] ?? '');
  }
  const version = /^(\d+)\.(\d+)/.exec(values.get('version.version') ?? '');
  const lib = values.get('dl_dst_lib');
  if (version === null || lib === undefined) return null;
  const systemDirectories: string[] = [];
  for (let index = 0; ; index += 1) {
    const directory = values.get(`path.system_dirs[0x${index.toString(16)}]`);
    if (directory === undefined) break;
    systemDirectories.push(directory.replace(/(?<=.)\/+$/, ''));
  }
  const numbers = [Number(version[1]), Number(version[2])] as const;
  const platform = values.get('dl_platform') ?? '';
  return {
    version: numbers,
    lib,
    platform: platform === '' ? null : platform,
    systemDirectories,
    subdirectories: [
      ...activeHwcaps(values).map((name) => `glibc-hwcaps/${name}`),
      ...(hasLegacy(numbers) ? legacySubdirectories(values, platform) : []),
    ],
  };
}

function activeHwcaps(values: ReadonlyMap<string, string>): readonly string[] {
  const names = (values.get('dl_hwcaps_subdirs') ?? '').split(':').filter((name) => name !== '');
  const active = Number(values.get('dl_hwcaps_subdirs_active') ?? '0');
  return names.filter((_, index) => (active & (1 << index)) !== 0);
}

/** glibc 2.37 gave up the subdirectories from before glibc-hwcaps. */
function hasLegacy([major, minor]: readonly [number, number]): boolean {
  return major < 2 || (major === 2 && minor < 37);
}

/** Bits of dl_hwcap by their names (sysdeps/x86/dl-hwcap.h of glibc 2.36). */
const legacyBits = ['sse2', 'x86_64', 'avx512_1'];

/** Other processors have other bits; a driver's library was never put into such a directory there. */
const legacyPlatforms = ['', 'haswell', 'xeon_phi', 'x86_64'];

/** Every choice of these names, in this order, the fuller one first; the empty one is the directory itself. */
function legacySubdirectories(values: ReadonlyMap<string, string>, platform: string): readonly string[] {
  if (!legacyPlatforms.includes(platform)) return [];
  const bits = Number(values.get('dl_hwcap') ?? '0') & Number(values.get('dl_hwcap_important') ?? '0');
  const named = legacyBits.filter((_, index) => (bits & (1 << index)) !== 0).toReversed();
  const names = ['tls', platform, ...named].filter((name) => name !== '');
  const choices = (from: number): string[][] => {
    const name = names[from];
    if (name === undefined) return [[]];
    const rest = choices(from + 1);
    return [...rest.map((one) => [name, ...one]), ...rest];
  };
  return choices(0)
    .filter((choice) => choice.length > 0)
    .map((choice) => choice.join('/'));
}
