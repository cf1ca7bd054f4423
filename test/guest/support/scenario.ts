// Helpers for the tests of verdicts: a guest with a consumer and a host, the agent's JSON checked against its
// schema, and the rules for every verdict.

import assert from 'node:assert/strict';
import type { ChangeDocument } from '../../../agent/cli/commands/common.js';
import type { DoctorDocument } from '../../../agent/cli/commands/doctor.js';
import type { StatusDocument } from '../../../agent/cli/commands/status.js';
import type { Mode, Reason, Verdict } from '../../../agent/contracts/verdict.js';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { type Consumer, consumerDesigns } from './consumer.js';
import { type Afterwards, Guest } from './guest.js';
import type { Ran } from './process.js';

interface Documents {
  readonly doctor: DoctorDocument;
  readonly install: ChangeDocument;
  readonly plan: Pick<ChangeDocument, 'plan'>;
  readonly status: StatusDocument;
  readonly uninstall: ChangeDocument;
  readonly verify: { readonly verdict: Verdict };
}

/** A run of the agent with its document, which fits the schema. */
export interface Told<Name extends keyof Documents> extends Ran {
  readonly document: Documents[Name];
  readonly ms: number;
}

/** Runs `vgpu-agent NAME --json ARGS`; fails unless standard output is one document that fits its schema. */
export async function tell<Name extends keyof Documents>(
  guest: Guest,
  name: Name,
  ...args: readonly string[]
): Promise<Told<Name>> {
  const start = performance.now();
  const ran = await guest.agent(name, '--json', ...args);
  const ms = performance.now() - start;
  assert.notEqual(ran.stdout, '', `vgpu-agent ${name}: ${ran.stderr}`);
  return { ...ran, ms, document: assertDocument(name, ran.stdout) as Documents[Name] };
}

/** The document that `vgpu-agent --json` prints when a command fails. */
export interface ErrorDocument {
  readonly kind: string;
  readonly message: string;
  readonly operation: string;
  readonly path: string | null;
  readonly remedy: string | null;
  readonly exitCode: number;
}

/** Returns the error of a failed `--json` run. Checks schema, exit code and standard error. */
export function errorOf(ran: Ran): ErrorDocument {
  assert.notEqual(ran.stdout, '', ran.stderr);
  const { error } = assertDocument('error', ran.stdout) as { readonly error: ErrorDocument };
  assert.equal(error.exitCode, ran.code);
  assert.match(error.message, /\S/);
  assert.doesNotMatch(ran.stderr, /^\s+at /m, 'a stack trace is no message');
  return error;
}

export interface ReadyOptions {
  readonly design?: Consumer;
  /** Environment of the consumer's unit. */
  readonly env?: Readonly<Record<string, string>>;
  /** Starts the consumer; true unless given. */
  readonly start?: boolean;
  /** Starts vgpu-hostd; true unless given. */
  readonly host?: boolean;
}

/** A guest with a consumer on the CPU, and a host beside it. */
export async function ready(t: Afterwards | undefined, options: ReadyOptions = {}): Promise<Guest> {
  const guest = await Guest.start({}, t);
  if (options.host !== false) await guest.hosts.start();
  const design = options.design ?? consumerDesigns().at(-1) ?? 3;
  const { env = {}, start = true } = options;
  await guest.installConsumer(design, { env, start });
  return guest;
}

const testDropIn = '/etc/systemd/system/ollama.service.d/90-test.conf';

/** Adds these lines of [Service] to the consumer's unit, after all others. They stay. */
export async function settings(guest: Guest, ...lines: readonly string[]): Promise<void> {
  if (lines.length === 0) await guest.must('rm', '-f', testDropIn);
  else await guest.write(testDropIn, `[Service]\n${lines.join('\n')}\n`);
  await guest.must('systemctl', 'daemon-reload');
}

/** Starts the consumer again. Resets systemd's start limit before. */
export async function restartConsumer(guest: Guest): Promise<void> {
  await guest.must('sh', '-c', 'systemctl reset-failed ollama; systemctl restart ollama');
}

/** Checks that the consumer runs and answers /api/version, which must hold at any time. */
export async function assertServes(guest: Guest, port = 11_434): Promise<void> {
  assert.equal(await guest.property('ollama', 'ActiveState'), 'active');
  const ask = `exec 3<>/dev/tcp/127.0.0.1/${port} && printf 'GET /api/version HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 10 cat <&3`;
  const answer = await guest.run('bash', '-c', ask);
  assert.match(answer.stdout, /"version":/, `port ${port}: ${answer.stdout}${answer.stderr}`);
}

const exitCodes: Readonly<Record<Mode, number>> = { gpu: 0, cpu: 3, undetermined: 4, degraded: 5 };

/** The expected verdict. `reason` may be a list if the machine decides which comes first. */
export interface Expected {
  readonly mode: Mode;
  readonly reason?: Reason | readonly Reason[];
}

/** Returns the verdict of a run. Checks the expected values and the rules for every verdict. */
export async function assertVerdict(
  guest: Guest,
  told: Ran & { readonly document: { readonly verdict: Verdict | null } },
  expected: Expected,
): Promise<Verdict> {
  const { verdict } = told.document;
  const shown = `${JSON.stringify(verdict, null, 1)}\n${told.stderr}`;
  assert.ok(verdict !== null, shown);
  assert.equal(verdict.mode, expected.mode, shown);
  const allowed: readonly (Reason | null)[] = [expected.reason ?? null].flat();
  assert.ok(allowed.includes(verdict.reason), `${verdict.reason} is none of ${allowed.join()}\n${shown}`);
  assert.equal(told.code, exitCodes[verdict.mode], shown);
  assertSound(verdict, shown);
  const invocation = await guest.invocationId(verdict.unit).catch(() => '');
  if (invocation !== '' && verdict.reason !== 'unit-restarting')
    assert.equal(verdict.invocationId, invocation);
  return verdict;
}

function assertSound(verdict: Verdict, shown: string): void {
  assert.match(verdict.summary, /^[^\n]+\.$/, shown);
  if (verdict.mode !== 'gpu') {
    assert.notEqual(verdict.next, null, `${verdict.mode} without a next command\n${shown}`);
    return;
  }
  assert.equal(verdict.next, null);
  assert.equal(verdict.simulated, true, 'the GPU of these tests is a simulated one');
  assert.match(verdict.summary, /simulated/);
  assert.ok(verdict.devices.length > 0, shown);
  for (const device of verdict.devices) {
    assert.equal(device.library, 'cuda', 'this guest has no other device');
    assert.match(device.compute, /^[1-9]\d*\.\d$/);
    assert.match(device.name, / \(simulated\)$/);
  }
  const speaking = verdict.evidence.filter(({ weight }) => weight === 'for').map(({ kind }) => kind);
  // llama-server logs nothing about a GPU.
  if (verdict.profile !== 'llama-server') assert.ok(speaking.includes('log-line'), shown);
  // The host has run its kernels, which is the strongest evidence.
  if (speaking.includes('sessions')) return;
  assert.ok(speaking.includes('maps') || speaking.includes('probe'), shown);
  const inContainer = verdict.evidence.some(({ source }) => source?.endsWith('in the container') === true);
  const store = inContainer
    ? /(?:: |through )\/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1/
    : /\/opt\/vgpu\/versions\/[0-9a-f]{16}\/libcuda\.so\.1/;
  assert.ok(
    verdict.evidence.some(({ weight, text }) => weight === 'for' && store.test(text)),
    shown,
  );
}

/** The texts of a verdict's evidence of one kind. */
export function evidence(verdict: Verdict, kind: Verdict['evidence'][number]['kind']): readonly string[] {
  return verdict.evidence.filter((item) => item.kind === kind).map(({ text }) => text);
}

/** Returns the one verdict of a successful install. */
export async function installedGpu(guest: Guest, ...args: readonly string[]): Promise<Verdict> {
  return assertVerdict(guest, await tell(guest, 'install', '--yes', ...args), { mode: 'gpu' });
}
