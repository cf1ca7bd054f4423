/**
 * Part of the build: dist/bundle, of dist/agent and what it imports: main.js, the command that people run, and
 * daemon.js, what the service runs.
 * Half of the start of a command was finding and opening 370 files; the rest is what is really run. Parts
 * that only some commands need stay files of their own and are loaded when they are imported.
 */
import { chmodSync, existsSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { build } from 'esbuild';
import { packageRoot } from '../agent/paths.js';

const modules = path.join(packageRoot(), 'dist', 'agent');
const directory = path.join(packageRoot(), 'dist', 'bundle');
const [fresh, former] = [`${directory}.new`, `${directory}.old`];
for (const left of [fresh, former]) rmSync(left, { recursive: true, force: true });
await build({
  entryPoints: { main: path.join(modules, 'main.js'), daemon: path.join(modules, 'daemon', 'main.js') },
  outdir: fresh,
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  // What is not there need not be read at each start; names stay, for who reads a stack.
  minifyWhitespace: true,
  minifySyntax: true,
  sourcemap: 'linked',
  legalComments: 'linked',
  // Native code, found beside its package; and what dbus-next would use if somebody had installed it.
  external: ['systemd-journald', 'usocket', 'x11'],
  // Packages in CommonJS call require(), which a module does not have.
  banner: {
    js: "import { createRequire as bundleRequire } from 'node:module'; const require = bundleRequire(import.meta.url);",
  },
  logLevel: 'warning',
});
chmodSync(path.join(fresh, 'main.js'), 0o755);
// Whole or not at all: a command that starts meanwhile finds the former or the new one.
if (existsSync(directory)) renameSync(directory, former);
renameSync(fresh, directory);
rmSync(former, { recursive: true, force: true });
