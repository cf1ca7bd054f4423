/** Made evidence for the tests of confirm/. */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { LibraryVendor, ProcessFacts } from '../../../agent/contracts/facts.js';
import type { HostWord, ProbeReport, ProbeResult } from '../../../agent/contracts/probe.js';
import type { LoadedUnit, SandboxFacts } from '../../../agent/contracts/unit.js';
import { packageRoot } from '../../../agent/lib/paths.js';
import { loadProfile } from '../../../agent/profile/load.js';
import type { Profile } from '../../../agent/profile/types.js';
import type { LogEntry } from '../../../agent/verdict/log/entry.js';
import type { LogFindings } from '../../../agent/verdict/log/findings.js';
import { logJudges } from '../../../agent/verdict/log/judge.js';
import type { Observation } from '../../../agent/verdict/observation.js';

export const places = {
  directories: [path.join(packageRoot(), 'profiles')],
  schema: path.join(packageRoot(), 'profiles/profile.schema.json'),
};
export const ollama = loadProfile('ollama', places);
export const llamaServer = loadProfile('llama-server', places);

const fixtures = path.join(packageRoot(), 'test/fixtures/ollama-logs');

/** A line of which nothing but its text is known. */
export function plainEntry(text: string, source: string): LogEntry {
  return { text, source, invocationId: null, pid: null, speaker: 'consumer', truncated: false };
}

/** Judges whole lines at once. */
export function judgeLog(profile: Profile, lines: readonly string[]): LogFindings {
  const judge = logJudges(profile)();
  for (const [index, line] of lines.entries()) judge.push(plainEntry(line, `line ${index + 1}`));
  return judge.findings();
}

export function fixtureText(name: string): string {
  return readFileSync(path.join(fixtures, `ollama-${name}.log`), 'utf8');
}

export interface FixtureEntry {
  readonly file: string;
  readonly mode: string;
}

export function manifest(): readonly FixtureEntry[] {
  return JSON.parse(readFileSync(path.join(fixtures, 'manifest.json'), 'utf8'));
}

export function findingsOf(name: string): LogFindings {
  return judgeLog(ollama, fixtureText(name).split('\n'));
}

export const store = '/opt/vgpu/versions/0123456789abcdef';

export const openSandbox: SandboxFacts = {
  restrictAddressFamilies: null,
  privateNetwork: false,
  devicePolicy: 'auto',
  memoryDenyWriteExecute: false,
  noNewPrivileges: false,
  protectHome: 'no',
  rootDirectory: '',
  inaccessiblePaths: [],
  temporaryFileSystem: [],
};

export const loader = {
  LD_LIBRARY_PATH: '/opt/vgpu/current',
  LD_PRELOAD: '/opt/vgpu/current/libcuda.so.1:/opt/vgpu/current/libnvidia-ml.so.1',
};

/** Of a unit whose profile does without LD_PRELOAD: then a mapped libcuda was loaded by the program itself. */
export const searched = { LD_LIBRARY_PATH: loader.LD_LIBRARY_PATH };

export function unit(changes: Partial<LoadedUnit> = {}): LoadedUnit {
  return {
    kind: 'loaded',
    name: 'ollama.service',
    fragment: '/etc/systemd/system/ollama.service',
    dropIns: [],
    activeState: 'active',
    subState: 'running',
    result: 'success',
    restarts: 0,
    mainPid: 100,
    invocationId: 'a'.repeat(32),
    needDaemonReload: false,
    environment: { ...loader },
    environmentFiles: [],
    execStart: ['/usr/local/bin/ollama', 'serve'],
    user: 'ollama',
    group: 'ollama',
    dynamicUser: false,
    standardOutput: 'journal',
    standardError: 'inherit',
    sandbox: openSandbox,
    ...changes,
  };
}

export type MappedVendor = LibraryVendor | 'stale';

export function libraries(...vendors: readonly MappedVendor[]): ProcessFacts['libraries'] {
  return vendors.map((vendor) =>
    vendor === 'vgpu' || vendor === 'stale'
      ? { path: `${store}/libcuda.so.1`, deleted: vendor === 'stale', vendor: 'vgpu' }
      : { path: '/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01', deleted: false, vendor },
  );
}

export function processFacts(changes: Partial<ProcessFacts> = {}): ProcessFacts {
  return {
    pid: 100,
    parent: 1,
    name: 'ollama',
    startTicks: '5000',
    executable: '/usr/local/bin/ollama',
    libraries: libraries('vgpu'),
    loaderEnvironment: { ...loader },
    ...changes,
  };
}

export function report(changes: Partial<ProbeReport> = {}): ProbeReport {
  return {
    schema: 1,
    ok: true,
    simulated: false,
    library: `${store}/libcuda.so.1`,
    driver: '13.0',
    devices: [
      {
        index: 0,
        name: 'NVIDIA H100 80GB HBM3',
        compute: '9.0',
        memory: 85_017_755_648,
        pci: '0000:01:00.0',
        uuid: 'GPU-10111213-1415-1617-1819-1a1b1c1d1e1f',
      },
    ],
    roundTrip: { bytes: 1_048_576, ok: true, microseconds: 900 },
    nvml: { ok: true, driver: '580.65.06', error: null },
    host: null,
    error: null,
    ...changes,
  };
}

export function answered(changes: Partial<ProbeReport> = {}): ProbeResult {
  return { kind: 'answered', report: report(changes), milliseconds: 120 };
}

/** Our libcuda's account of its host. */
export function hostWord(code: HostWord['code'], changes: Partial<HostWord> = {}): HostWord {
  const none = { errno: null, status: null, guestWire: 1, hostWire: null, host: null };
  return { code, ...none, message: `the shim met ${code}`, ...changes };
}

const noDeviceChanges: Partial<ProbeReport> = {
  ok: false,
  devices: [],
  roundTrip: null,
  error: {
    kind: 'call',
    step: 'cuInit',
    code: 100,
    name: 'CUDA_ERROR_NO_DEVICE',
    message: 'cuInit failed with 100',
  },
};

export const noDevice: ProbeResult = answered(noDeviceChanges);

/** The probe finds no device, and our libcuda tells why. */
export function withoutHost(host: HostWord): ProbeResult {
  return answered({ ...noDeviceChanges, host });
}

/** The same, but nothing is preloaded. */
export function withoutPreload(seen: Observation): Observation {
  return {
    ...seen,
    unit: seen.unit.kind === 'loaded' ? { ...seen.unit, environment: searched } : seen.unit,
    processes: seen.processes.map(({ role, facts }) => ({
      role,
      facts: { ...facts, loaderEnvironment: searched },
    })),
  };
}

/** A healthy start in GPU mode, with changes. */
export function observation(changes: Partial<Observation> = {}): Observation {
  return {
    profile: ollama,
    unit: unit(),
    invocationId: 'a'.repeat(32),
    restarted: false,
    end: 'settled',
    elapsedMs: 1_200,
    restarts: 0,
    // Judged only where no other is given: that takes a millisecond, and one test makes thousands of observations.
    log: changes.log ?? findingsOf('0.32.9_gpu-mode_debug0'),
    lastWords: [],
    journalError: null,
    logFile: null,
    readiness: { kind: 'answered', url: 'http://127.0.0.1:11434/api/version', afterMs: 900 },
    processes: [{ role: 'main', facts: processFacts() }],
    present: { loaded: { kind: 'unasked' }, sessions: { kind: 'unasked' } },
    probe: answered(),
    host: null,
    endpoint: 'unix:/run/vgpu/hostd.sock',
    ...changes,
  };
}
