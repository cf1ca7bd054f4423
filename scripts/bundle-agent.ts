/**
 * Part of the build: bundles dist/agent and its imports into dist/bundle. main.js is the command that people run; it
 * loads command.cjs with its code cache. The service runs daemon.cjs. Packages that few commands need are separate files.
 * Opening the 370 files of dist/agent and its imports takes half of a command's start time. The bundles are CommonJS
 * because Node 20 accepts a code cache only for CommonJS, and because the ES module loader takes 2 MB of the service's
 * memory (measured).
 */

import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, renameSync } from 'node:fs';
import path from 'node:path';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import { removeSync } from 'fs-extra/esm';
import { packageRoot } from '../agent/lib/paths.js';
import { noteBundled } from './bundled.js';

const modules = path.join(packageRoot(), 'dist', 'agent');
const directory = path.join(packageRoot(), 'dist', 'bundle');
const [fresh, former] = [`${directory}.new`, `${directory}.old`];
for (const left of [fresh, former]) removeSync(left);
/** Separate files, so that the service and most commands do not keep their source in memory. */
const rarelyRun = ['xmlbuilder', 'sax', 'prom-client', 'inquirer', '@grpc/grpc-js', '@grpc/proto-loader'];
const fileName = (name: string): string => name.replaceAll(/[@/]/g, '_');
const apart: Plugin = {
  name: 'apart',
  setup(bundler) {
    bundler.onResolve({ filter: new RegExp(`^(?:${rarelyRun.join('|')})$`) }, ({ path: name, kind }) =>
      kind === 'entry-point' ? null : { path: `./${fileName(name)}.cjs`, external: true },
    );
  },
};
/**
 * dbus-next brings xml2js, which we use for nothing but an Introspect of a path that is not its own. What that stands on
 * is run at its first use.
 */
const xml: Readonly<Record<string, string>> = { xmlbuilder: 'create', sax: 'parser' };
const xmlWhenUsed: Plugin = {
  name: 'xml-when-used',
  setup(bundler) {
    bundler.onResolve({ filter: /^(?:xmlbuilder|sax)$/ }, ({ path: name, namespace, kind, resolveDir }) =>
      namespace === 'when-used' || kind === 'entry-point'
        ? null
        : { path: name, namespace: 'when-used', pluginData: { resolveDir } },
    );
    bundler.onLoad({ filter: /^/, namespace: 'when-used' }, ({ path: name, pluginData }) => ({
      contents: `exports.${xml[name]} = (...given) => require('${name}').${xml[name]}(...given);`,
      resolveDir: pluginData.resolveDir,
    }));
  },
};
const common = {
  bundle: true,
  platform: 'node',
  target: 'node20',
  // Without white space each start reads less; names stay, for stack traces.
  minifyWhitespace: true,
  minifySyntax: true,
  sourcemap: 'linked',
  legalComments: 'linked',
  outdir: fresh,
  logLevel: 'warning',
  metafile: true,
} satisfies BuildOptions;
const bundles = await build({
  ...common,
  // The UMD build of the package passes require() as a value, which esbuild cannot follow.
  alias: { 'jsonc-parser': 'jsonc-parser/lib/esm/main.js' },
  // The first two load native code from their own directories. dbus-next uses x11 only if it is installed.
  external: ['systemd-journald', 'usocket', 'x11'],
  entryPoints: {
    command: path.join(modules, 'cli/commands/command-line.js'),
    daemon: path.join(modules, 'service', 'main.js'),
    ...Object.fromEntries(rarelyRun.map((name) => [fileName(name), name])),
  },
  outExtension: { '.js': '.cjs' },
  format: 'cjs',
  // import() would load the loader of modules.
  supported: { 'dynamic-import': false },
  define: { 'import.meta.url': 'bundleUrl', 'import.meta.dirname': '__dirname' },
  banner: { js: "const bundleUrl = require('node:url').pathToFileURL(__filename).href;" },
  plugins: [xmlWhenUsed, apart],
});
const launcher = await build({
  ...common,
  entryPoints: { main: path.join(packageRoot(), 'dist/scripts/bundle/main.js') },
  format: 'esm',
});
noteBundled('agent', [bundles.metafile, launcher.metafile]);
chmodSync(path.join(fresh, 'main.js'), 0o755);
// Atomic: a command that starts meanwhile finds the old bundle or the new one.
if (existsSync(directory)) renameSync(directory, former);
renameSync(fresh, directory);
removeSync(former);
// The doctor changes nothing and calls most functions of the other commands. If this fails, commands start more slowly.
spawnSync(
  process.execPath,
  [
    path.join(packageRoot(), 'dist/scripts/bundle/code-cache.js'),
    path.join(directory, 'command.cjs'),
    'doctor',
    '--json',
  ],
  { timeout: 60_000 },
);
