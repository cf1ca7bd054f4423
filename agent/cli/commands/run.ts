/** `vgpu-agent run -- COMMAND`: one command with the GPU of the host, as the calling user, with nothing installed. */
import { Command } from 'commander';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { handOver } from '../../lib/hand-over.js';
import { genericProfile } from '../../profile/instance.js';
import { endpoint, examples, hostHelp, namedHosts, type Outcome, type Run, seconds } from './common.js';

interface RunOptions {
  readonly host?: readonly string[];
  readonly timeout: number;
  readonly print?: true;
}

const defaultSeconds = 10;

export function runCommand(run: Run): Command {
  return new Command('run')
    .description('run one command with the GPU of the host, as the calling user; install nothing')
    .usage('[options] -- COMMAND [ARGUMENT...]')
    .argument('[command...]', 'the command, after --')
    .option('--host <address>', hostHelp, endpoint)
    .option('--timeout <seconds>', "wait at most this long for the host's answer", seconds, defaultSeconds)
    .option('--print', 'print the variables for the command, and do not run it')
    .addHelpText(
      'after',
      `\nThe exit status is that of the command. Set-user-ID programs and static programs
do not see the GPU. If the GPU is simulated, the command also gets variables by
which Triton and CuPy produce PTX, and vLLM does not compile its sampler.\n${examples(
        ['vgpu-agent run -- python3 train.py', 'a program of your own'],
        ['vgpu-agent run --host vsock:2:14833 -- nvidia-smi', 'another host'],
        ['env $(vgpu-agent run --print) ./program', 'the same, by hand'],
      )}`,
    )
    .action((command: readonly string[], options: RunOptions) => run(() => runOne(command, options)));
}

async function runOne([file, ...args]: readonly string[], options: RunOptions): Promise<Outcome> {
  const print = options.print === true;
  if (file === undefined && !print) throw usage('no command was given', 'vgpu-agent run -- COMMAND');
  if (file !== undefined && print)
    throw usage(`--print runs nothing, and ${JSON.stringify(file)} was given`, 'leave one of them out');
  const [{ borrowShim }, { loadProfile }, { spawnRunner }] = await Promise.all([
    import('../../guest/shim/borrow.js'),
    import('../../profile/load.js'),
    import('../../lib/run-command.js'),
  ]);
  const borrowed = await borrowShim(spawnRunner(), {
    endpoint: namedHosts(options.host),
    environment: process.env,
    profile: loadProfile(genericProfile),
    timeoutMs: options.timeout * 1000,
  });
  const lines = Object.entries(borrowed.environment).map(([name, value]) => `${name}=${value}`);
  if (file === undefined) {
    const document = { schema: 1, command: 'run', ...borrowed };
    return { exitCode: ExitCode.done, document, text: () => lines.join('\n') };
  }
  const ended = await handOver([file, ...args], { ...process.env, ...borrowed.environment });
  return { exitCode: ExitCode.done, ended, document: null, text: () => '' };
}

function usage(message: string, remedy: string): VgpuError {
  return new VgpuError(message, { kind: 'usage', operation: 'read the command line', remedy });
}
