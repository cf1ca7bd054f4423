/** Daemons and programs for each test of a `describe` block, in its own directory; all end after the test. */
import { afterEach, beforeEach } from 'node:test';
import { type Host, type Shell, scratchDirectory, startHost, startShell } from '../shim_host.js';

export interface Started {
  /** The path of that name in the test's directory. */
  at(name: string): string;
  /** A daemon; without `listen` at the socket `s` of the directory. */
  start(args?: readonly string[], listen?: string): Promise<Host>;
  /** A program whose calls go to that daemon. */
  open(host: Host): Shell;
  /** A program with these variables in its environment. */
  shell(env: Readonly<Record<string, string>>): Shell;
}

export function inEachTest(): Started {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let shells: Shell[] = [];
  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const host of hosts) await host.stop();
    [shells, hosts] = [[], []];
    scratch.remove();
  });
  const shell = (env: Readonly<Record<string, string>>): Shell => {
    const started = startShell(env);
    shells.push(started);
    return started;
  };
  const at = (name: string): string => `${scratch.path}/${name}`;
  return {
    at,
    async start(args = [], listen = `unix:${at('s')}`) {
      const host = await startHost({ listen, args });
      hosts.push(host);
      return host;
    },
    open: (host) => shell({ VGPU_HOST: host.address }),
    shell,
  };
}
