/** Every fixed path of the contract (DESIGN: Contracts), named once. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { VgpuError } from './errors.js';

export const storeRoot = '/opt/vgpu';
export const storeVersions = '/opt/vgpu/versions';
/** Link to the version in use; everything of ours points through it. */
export const storeCurrent = '/opt/vgpu/current';
export const guestConf = '/etc/vgpu/guest.conf';
/** `000-`: the loader cache prefers the first directory (measured: facts on Linux libraries). */
export const loaderConf = '/etc/ld.so.conf.d/000-vgpu.conf';
export const stateDirectory = '/var/lib/vgpu-agent';
export const manifestFile = '/var/lib/vgpu-agent/manifest.json';
export const transactionFile = '/var/lib/vgpu-agent/transaction.jsonl';
export const backupDirectory = '/var/lib/vgpu-agent/backup';
export const lockFile = '/run/vgpu-agent/lock';
/** A file a unit: how long its log was before its latest start. Gone at boot, as every start then is. */
export const startsDirectory = '/run/vgpu-agent/starts';
/** While `doctor --trace` traces a service: `unit` names it, `events` is what its processes write. Gone at boot. */
export const traceDirectory = '/run/vgpu-agent/trace';
export const traceRecord = '/run/vgpu-agent/trace/unit';
export const traceFile = '/run/vgpu-agent/trace/events';
/** The tracer's name in the store. */
export const tracerName = 'libvgpu-trace.so';
export const agentConf = '/etc/vgpu-agent/agent.json';
export const userProfiles = '/etc/vgpu-agent/profiles';
export const defaultSocket = '/run/vgpu/hostd.sock';
export const defaultPort = 14833;
/** Name of our drop-in inside `/etc/systemd/system/<unit>.d/`. */
export const dropInName = '50-vgpu.conf';

/** The service that keeps an installation true. */
export const agentUnit = 'vgpu-agent.service';
export const agentUnitFile = '/etc/systemd/system/vgpu-agent.service';
export const agentUnitLink = '/etc/systemd/system/multi-user.target.wants/vgpu-agent.service';
/** Who may do what on the system bus. */
export const busPolicyFile = '/etc/dbus-1/system.d/org.vgpu.Agent1.conf';
/** Who may have the service act, for polkit. */
export const polkitFile = '/usr/share/polkit-1/actions/org.vgpu.Agent1.policy';
/** Explanations of the journal entries, for `journalctl -x`. */
export const catalogFile = '/usr/lib/systemd/catalog/vgpu-agent.catalog';

export function dropInPath(unit: string): string {
  return `/etc/systemd/system/${unit}.d/${dropInName}`;
}

/** The runtime drop-in of a trace. Its name comes after our own last one, and after those that people use. */
export function traceDropInPath(unit: string): string {
  return `/run/systemd/system/${unit}.d/zzzz-vgpu-trace.conf`;
}

/**
 * The directory that holds package.json, `profiles/` and `build/shim/`: found
 * upwards from this module, so that a checkout, a global npm install and a
 * package all work. Throws an internal VgpuError if there is none.
 */
export function packageRoot(from: string = path.dirname(fileURLToPath(import.meta.url))): string {
  for (let directory = from; ; directory = path.dirname(directory)) {
    if (existsSync(path.join(directory, 'package.json'))) return directory;
    if (directory === path.dirname(directory)) {
      throw new VgpuError(`no package.json above ${from}`, {
        kind: 'internal',
        operation: 'find the package root',
        path: from,
        remedy: 'install vgpu-agent again; files of it are missing',
      });
    }
  }
}
