/** From argv to an exit code: flags, help, one message for a failure, one document for `--json`. */
import { Command, CommanderError, Option } from 'commander';
import { agentVersion } from '../../lib/build-info.js';
import { errorDocument, errorText } from '../../lib/error-text.js';
import { ExitCode as Exit, ExitCode, VgpuError } from '../../lib/errors.js';
import { endAs } from '../../lib/hand-over.js';
import { jsonDocument } from '../../lib/json.js';
import { oneLine, type Style, shellWord, styleFor } from '../../lib/text.js';
import { redraws, type Sink, streamSink, terminalTalk } from '../output/terminal.js';
import { questioner, terminalAsk } from '../wizard/prompt.js';
import { examples, type Outcome, type Run } from './common.js';

interface GlobalOptions {
  readonly json?: true;
  readonly color: boolean;
  readonly quiet?: true;
  readonly verbose?: true;
}

type ProcessLike = Pick<NodeJS.Process, 'stdin' | 'stdout' | 'stderr' | 'env' | 'getuid'>;

/** Returns the exit code. Results go to standard output, the rest to standard error; nothing is thrown. */
export async function runCommandLine(words: readonly string[], self: ProcessLike): Promise<number> {
  // Arguments after -- belong to another program.
  const argv = words.includes('--') ? words.slice(0, words.indexOf('--')) : words;
  const out = streamSink(self.stdout, 'standard output');
  const err = streamSink(self.stderr, 'standard error');
  let exitCode: number = Exit.done;

  const program = new Command('vgpu-agent');
  const run: Run = async (work, { stoppable = false } = {}) => {
    const options = program.opts<GlobalOptions>();
    const style = (sink: Sink) => styleOf(sink, options.color, self);
    const json = options.json === true;
    const verbose = options.verbose === true;
    const volume = options.quiet === true ? 'quiet' : verbose ? 'verbose' : 'normal';
    const errStyle = style(err);
    const talk = terminalTalk(redraws(self.env) ? err : inLines(err), errStyle, volume);
    const stop = interruption(stoppable);
    const terminal = { stdin: self.stdin, stderr: self.stderr, style: errStyle, signal: stop.signal };
    const someone = self.stdin.isTTY === true && self.stderr.isTTY === true;
    try {
      const outcome = await work({
        talk,
        signal: stop.signal,
        isRoot: self.getuid?.() === 0,
        ask: someone ? questioner(terminal, talk) : null,
        dialogue: someone && self.env['TERM'] !== 'dumb' ? terminalAsk(terminal) : null,
        stdin: self.stdin,
        say: (text) => err.write(`${text}\n`),
        show: (text) => err.write(`${text(errStyle)}\n`),
        json,
        verbose,
      });
      talk.pause();
      print(outcome, json, out, style(out));
      await out.flush();
      exitCode = outcome.ended === undefined ? outcome.exitCode : await endAs(outcome.ended);
    } catch (error) {
      talk.pause();
      exitCode = fail(error, { json, verbose, out, err, style: style(err) });
    } finally {
      stop.done();
    }
  };

  try {
    await describeProgram(program, run, out, argv);
    refuseExtraWords(program, argv);
    if (argv.length === words.length) refuseOptionsOfOthers(argv);
    await program.parseAsync([...words], { from: 'user' }).catch(async (error: unknown) => {
      // Help and version end so: they are a success only if they could be written.
      if (!(error instanceof CommanderError && error.exitCode === 0)) throw error;
      await out.flush();
    });
  } catch (error) {
    // Flags that cannot be parsed cannot say --json or --no-color either: they are looked for as they stand.
    const json = argv.includes('--json');
    const plain = styleOf(err, !argv.includes('--no-color'), self);
    return fail(usageError(error, argv, program), { json, verbose: false, out, err, style: plain });
  }
  return exitCode;
}

function styleOf(sink: Sink, wanted: boolean, { env }: ProcessLike): Style {
  return styleFor({
    isTty: sink.isTty,
    get columns() {
      return sink.columns;
    },
    wanted,
    env,
  });
}

function inLines(sink: Sink): Sink {
  return { isTty: false, columns: sink.columns, write: sink.write, flush: sink.flush };
}

/** Gives the program its options, and the commands that `argv` needs: all of them without one. */
export async function describeProgram(
  program: Command,
  run: Run,
  out: Pick<Sink, 'write'>,
  argv: readonly string[] = [],
): Promise<void> {
  program
    .description('Runs CUDA programs of this guest, such as Ollama, on the GPU of its host.')
    .option('--json', 'print the result as one JSON document (docs/json/ describes them)')
    .option('--no-color', 'no colours (NO_COLOR does the same)')
    .addOption(new Option('-q, --quiet', 'only results, warnings and failures').conflicts('verbose'))
    .option('-v, --verbose', 'every step with its time, each change in full, and the causes of a failure')
    .version(agentVersion(), '-V, --version', 'print the version of the agent')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent setup', 'guided by questions'],
        ['sudo vgpu-agent install', 'give Ollama the GPU of the host, and verify it'],
        ['vgpu-agent plan', 'show what would change'],
        ['sudo vgpu-agent verify', 'verify that it uses the GPU now'],
        ['sudo vgpu-agent doctor', 'find out why it does not use the GPU'],
        ['sudo vgpu-agent uninstall', 'restore everything as it was before'],
      ),
    );
  for (const make of await commandsFor(argv)) program.addCommand(make(run));
  for (const command of [program, ...program.commands, ...program.commands.flatMap((one) => one.commands)]) {
    command
      .exitOverride()
      .configureHelp({ showGlobalOptions: command !== program })
      .helpOption('-h, --help', 'print this help')
      .allowExcessArguments(false)
      .showSuggestionAfterError(true)
      // Help that was requested is a result; fail() prints each error once.
      .configureOutput({ writeOut: (text) => out.write(text), writeErr: () => {} });
    refuseContradictions(command, program);
  }
  for (const command of [program, ...program.commands.filter((one) => one.commands.length > 0)])
    command.helpCommand('help [command]', 'print the help of a command');
}

/**
 * Refuses `--x` with `--no-x`, an option given twice with two values, of which Commander takes the last, and an option
 * in the place of a value, which Commander takes as the value. Call it with all options set.
 */
function refuseContradictions(command: Command, program: Command): void {
  const known = new Set([...program.options, ...command.options].flatMap(({ short, long }) => [short, long]));
  const given = new Map<string, { readonly flag: string; readonly word: unknown; readonly value: unknown }>();
  for (const option of command.options) {
    const [name, flag] = [option.attributeName(), option.long ?? option.flags];
    command.on(`option:${option.name()}`, (word: unknown) => {
      if (typeof word === 'string' && known.has(word))
        command.error(`${flag} needs a value, but ${word} is an option`);
      const value: unknown = command.getOptionValue(name);
      const before = given.get(name);
      given.set(name, { flag, word, value });
      if (before === undefined || before.value === value || Array.isArray(value)) return;
      if (before.flag !== flag)
        command.error(`${before.flag} and ${flag} contradict each other: give one of them`);
      const values = [before.word, word].map((one) => `with ${JSON.stringify(one)}`);
      command.error(`${flag} was given twice, ${values.join(' and ')}: give it once`);
    });
  }
}

function print(outcome: Outcome, json: boolean, out: Sink, style: Style): void {
  if (json) {
    if (outcome.document !== null) out.write(`${jsonDocument(outcome.document)}\n`);
  } else {
    const text = outcome.text(style);
    if (text !== '') out.write(`${text}\n`);
  }
}

function fail(
  error: unknown,
  { json, verbose, out, err, style }: { json: boolean; verbose: boolean; out: Sink; err: Sink; style: Style },
): ExitCode {
  const document = errorDocument(error);
  if (json) out.write(`${jsonDocument({ schema: 1, error: document })}\n`);
  err.write(`${errorText(error, style, verbose)}\n`);
  return document.exitCode;
}

function usageError(error: unknown, argv: readonly string[], program: Command): unknown {
  if (!(error instanceof CommanderError)) return error;
  const command = argv.find((word) => commandNames.includes(word));
  const part = command === 'host' ? argv[argv.indexOf(command) + 1] : undefined;
  const named = ['install', 'status', 'uninstall'].includes(part ?? '') ? `host ${part}` : command;
  const help = command === undefined ? 'vgpu-agent --help' : `vgpu-agent ${named} --help`;
  const said = saidBy(error, program) ?? error.message.replace(/^error: /, '');
  return new VgpuError(said.replace(/\n/g, ' '), {
    kind: 'usage',
    operation: 'read the command line',
    remedy: help,
    cause: error,
  });
}

/** Help and version are printed as soon as commander sees them: it reads no further word. */
function refuseExtraWords(program: Command, argv: readonly string[]): void {
  const [first, , third] = argv.filter((word) => !word.startsWith('-'));
  const version = argv.some((word) => word === '--version' || word === '-V');
  const extra =
    first === 'help' ? third : version && !commandNames.includes(first ?? 'help') ? first : undefined;
  if (extra !== undefined) program.error(`unexpected argument ${JSON.stringify(extra)}`);
}

/** `run ls -q`: without -- the option would be ours, or unknown. */
function refuseOptionsOfOthers(argv: readonly string[]): void {
  const run = argv.findIndex((word) => !word.startsWith('-'));
  if (argv[run] !== 'run') return;
  let at = run + 1;
  while (argv[at]?.startsWith('-')) at += ['--host', '--timeout'].includes(argv[at] ?? '') ? 2 : 1;
  const option = argv.slice(at + 1).find((word) => word.startsWith('-'));
  if (option === undefined) return;
  throw new VgpuError(
    `${oneLine(option)} follows ${oneLine(argv[at] ?? '')}, and there is no -- before the command`,
    {
      kind: 'usage',
      operation: 'read the command line',
      remedy: ['vgpu-agent', ...argv.slice(0, at), '--', ...argv.slice(at)].map(shellWord).join(' '),
    },
  );
}

function saidBy({ code }: CommanderError, program: Command): string | null {
  const all = [program, ...program.commands, ...program.commands.flatMap((one) => one.commands)];
  if (code === 'commander.help') {
    // Commander prints its help as an error, and the code is all there is.
    const unknown = all.map(({ args }) => (args[0] === 'help' ? args[1] : undefined)).find(Boolean);
    return unknown === undefined ? 'no command was given' : `unknown command ${JSON.stringify(unknown)}`;
  }
  if (code !== 'commander.excessArguments') return null;
  const extra = all.map((one) => one.args[one.registeredArguments.length]);
  // The innermost command has its own arguments only; those outside of it have its name among theirs.
  const last = extra.findLast((one) => one !== undefined);
  return last === undefined ? null : `unexpected argument ${JSON.stringify(last)}`;
}

// Every command by its name. A start loads only the command that it runs: the others' modules took half of its time.

type Make = (run: Run) => Command;

const loaders = {
  setup: async () => (await import('./setup.js')).setupCommand,
  install: async () => (await import('./install.js')).installCommand,
  plan: async () => (await import('./install.js')).planCommand,
  status: async () => (await import('./status.js')).statusCommand,
  verify: async () => (await import('./verify.js')).verifyCommand,
  doctor: async () => (await import('./doctor.js')).doctorCommand,
  restart: async () => (await import('./daemon.js')).restartCommand,
  uninstall: async () => (await import('./uninstall.js')).uninstallCommand,
  host: async () => (await import('./host.js')).hostCommand,
  'explain-log': async () => (await import('./explain-log.js')).explainLogCommand,
  metrics: async () => (await import('./daemon.js')).metricsCommand,
  profiles: async () => (await import('./profiles.js')).profilesCommand,
  run: async () => (await import('./run.js')).runCommand,
  cdi: async () => (await import('./cdi.js')).cdiCommand,
  kubernetes: async () => (await import('./kubernetes.js')).kubernetesCommand,
  completion: async () => (await import('./completion.js')).completionCommand,
  version: async () => (await import('./version.js')).versionCommand,
} satisfies Readonly<Record<string, () => Promise<Make>>>;

export const commandNames: readonly string[] = Object.keys(loaders);

export async function commandsFor(argv: readonly string[]): Promise<readonly Make[]> {
  const first = argv.find((word) => !word.startsWith('-'));
  if (first === undefined && argv.some((word) => word === '--version' || word === '-V')) return [];
  const named = Object.entries<() => Promise<Make>>(loaders).filter(([name]) => name === first);
  return Promise.all(
    (named.length > 0 ? named : Object.entries<() => Promise<Make>>(loaders)).map(([, load]) => load()),
  );
}

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * In a command that is stoppable the first signal aborts, so that the work takes back what it began, and a second one ends
 * the process. Otherwise signals end the process at once.
 */
function interruption(stoppable: boolean): { readonly signal: AbortSignal; done(): void } {
  const controller = new AbortController();
  const hear = (): void => {
    if (controller.signal.aborted) process.exit(ExitCode.interrupted);
    controller.abort();
  };
  const heard = stoppable ? signals : [];
  for (const name of heard) process.on(name, hear);
  return {
    signal: controller.signal,
    done: () => {
      for (const name of heard) process.off(name, hear);
    },
  };
}
