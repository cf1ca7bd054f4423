/** `vgpu-agent explain-log FILE`: the verdict for a log file, offline. Needs no root and no systemd. */

import { createReadStream, statSync } from 'node:fs';
import { devNull } from 'node:os';
import { addAbortSignal } from 'node:stream';
import { Command } from 'commander';
import type { LogVerdict } from '../../contracts/verdict.js';
import { errnoOf, VgpuError } from '../../lib/errors.js';
import { usualProfile } from '../../profile/instance.js';
import { logVerdictText } from '../output/verdict-text.js';
import { type CommandContext, examples, exitCodeForMode, type Outcome, type Run } from './common.js';

interface ExplainLogOptions {
  readonly profile: string;
}

export function explainLogCommand(run: Run): Command {
  return new Command('explain-log')
    .description('judge a log file offline, or standard input (-)')
    .argument(
      '<file>',
      'the log: as written by the service, or by journalctl (short, cat or json); - for standard input',
    )
    .option('-p, --profile <name>', 'the profile of the service that wrote the log', usualProfile)
    .addHelpText(
      'after',
      `\nReads until the input ends, or until Ctrl-C. The exit code is the verdict:\n0 GPU, 3 CPU, 4 undetermined, 5 degraded.\n${examples(
        ['vgpu-agent explain-log ollama.log', 'why is it on the CPU?'],
        ['journalctl -b -u ollama -o cat | vgpu-agent explain-log -', 'from a pipe'],
        ['journalctl -b -f -n all -u ollama | vgpu-agent explain-log -', 'until Ctrl-C'],
      )}`,
    )
    .action((file: string, options: ExplainLogOptions) =>
      // A file that never ends is ended by the signal itself: a read from a FIFO cannot be given up.
      run((context) => explain(file, options.profile, context), { stoppable: file === '-' }),
    );
}

async function explain(file: string, name: string, context: CommandContext): Promise<Outcome> {
  const [{ loadProfile }, { explainLog }, { reasonClause }] = await Promise.all([
    import('../../profile/load.js'),
    import('../../verdict/log/judge.js'),
    import('../../verdict/advice.js'),
  ]);
  const profile = loadProfile(name);
  const stream = (): AsyncIterable<Buffer | string> =>
    file === '-' ? bytesUntil(context.stdin, context.signal) : fileStream(file);
  const { mode, simulated, devices, reason, evidence } = await readLog(file, () =>
    explainLog(profile, stream()),
  );
  // Without `schema` and `command`: scripts read exactly this.
  const document: LogVerdict = { mode, simulated, devices, reason, evidence };
  const why = reason === null ? null : reasonClause(reason);
  return { exitCode: exitCodeForMode(mode), document, text: (style) => logVerdictText(document, style, why) };
}

async function* bytesUntil(stream: NodeJS.ReadStream, signal: AbortSignal): AsyncGenerator<Buffer | string> {
  try {
    for await (const chunk of addAbortSignal(signal, stream)) yield chunk;
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** A device such as /dev/zero has no end, so the judge would never answer. /dev/null is a log with no lines. */
function fileStream(file: string): AsyncIterable<Buffer> {
  if (file !== devNull && statSync(file).isCharacterDevice()) throw unreadable(file, 'it is a device');
  return createReadStream(file);
}

function unreadable(file: string, why: string, cause?: unknown): VgpuError {
  return new VgpuError(`cannot read the log ${JSON.stringify(file)}: ${why}`, {
    kind: 'usage',
    operation: 'read the log',
    path: file,
    remedy: 'name a file with the log, or - to read it from standard input',
    cause,
  });
}

async function readLog<T>(file: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const code = errnoOf(error);
    if (code === undefined || error instanceof VgpuError) throw error;
    const why: Readonly<Record<string, string>> = {
      ENOENT: 'there is no such file',
      EISDIR: 'it is a directory',
      EACCES: 'permission denied',
    };
    throw unreadable(file, why[code] ?? code, error);
  }
}
