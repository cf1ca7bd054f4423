/** Every command by its name. A start loads only the command that it runs: the others' modules took half of its time. */
import type { Command } from 'commander';
import type { Run } from './types.js';

type Make = (run: Run) => Command;

const loaders = {
  setup: async () => (await import('./setup.js')).setupCommand,
  install: async () => (await import('./install.js')).installCommand,
  plan: async () => (await import('./plan.js')).planCommand,
  status: async () => (await import('./status.js')).statusCommand,
  verify: async () => (await import('./verify.js')).verifyCommand,
  doctor: async () => (await import('./doctor.js')).doctorCommand,
  restart: async () => (await import('./restart.js')).restartCommand,
  uninstall: async () => (await import('./uninstall.js')).uninstallCommand,
  host: async () => (await import('./host.js')).hostCommand,
  'explain-log': async () => (await import('./explain-log.js')).explainLogCommand,
  logs: async () => (await import('./logs.js')).logsCommand,
  metrics: async () => (await import('./metrics.js')).metricsCommand,
  profiles: async () => (await import('./profiles.js')).profilesCommand,
  run: async () => (await import('./run.js')).runCommand,
  cdi: async () => (await import('./cdi.js')).cdiCommand,
  completion: async () => (await import('./completion.js')).completionCommand,
  daemon: async () => (await import('./daemon.js')).daemonCommand,
  version: async () => (await import('./version.js')).versionCommand,
} satisfies Readonly<Record<string, () => Promise<Make>>>;

export const commandNames: readonly string[] = Object.keys(loaders);

/** The commands that this command line needs: the one that it names, or all if it needs their list. */
export async function commandsFor(argv: readonly string[]): Promise<readonly Make[]> {
  const first = argv.find((word) => !word.startsWith('-'));
  if (first === undefined && argv.some((word) => word === '--version' || word === '-V')) return [];
  const named = Object.entries<() => Promise<Make>>(loaders).filter(([name]) => name === first);
  return Promise.all(
    (named.length > 0 ? named : Object.entries<() => Promise<Make>>(loaders)).map(([, load]) => load()),
  );
}
