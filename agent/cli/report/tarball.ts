/** A report is new, or there is none. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { outputFile, remove } from 'fs-extra/esm';
import { errnoOf, VgpuError } from '../../lib/errors.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { ReportFile } from './report.js';

export function alreadyThere(file: string): VgpuError {
  return new VgpuError(`${file} is there already, and a report never overwrites a file`, {
    kind: 'usage',
    operation: 'write the report',
    path: file,
    remedy: 'name another file',
  });
}

export function cannotWrite(file: string, why: string, cause?: unknown): VgpuError {
  return new VgpuError(`cannot write the report ${file}: ${why}`, {
    kind: 'failed',
    operation: 'write the report',
    path: file,
    remedy: 'name a file in a directory that you may write to',
    ...(cause === undefined ? {} : { cause }),
  });
}

const directoryName = 'vgpu-report';
const tarTimeoutMs = 30_000;

/** Readable by its owner only. Throws `usage` when `file` exists, `failed` when tar is missing or fails. */
export async function writeTarball(
  runner: CommandRunner,
  file: string,
  files: readonly ReportFile[],
): Promise<void> {
  const scratch = await mkdtemp(path.join(tmpdir(), 'vgpu-report-'));
  try {
    for (const { name, text } of files)
      await outputFile(path.join(scratch, directoryName, name), text, { mode: 0o600 });
    const names = files.map(({ name }) => `${directoryName}/${name}`);
    const args = ['--create', '--gzip', '--file=-', '--owner=0', '--group=0', '--numeric-owner'];
    const ran = await runner.run('tar', [...args, `--directory=${scratch}`, ...names], {
      timeoutMs: tarTimeoutMs,
    });
    if (ran.code !== 0) throw cannotWrite(file, ran.stderr.toString('utf8').trim());
    await writeNew(file, ran.stdout);
  } finally {
    await remove(scratch);
  }
}

/** Never over something, and never with a half of it left behind. */
async function writeNew(file: string, bytes: Buffer): Promise<void> {
  try {
    await writeFile(file, bytes, { flag: 'wx', mode: 0o600, flush: true });
  } catch (cause) {
    if (errnoOf(cause) === 'EEXIST') throw alreadyThere(file);
    await rm(file, { force: true });
    throw cannotWrite(file, errnoOf(cause) ?? String(cause), cause);
  }
}
