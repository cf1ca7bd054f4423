/** Every fixed path that scripts, packages and parts of the agent rely on, named once. */
import { accessSync, existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { VgpuError } from './errors.js';

export const storeRoot = '/opt/vgpu';

export function isInStore(path: string): boolean {
  return path === storeRoot || path.startsWith(`${storeRoot}/`);
}

export const storeVersions = '/opt/vgpu/versions';
/** Link to the version in use; everything installed points through it. */
export const storeCurrent = '/opt/vgpu/current';
export const ldconfig = '/sbin/ldconfig';
export const guestConf = '/etc/vgpu/guest.conf';
/** `000-`: the loader cache prefers the first directory (measured: facts on Linux libraries). */
export const loaderConf = '/etc/ld.so.conf.d/000-vgpu.conf';

/** Where apply/ keeps what it owns, what it was about to do, and what stood there before. */
export interface StatePaths {
  readonly directory: string;
  readonly manifest: string;
  readonly transaction: string;
  readonly backups: string;
}

function statePaths(directory: string): StatePaths {
  return {
    directory,
    manifest: `${directory}/manifest.json`,
    transaction: `${directory}/transaction.jsonl`,
    backups: `${directory}/backup`,
  };
}

export const guestState = statePaths('/var/lib/vgpu-agent');
export const hostState = statePaths('/var/lib/vgpu-host');
export const lockFile = '/run/vgpu-agent/lock';
/** Of several hosts the one that the service uses: the library tries it first (shim-src/guest/config.c). */
export const hostInUseFile = '/run/vgpu-agent/host';
/** Beside the lock: the starts of the service since it was stopped cleanly (service/own-process.ts). */
export const serviceStarts = '/run/vgpu-agent/starts';
/** While `doctor --trace` traces a service: `unit` names it, `events` is what its processes write. Gone at boot. */
export const traceDirectory = '/run/vgpu-agent/trace';
export const traceRecord = '/run/vgpu-agent/trace/unit';
export const traceFile = '/run/vgpu-agent/trace/events';
export const tracerName = 'libvgpu-trace.so';
export const ptxasName = 'vgpu-ptxas';
export const agentConf = '/etc/vgpu-agent/agent.json';
export const userProfiles = '/etc/vgpu-agent/profiles';
export const defaultSocket = '/run/vgpu/hostd.sock';
export const defaultPort = 14833;
/** Name of our drop-in inside `/etc/systemd/system/<unit>.d/`. */
const dropInName = '50-vgpu.conf';

/** udev rule: which users may open memory that this guest shares with its host. */
export const vmMemoryRule = '/etc/udev/rules.d/70-vgpu-memory.rules';

export const systemdUnits = '/etc/systemd/system';
export const agentUnit = 'vgpu-agent.service';
export const agentUnitFile = '/etc/systemd/system/vgpu-agent.service';
export const agentUnitLink = '/etc/systemd/system/multi-user.target.wants/vgpu-agent.service';
export const busPolicyFile = '/etc/dbus-1/system.d/org.vgpu.Agent1.conf';
export const polkitFile = '/usr/share/polkit-1/actions/org.vgpu.Agent1.policy';
export const catalogFile = '/usr/lib/systemd/catalog/vgpu-agent.catalog';
export const manDirectory = '/usr/share/man';
export const manPages = ['vgpu-agent.8', 'vgpu-agent.json.5', 'vgpu-doctor.7'];
/** Where each shell looks for completions, and the name of the completion in dist/bundle/completions. */
export const completions: readonly (readonly [path: string, source: string])[] = [
  ['/usr/share/bash-completion/completions/vgpu-agent', 'vgpu-agent.bash'],
  ['/usr/share/zsh/vendor-completions/_vgpu-agent', 'vgpu-agent.zsh'],
  ['/usr/share/fish/vendor_completions.d/vgpu-agent.fish', 'vgpu-agent.fish'],
];

export const cockpitDirectory = '/usr/share/cockpit';
export const cockpitPage = `${cockpitDirectory}/vgpu-agent`;
export const cockpitFiles = ['manifest.json', 'index.html', 'page.css', 'page.js', 'show.js'];

export const hostd = '/usr/bin/vgpu-hostd';
export const hostUnit = 'vgpu-hostd.service';
export const hostSocketUnit = 'vgpu-hostd.socket';
export const hostDriverUnit = 'vgpu-hostd-driver.service';
export const hostDefaults = '/etc/default/vgpu-hostd';
export const hostConf = '/etc/vgpu/hostd.conf';
/** The configurations whose text invites a person to edit it. */
export const editableFiles: ReadonlySet<string> = new Set([agentConf, hostDefaults, hostConf]);
export const deviceProfiles = '/usr/share/vgpu/devices';
export const hostManPages = ['vgpu-hostd.8', 'vgpu-hostd.conf.5', 'vgpu-agent-host.8'];

export const cdiDirectories = ['/etc/cdi', '/run/cdi'];
export const cdiFile = '/etc/cdi/vgpu.json';
export const cdiNvidiaFile = '/etc/cdi/vgpu-nvidia.json';
/** The variable of a container that has one of the devices: its value is the device's name. */
export const cdiVariable = 'VGPU_CDI_DEVICE';
/** Where the loaders of Debian's and of Red Hat's families look without a cache: the libraries in a container. */
export const containerLibraryDirectories = ['/usr/lib/x86_64-linux-gnu', '/usr/lib64'];

export function quadletDropIn(quadlet: string): string {
  return `/etc/containers/systemd/${quadlet.slice(quadlet.lastIndexOf('/') + 1)}.d/${dropInName}`;
}

export function dropInPath(unit: string): string {
  return `/etc/systemd/system/${unit}.d/${dropInName}`;
}

/** The runtime drop-in of a trace. Its name comes after our own last one, and after those that people use. */
export function traceDropInPath(unit: string): string {
  return `/run/systemd/system/${unit}.d/zzzz-vgpu-trace.conf`;
}

/** Has package.json, `profiles/` and `build/shim/`. Throws `internal` if there is none. */
export function packageRoot(): string {
  const found = findPackageRoot();
  if (found !== null) return found;
  throw new VgpuError('no package.json above the files of vgpu-agent', {
    kind: 'internal',
    operation: 'find the package root',
    path: import.meta.dirname,
    remedy: 'install vgpu-agent again; files of it are missing',
  });
}

/** The nearest directory above this module with package.json: a checkout, an npm install or a package. */
export function findPackageRoot(from: string = path.dirname(fileURLToPath(import.meta.url))): string | null {
  for (let directory = from; ; directory = path.dirname(directory)) {
    if (existsSync(path.join(directory, 'package.json'))) return directory;
    if (directory === path.dirname(directory)) return null;
  }
}

/** True if this process may access the file; `mode` as for access(2), such as constants.R_OK. */
export function may(file: string, mode: number): boolean {
  try {
    accessSync(file, mode);
    return true;
  } catch {
    return false;
  }
}
