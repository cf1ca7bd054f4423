/** Loads dist/bundle/command.cjs, for main.js and for the build step that writes the code cache. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { Script } from 'node:vm';
import type { runCommandLine } from '../../agent/cli/commands/command-line.js';

interface Bundle {
  readonly script: Script;
  readonly exports: { readonly runCommandLine: typeof runCommandLine };
}

/**
 * V8 checks its version, its flags and the length of the source, so it would use the cache of another source of the same
 * length: the build writes bundle and cache together.
 */
export function load(file: string): Bundle {
  const cache = `${file}.cache`;
  // esbuild writes ASCII. Reading it as UTF-8 would validate every byte at each start.
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(file, 'latin1')}\n})`;
  const script = new Script(source, {
    filename: file,
    ...(existsSync(cache) ? { cachedData: readFileSync(cache) } : {}),
  });
  const module: Pick<Bundle, 'exports'> = { exports: { runCommandLine: async () => 1 } };
  script.runInThisContext()(module.exports, createRequire(file), module, file, path.dirname(file));
  return { script, exports: module.exports };
}
