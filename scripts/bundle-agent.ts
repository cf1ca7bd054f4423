/**
 * Part of the build: dist/bundle, of dist/agent and what it imports: main.js, the command that people run, and
 * daemon.cjs, what the service runs.
 * Half of the start of a command was finding and opening 370 files; the rest is what is really run. Parts
 * that only some commands need stay files of their own and are loaded when they are imported.
 * The service is CommonJS: Node's loader of modules, which it would keep in memory for life, takes 2 MB (measured).
 */

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
/** Modules that the service runs rarely or never: files of their own, so that it does not keep their text in memory. */
const rarelyRun = ['xmlbuilder', 'sax', 'prom-client'];
const apart: Plugin = {
  name: 'apart',
  setup(bundler) {
    bundler.onResolve({ filter: new RegExp(`^(?:${rarelyRun.join('|')})$`) }, ({ path: name, kind }) =>
      kind === 'entry-point' ? null : { path: `./${name}.cjs`, external: true },
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
  // The other form of the package passes require() around, where no bundler follows.
  alias: { 'jsonc-parser': 'jsonc-parser/lib/esm/main.js' },
  // Without white space each start reads less; names stay, for stack traces.
  minifyWhitespace: true,
  minifySyntax: true,
  sourcemap: 'linked',
  legalComments: 'linked',
  // Native code, found beside its package; and a module that dbus-next would use if it were installed.
  external: ['systemd-journald', 'usocket', 'x11'],
  logLevel: 'warning',
  metafile: true,
} satisfies BuildOptions;
const command = await build({
  ...common,
  entryPoints: { main: path.join(modules, 'main.js') },
  outdir: fresh,
  splitting: true,
  format: 'esm',
  // Packages in CommonJS call require(), which a module does not have.
  banner: {
    js: "import { createRequire as bundleRequire } from 'node:module'; const require = bundleRequire(import.meta.url);",
  },
  plugins: [xmlWhenUsed],
});
const service = await build({
  ...common,
  entryPoints: {
    daemon: path.join(modules, 'service', 'main.js'),
    ...Object.fromEntries(rarelyRun.map((name) => [name, name])),
  },
  outdir: fresh,
  outExtension: { '.js': '.cjs' },
  format: 'cjs',
  // import() would load the loader of modules.
  supported: { 'dynamic-import': false },
  define: { 'import.meta.url': 'bundleUrl', 'import.meta.dirname': '__dirname' },
  banner: { js: "const bundleUrl = require('node:url').pathToFileURL(__filename).href;" },
  plugins: [xmlWhenUsed, apart],
});
noteBundled('agent', [command.metafile, service.metafile]);
chmodSync(path.join(fresh, 'main.js'), 0o755);
// Atomic: a command that starts meanwhile finds the old bundle or the new one.
if (existsSync(directory)) renameSync(directory, former);
renameSync(fresh, directory);
removeSync(former);
