// Helpers for the tests of install and uninstall in a guest.

import assert from 'node:assert/strict';
import { multiarch, type StartingState } from '../states/state.js';
import { type Consumer, type ConsumerDesign, consumerDesigns } from './consumer.js';
import { type Afterwards, Guest } from './guest.js';
import type { Listing } from './listing.js';
import type { Ran } from './process.js';

/** The value at a path of a JSON document; undefined where there is none. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>(
    (inner, key) =>
      typeof inner === 'object' && inner !== null
        ? Object.getOwnPropertyDescriptor(inner, key)?.value
        : undefined,
    value,
  );
}

/** Returns the one JSON document on stdout. If the exit code is not `code`, fails with all output, the verdict first. */
export function documentOf(ran: Ran, code = 0): unknown {
  const said = `${ran.stdout}\n${ran.stderr}`;
  assert.equal(ran.code, code, `exit status ${ran.code}, not ${code}\n${verdictIn(ran.stdout)}${said}`);
  return JSON.parse(ran.stdout);
}

/** A report is cut off long before the end of a plan, and the verdict comes after it. */
function verdictIn(stdout: string): string {
  try {
    const verdict = at(JSON.parse(stdout), 'verdict');
    return verdict === undefined || verdict === null ? '' : `${JSON.stringify(verdict, null, 1)}\n`;
  } catch {
    return '';
  }
}

/** `install --yes --json`, which must prove GPU mode of a GPU that says it is simulated. */
export async function installToGpu(guest: Guest, ...args: readonly string[]): Promise<unknown> {
  const document = documentOf(await guest.agent('install', '--yes', '--json', ...args));
  assert.equal(at(document, 'verdict', 'mode'), 'gpu', JSON.stringify(document, null, 1));
  assert.equal(at(document, 'verdict', 'simulated'), true);
  return document;
}

/** `uninstall --yes`, which must succeed. */
export async function uninstall(guest: Guest, ...args: readonly string[]): Promise<Ran> {
  const ran = await guest.agent('uninstall', '--yes', ...args);
  assert.equal(ran.code, 0, ran.stdout + ran.stderr);
  return ran;
}

/**
 * Files whose modification time may change although their bytes do not, and why. All other files must keep their
 * time.
 */
const writtenAgain: Readonly<Record<string, string>> = {
  '/etc/ld.so.cache': 'ldconfig always writes it',
  '/var/lib/dpkg/alternatives/nvidia': 'update-alternatives always writes it',
  '/var/lib/dpkg/alternatives/glx': 'as above, by the packages of NVIDIA',
};

/** Differences between two listings that have to be equal: types, modes, owners, sizes, bytes, targets and times. */
export function differences(before: Listing, after: Listing): readonly string[] {
  const lines = before.diff(after, { mtimes: 'files' });
  return lines.filter((line) => !Object.keys(writtenAgain).some((path) => line === `~ ${path}: mtime`));
}

/** Installs and starts the consumer. */
export async function prepareConsumer(
  guest: Guest,
  design: Consumer,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  await guest.installConsumer(design, { env });
  await freshCache(guest);
}

/** The design of the state; a real Ollama has a design of its own. */
export function designFor(state: StartingState): ConsumerDesign {
  const designs = consumerDesigns();
  return designs.includes(state.design) ? state.design : (designs[0] ?? 3);
}

/** A guest in this state, with a host and a consumer. */
export async function preparedIn(state: StartingState, t?: Afterwards): Promise<Guest> {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await prepareConsumer(guest, designFor(state));
  await state.prepare(guest);
  await freshCache(guest);
  return guest;
}

/** The file that a library's link leads to in the end. */
export async function leadsTo(guest: Guest, name: string): Promise<string> {
  return (await guest.must('readlink', '-f', `${multiarch}/${name}`)).trim();
}

/**
 * Rebuilds the loader cache without setting links. Otherwise an uninstall could replace a stale cache by a fresh one, and
 * the listing would differ.
 */
export async function freshCache(guest: Guest): Promise<void> {
  await guest.must('ldconfig', '-X');
}

/** The loader variables and libraries of one process of the consumer. */
export interface ConsumerProcess {
  readonly pid: number;
  /** The first argument's base name and the second: `ollama serve`. */
  readonly command: string;
  readonly environment: Readonly<Record<string, string>>;
  /** Shared libraries that the process has mapped, each once. */
  readonly libraries: readonly string[];
}

/** All processes of the unit, as /proc shows them. */
export async function consumerProcesses(
  guest: Guest,
  unit = 'ollama.service',
): Promise<readonly ConsumerProcess[]> {
  const script = `cgroup=$(systemctl show --value -p ControlGroup ${unit})
    for pid in $(cat /sys/fs/cgroup$cgroup/cgroup.procs); do
      printf 'pid %s\\n' $pid
      tr '\\0' ' ' </proc/$pid/cmdline | sed 's/^/command /'; echo
      tr '\\0' '\\n' </proc/$pid/environ | sed 's/^/env /'
      sed -n 's|^[^/]*\\(/.*\\.so[.0-9]*\\)$|map \\1|p' /proc/$pid/maps | sort -u
    done`;
  const processes: {
    pid: number;
    command: string;
    environment: Record<string, string>;
    libraries: string[];
  }[] = [];
  for (const line of (await guest.must('bash', '-c', script)).split('\n')) {
    const [kind = '', rest = ''] = splitAt(line, ' ');
    const process = processes.at(-1);
    if (kind === 'pid') processes.push({ pid: Number(rest), command: '', environment: {}, libraries: [] });
    else if (process === undefined) continue;
    else if (kind === 'command') process.command = rest.trim();
    else if (kind === 'map') process.libraries.push(rest);
    else if (kind === 'env') {
      const [name = '', value = ''] = splitAt(rest, '=');
      process.environment[name] = value;
    }
  }
  return processes;
}

function splitAt(text: string, separator: string): [string, string] {
  const index = text.indexOf(separator);
  return index < 0 ? [text, ''] : [text.slice(0, index), text.slice(index + separator.length)];
}

/** The consumer runs, answers, and has nothing of vgpu-agent in its environment or its memory. */
export async function assertRunsWithoutShim(guest: Guest): Promise<void> {
  await assertAnswers(guest);
  const processes = await consumerProcesses(guest);
  assert.ok(processes.length > 0, 'the consumer has no process');
  for (const { command, environment, libraries } of processes) {
    const ours = Object.entries(environment).filter(([, value]) => value.includes('/opt/vgpu'));
    assert.deepEqual(ours, [], `${command} still has our environment`);
    assert.deepEqual(
      libraries.filter((library) => library.startsWith('/opt/vgpu')),
      [],
      `${command} still has the shim loaded`,
    );
  }
}

/** Answers /api/version within a minute. */
export async function assertAnswers(guest: Guest): Promise<void> {
  const ran = await guest.run('bash', '-c', answerScript);
  assert.equal(ran.code, 0, `the consumer does not answer\n${ran.stdout}${ran.stderr}`);
}

/**
 * Starts the consumer again and waits until it answers, which must work wherever the agent was killed. The loader must not
 * have complained in its log: the consumer has found either the former state or the new state, complete.
 */
export async function assertConsumerStarts(guest: Guest, context: string): Promise<void> {
  const ran = await guest.run(
    'bash',
    '-c',
    `systemctl reset-failed ollama
     systemctl restart ollama || exit 1
     ${answerScript}
     journalctl --sync
     ! journalctl -q --no-pager -o cat "_SYSTEMD_INVOCATION_ID=$(systemctl show --value -p InvocationID ollama)" |
       grep -F 'ld.so:'`,
  );
  assert.equal(ran.code, 0, `${context}: the consumer does not start cleanly\n${ran.stdout}${ran.stderr}`);
}

// A service that restarts resets connections: bash must survive the SIGPIPE.
const answerScript = `trap '' PIPE
  SECONDS=0
  while true; do
    if exec 3<>/dev/tcp/127.0.0.1/11434; then
      printf 'GET /api/version HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3
      read -r -t 5 status <&3 && [[ $status == *' 200 '* ]] && break
    fi 2>/dev/null
    if ((SECONDS > 60)); then
      systemctl status --no-pager ollama
      exit 1
    fi
    sleep 0.025
  done`;
