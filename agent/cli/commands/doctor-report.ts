/** `doctor --report FILE`: lists what the report has, asks, writes. */
import { accessSync, constants, existsSync } from 'node:fs';
import path from 'node:path';
import { errnoOf, VgpuError } from '../../lib/errors.js';
import { spawnRunner } from '../../lib/run-command.js';
import { bytes } from '../../lib/text.js';
import type { Diagnosis, DoctorFacts } from '../../verdict/doctor/types.js';
import { alreadyThere } from '../report/already-there.js';
import { cannotWrite } from '../report/cannot-write.js';
import { gatherReport } from '../report/report.js';
import { approved, requireSomeoneToAsk } from './common.js';
import type { CommandContext } from './types.js';

export interface ReportOutcome {
  readonly outcome: 'written' | 'declined';
  readonly path: string;
  readonly files: readonly { readonly name: string; readonly bytes: number; readonly what: string }[];
}

const look = 'vgpu-agent doctor';

/** Throws a VgpuError (`usage`) before anything is looked at when FILE cannot be it, or when there is no one to ask. */
export function checkReport(file: string, yes: boolean, context: CommandContext): void {
  if (!yes) requireSomeoneToAsk(context, `doctor --report ${file}`, look);
  if (file === '') {
    throw new VgpuError('--report "" names no file', {
      kind: 'usage',
      operation: 'write the report',
      remedy: 'name a file, such as vgpu.tar.gz',
    });
  }
  if (existsSync(file)) throw alreadyThere(file);
  const directory = path.dirname(path.resolve(file));
  if (existsSync(directory)) {
    requireWritable(directory, file);
    return;
  }
  throw new VgpuError(`${path.dirname(file)} does not exist, so no report can be written there`, {
    kind: 'usage',
    operation: 'write the report',
    path: file,
    remedy: 'name a file in a directory that exists',
  });
}

/** Throws a VgpuError (`failed`) when the kernel says that this user cannot make a file there. */
function requireWritable(directory: string, file: string): void {
  try {
    accessSync(directory, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw cannotWrite(file, errnoOf(cause) ?? String(cause), cause);
  }
}

export async function report(
  file: string,
  yes: boolean,
  found: { readonly facts: DoctorFacts; readonly diagnosis: Diagnosis; readonly document: object },
  context: CommandContext,
): Promise<ReportOutcome> {
  const runner = spawnRunner();
  const files = await gatherReport(runner, found.facts, found.diagnosis, found.document);
  const listed = files.map(({ name, what, text }) => ({ name, bytes: Buffer.byteLength(text), what }));
  const widest = Math.max(...listed.map(({ name }) => name.length));
  context.talk.pause();
  context.say('the report will have, with secrets, host names, user names and addresses taken out:');
  for (const one of listed) {
    context.say(`  ${one.name.padEnd(widest)}  ${bytes(one.bytes).padStart(9)}  ${one.what}`);
  }
  const go = await approved(context, `doctor --report ${file}`, yes, `Write it to ${file}?`, look);
  // The writer needs a library that no other command needs.
  if (go) await (await import('../report/tarball.js')).writeTarball(runner, file, files);
  return { outcome: go ? 'written' : 'declined', path: file, files: listed };
}
