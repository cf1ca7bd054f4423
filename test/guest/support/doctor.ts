// Helpers for the tests of the doctor: a healthy guest, and a table of faults, each found as the first BROKEN check.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { DoctorDocument } from '../../../agent/cli/commands/doctor.js';
import {
  type Consumer,
  type ConsumerDesign,
  long,
  realOllama,
  whyNoConsumer,
  whyNoOllama,
} from './consumer.js';
import { Guest, whyNoGuest } from './guest.js';
import { whyNoHostd } from './hosts.js';
import { freshCache } from './installed.js';
import { installedGpu, tell } from './scenario.js';

/** `vgpu-agent doctor --json`, its document held against the schema. */
export async function doctor(guest: Guest, ...args: readonly string[]): Promise<DoctorDocument> {
  const told = await tell(guest, 'doctor', ...args);
  const { document, code } = told;
  const expected = document.healthy
    ? 0
    : { gpu: 5, cpu: 3, undetermined: 4, degraded: 5 }[document.verdict.mode];
  if (document.fix?.outcome !== 'declined') assert.equal(code, expected, told.stderr);
  return document;
}

export interface Breakage {
  /** Completes "it finds ...": `a public link that dangles`. */
  readonly name: string;
  readonly skip?: string | false;
  /** Needs the stand-in's settings or writes into its directories, so a real Ollama cannot be used. */
  readonly standIn?: true;
  /** Also runs with a real Ollama if there is one; the others only with --long or VGPU_TEST_OLLAMA. */
  readonly real?: true;
  readonly break: (guest: Guest) => Promise<unknown>;
  readonly undo: (guest: Guest) => Promise<unknown>;
  /** Id of the check that must be the first BROKEN (`kind: 'warning'`: the check that must warn). */
  readonly check: string;
  /** The first BROKEN check, if an earlier check finds the cause of this one. */
  readonly first?: string;
  readonly kind?: 'broken' | 'warning';
  /** Each pattern must match a line of the evidence. */
  readonly evidence: readonly RegExp[];
  readonly cause?: RegExp;
  readonly command: RegExp;
  /** The expected `remedy.fix`. */
  readonly fix: boolean;
}

/** The whole finding of a fault, for a failed assertion. */
function shown(document: DoctorDocument): string {
  const told = document.checks.filter(({ finding }) => finding.kind !== 'ok');
  return JSON.stringify({ first: document.first, told, verdict: document.verdict.summary }, null, 1);
}

/** Checks that a document reports the fault. */
export function assertFound(document: DoctorDocument, wanted: Breakage): void {
  const kind = wanted.kind ?? 'broken';
  const found = document.checks.find(({ id }) => id === wanted.check);
  assert.ok(found !== undefined, `no check ${wanted.check}`);
  const { finding } = found;
  if (kind === 'broken') assert.equal(document.first, wanted.first ?? wanted.check, shown(document));
  assert.ok(finding.kind === 'broken' || finding.kind === 'warning', shown(document));
  assert.equal(finding.kind, kind, shown(document));
  for (const pattern of wanted.evidence) assert.match(finding.evidence.join('\n'), pattern);
  if (wanted.cause !== undefined) assert.match(finding.cause, wanted.cause);
  assert.match(finding.remedy.command, wanted.command);
  assert.equal(finding.remedy.fix, wanted.fix, shown(document));
}

/** No check is broken, warns or is unknown. `but`: checks that may warn here. */
export function assertHealthy(document: DoctorDocument, but: readonly string[] = []): void {
  assert.equal(document.healthy, true, shown(document));
  const alarms = document.checks.filter(
    ({ id, finding }) => finding.kind !== 'ok' && finding.kind !== 'not-applicable' && !but.includes(id),
  );
  assert.deepEqual(alarms, []);
}

export interface TableOptions {
  readonly design?: ConsumerDesign;
  /** Environment of the consumer's unit; the runner stays unless the environment changes that. */
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * One guest for all faults: it is healthy before, each fault is the first BROKEN check and is undone, and the guest is
 * healthy after. If an undo leaves something behind, the next test fails with the finding about it. Then the same with a
 * real Ollama, if there is one.
 */
export function breakages(title: string, table: readonly Breakage[], options: TableOptions = {}): void {
  if (realOllama() === undefined) found(title, table, options.design ?? 3, options);
  const all = long || realOllama() !== undefined;
  const real = table.filter((one) => one.standIn === undefined && (all || one.real === true));
  if (real.length > 0) found(`${title}, with a real Ollama`, real, 'real', options);
}

function found(title: string, table: readonly Breakage[], consumer: Consumer, options: TableOptions): void {
  const skip = whyNoGuest() || whyNoHostd() || (consumer === 'real' ? whyNoOllama() : whyNoConsumer());
  describe(title, { skip }, () => {
    let guest: Guest;
    before(async () => {
      guest = await Guest.start();
      await guest.hosts.start();
      const env = options.env ?? { STANDIN_KEEP_RUNNER: '1' };
      await guest.installConsumer(consumer, { env });
      await freshCache(guest);
      await installedGpu(guest);
    });
    after(() => guest?.stop());

    test('a healthy machine has no finding', async () => {
      assertHealthy(await doctor(guest));
    });

    for (const breakage of table) {
      test(`it finds ${breakage.name}`, { skip: breakage.skip ?? false }, async () => {
        try {
          await breakage.break(guest);
          assertFound(await doctor(guest), breakage);
        } finally {
          await breakage.undo(guest);
        }
      });
    }

    test('the machine has no finding once all faults are undone', async () => {
      assertHealthy(await doctor(guest));
    });
  });
}
