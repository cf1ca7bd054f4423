/** `vgpu-agent host`: sets a machine up to serve its GPU, shows it, and undoes it. */
import { BlockList, isIPv6 } from 'node:net';
import { Command, InvalidArgumentError, Option } from 'commander';
import type { Plan } from '../../contracts/plan.js';
import {
  type HostDaemon,
  type HostDevice,
  hostDevices,
  type ServingRequest,
} from '../../contracts/serving.js';
import type { HostView } from '../../contracts/views.js';
import { parseEndpoint } from '../../guest/vgpu-host/endpoint.js';
import {
  asItIs,
  changeHost,
  type HostWorkplace,
  hostView,
  planHost,
} from '../../install/pipeline/serving-host.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { plural } from '../../lib/text.js';
import { planText } from '../output/plan-text.js';
import { hostStatusText } from '../output/status-text.js';
import { approved, type CommandContext, examples, type Outcome, type Run, requireRoot } from './common.js';

export function hostCommand(run: Run): Command {
  const command = new Command('host')
    .description('serve the GPU of this machine to its virtual machines')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host install --device cuda', 'this machine serves its GPU'],
        ['vgpu-agent host status', 'what is installed, and which guests are served'],
        ['sudo vgpu-agent host uninstall', 'restore everything as it was before'],
      ),
    );
  for (const part of [hostInstallCommand(run), hostStatusCommand(run), hostUninstallCommand(run)]) {
    command.addCommand(part);
  }
  return command;
}

// `vgpu-agent host install`: daemon, device profiles, units and man pages in place, and the daemon runs.

export interface HostInstallDocument {
  readonly schema: 1;
  readonly command: 'host install';
  readonly outcome: 'dry-run' | 'declined' | 'done';
  readonly plan: Plan;
  readonly changed: number;
  /** The daemon's own status afterwards; null: it was not asked. */
  readonly daemon: HostDaemon | null;
}

interface HostInstallOptions {
  readonly device?: HostDevice;
  readonly listen?: readonly string[];
  readonly memory?: string;
  readonly sessions?: number;
  readonly dryRun?: true;
  readonly yes?: true;
  readonly endSessions?: true;
  readonly force?: true;
}

export function hostInstallCommand(run: Run): Command {
  return new Command('install')
    .description('install vgpu-hostd with its units, device profiles and man pages, and start it')
    .addOption(
      new Option(
        '--device <kind>',
        'cuda: the GPU of this machine; software: a simulated one (default: the installed one, else install asks)',
      ).choices(hostDevices),
    )
    .option(
      '--listen <address>',
      'unix:PATH, vsock:PORT or tcp:ADDRESS:PORT (loopback only); repeatable (default: the installed ones, else unix:/run/vgpu/hostd.sock)',
      listenAddress,
    )
    .option('--memory <size>', 'device memory for each guest, such as 8G (default: no limit)', size)
    .option('--sessions <number>', 'simultaneous sessions of each guest (default: half of all)', number)
    .option('-n, --dry-run', 'show what would change, and change nothing')
    .option('-y, --yes', 'do not ask')
    .option('--end-sessions', 'restart vgpu-hostd if that is necessary, even while guests are served')
    .option('--force', 'continue although the driver for --device cuda is not ready')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host install --device cuda --listen vsock:14833', 'for virtual machines'],
        ['sudo vgpu-agent host install --device software', 'a simulated GPU, to try it out'],
        ['sudo vgpu-agent host install --yes', 'an upgrade; sessions continue'],
      ),
    )
    .action((options: HostInstallOptions) =>
      run((context) => hostInstall(options, context), { stoppable: true }),
    );
}

async function hostInstall(options: HostInstallOptions, context: CommandContext): Promise<Outcome> {
  const dryRun = options.dryRun === true;
  if (!dryRun) requireRoot(context, 'host install');
  const { openHost } = await import('../../install/pipeline/serving-host.js');
  const { work, close } = await openHost();
  try {
    const request: ServingRequest = {
      device: options.device ?? (dryRun ? null : await askedDevice(work, options, context)),
      listen: options.listen ?? null,
      limits: { memory: options.memory ?? null, sessions: options.sessions ?? null },
      endSessions: options.endSessions === true,
      force: options.force === true,
    };
    const { emit } = context.talk;
    if (dryRun) {
      const plan = await planHost(work, 'install', request, emit);
      return {
        exitCode: ExitCode.done,
        document: documentOf('dry-run', plan, 0, null),
        text: (style) => planText(plan, style, { full: context.verbose }),
      };
    }
    const result = await changeHost(
      work,
      {
        intent: 'install',
        request,
        signal: context.signal,
        asks: options.yes !== true,
        approve: async (plan) => {
          emit({ kind: 'plan', plan });
          return approved(context, 'host install', options.yes === true, 'Change this?');
        },
      },
      emit,
    );
    if (result.kind === 'declined') {
      return {
        exitCode: ExitCode.interrupted,
        document: documentOf('declined', result.plan, 0, null),
        text: () => 'nothing was changed',
      };
    }
    const { plan, applied } = result;
    const daemon = await running(work);
    return {
      exitCode: ExitCode.done,
      document: documentOf('done', plan, applied.changes, daemon),
      text: (style) => {
        const did =
          plan.changes.length === 0
            ? planText(plan, style)
            : `installed (${plural(applied.changes, 'change')})`;
        return `${servesText(daemon, plan.endpoint)}\n${did}`;
      },
    };
  } finally {
    close();
  }
}

async function running(work: HostWorkplace): Promise<HostDaemon> {
  const answer = await work.askDaemon();
  if (answer.kind === 'answers') return answer.daemon;
  throw new VgpuError(`vgpu-hostd is installed, but does not answer: ${answer.message}`, {
    kind: 'failed',
    operation: 'ask the daemon that was installed',
    path: 'vgpu-hostd.service',
    remedy:
      'journalctl -u vgpu-hostd says why; repair that, then systemctl start vgpu-hostd; or remove it with vgpu-agent host uninstall',
  });
}

function servesText({ version, devices }: HostDaemon, endpoint: string): string {
  const names = devices.map(({ name }) => name).join(', ');
  return `vgpu-hostd ${version} serves ${names} at ${endpoint}`;
}

/** Null: a device is installed, or there is no terminal to ask on. */
async function askedDevice(
  work: HostWorkplace,
  options: HostInstallOptions,
  { dialogue }: CommandContext,
): Promise<HostDevice | null> {
  if (dialogue === null || options.yes === true || (await work.device()) !== null) return null;
  const answer = await dialogue(
    {
      kind: 'choice',
      id: 'device',
      message: 'Which GPU should this machine serve?',
      choices: [
        { value: 'cuda', label: 'cuda', explanation: 'the GPU of this machine' },
        { value: 'software', label: 'software', explanation: 'a simulated one, which says so' },
      ],
      preselected: 'cuda',
    },
    { back: false },
  );
  return hostDevices.find((one) => answer.kind === 'answer' && one === answer.value) ?? null;
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

function listenAddress(value: string, earlier: readonly string[] = []): readonly string[] {
  const port = /^vsock:(\d{1,10})$/.exec(value)?.[1];
  const parsed = parseEndpoint(port === undefined ? value : `vsock:2:${port}`);
  const written = /^(?:unix|tcp):/.test(value) || port !== undefined;
  if (parsed.kind === 'bad' && written) throw new InvalidArgumentError(`Not an address: ${parsed.reason}.`);
  if (parsed.kind === 'bad' || !written) {
    throw new InvalidArgumentError(
      'Write unix:/PATH, vsock:PORT (without a CID: any guest may connect) or tcp:127.0.0.1:PORT.',
    );
  }
  if (parsed.kind === 'tcp' && !loopback.check(parsed.address, isIPv6(parsed.address) ? 'ipv6' : 'ipv4')) {
    throw new InvalidArgumentError(
      `${parsed.address} is not a loopback address, and TCP is served on those only (127.0.0.1, [::1]); docs/howto/remote-host.md is for other machines.`,
    );
  }
  // systemd splits and expands the text of a unit.
  if (parsed.kind === 'unix' && /[\s%"'\\$]/.test(parsed.path)) {
    throw new InvalidArgumentError('The path must not have blanks, quotes, %, $ or backslashes.');
  }
  return earlier.includes(value) ? earlier : [...earlier, value];
}

function size(value: string): string {
  if (/^[1-9]\d{0,11}[KMGT]?$/.test(value)) return value;
  throw new InvalidArgumentError('It must be a number of bytes; K, M, G or T may follow: 8G.');
}

function number(value: string): number {
  const most = 1024;
  if (/^[1-9]\d{0,3}$/.test(value) && Number(value) <= most) return Number(value);
  throw new InvalidArgumentError(`It must be a number from 1 to ${most}.`);
}

function documentOf(
  outcome: HostInstallDocument['outcome'],
  plan: Plan,
  changed: number,
  daemon: HostDaemon | null,
): HostInstallDocument {
  return { schema: 1, command: 'host install', outcome, plan, changed, daemon };
}

// `vgpu-agent host status`: what is installed, whether it runs, and who is served.

export interface HostStatusDocument extends HostView {
  readonly schema: 1;
  readonly command: 'host status';
}

export function hostStatusCommand(run: Run): Command {
  return new Command('status')
    .description('show what is installed, whether vgpu-hostd runs, and which guests it serves')
    .addHelpText(
      'after',
      `\nThe exit code: 0 nothing is installed, or all is well; 4 only root may ask the daemon;\n5 it does not answer, or files are not as they were installed.\n${examples(
        ['sudo vgpu-agent host status', 'with the sessions'],
        ['sudo vgpu-agent host status --json | jq .answer.daemon.sessions', 'for scripts'],
      )}`,
    )
    .action(() => run((context) => hostStatus(context)));
}

async function hostStatus(context: CommandContext): Promise<Outcome> {
  const { openHost } = await import('../../install/pipeline/serving-host.js');
  const { work, close } = await openHost();
  try {
    const view = await hostView(work, context.isRoot);
    const document: HostStatusDocument = { schema: 1, command: 'host status', ...view };
    return { exitCode: exitCodeOf(view), document, text: (style) => hostStatusText(view, style) };
  } finally {
    close();
  }
}

function exitCodeOf({ installed, answer, drift }: HostView): ExitCode {
  if (installed === null) return ExitCode.done;
  if (drift.length > 0 || answer.kind === 'silent') return ExitCode.degraded;
  return answer.kind === 'not-asked' ? ExitCode.undetermined : ExitCode.done;
}

// `vgpu-agent host uninstall`: everything as it was before host install, byte for byte.

export interface HostUninstallDocument {
  readonly schema: 1;
  readonly command: 'host uninstall';
  readonly outcome: 'dry-run' | 'declined' | 'done';
  readonly plan: Plan;
  readonly changed: number;
}

interface HostUninstallOptions {
  readonly dryRun?: true;
  readonly yes?: true;
  readonly endSessions?: true;
}

export function hostUninstallCommand(run: Run): Command {
  return new Command('uninstall')
    .description('remove what host install added, and restore the former files byte for byte')
    .option('-n, --dry-run', 'show what would change, and change nothing')
    .option('-y, --yes', 'do not ask')
    .option('--end-sessions', 'continue even while guests are served; their sessions end')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host uninstall', 'show what is removed and restored, and ask'],
        ['sudo vgpu-agent host uninstall --yes --end-sessions', 'also end the sessions'],
      ),
    )
    .action((options: HostUninstallOptions) =>
      run((context) => hostUninstall(options, context), { stoppable: true }),
    );
}

async function hostUninstall(options: HostUninstallOptions, context: CommandContext): Promise<Outcome> {
  const dryRun = options.dryRun === true;
  if (!dryRun) requireRoot(context, 'host uninstall');
  const { openHost } = await import('../../install/pipeline/serving-host.js');
  const { work, close } = await openHost();
  try {
    const { emit } = context.talk;
    const request = { ...asItIs, endSessions: options.endSessions === true };
    if (dryRun) {
      const plan = await planHost(work, 'uninstall', request, emit);
      return {
        ...outcomeOf(ExitCode.done, 'dry-run', plan, 0),
        text: (style) => planText(plan, style, { full: context.verbose }),
      };
    }
    const result = await changeHost(
      work,
      {
        intent: 'uninstall',
        request,
        signal: context.signal,
        asks: options.yes !== true,
        approve: async (plan) => {
          emit({ kind: 'plan', plan });
          return approved(
            context,
            'host uninstall',
            options.yes === true,
            'Remove it and restore what was here before?',
          );
        },
      },
      emit,
    );
    return result.kind === 'declined'
      ? outcomeOf(ExitCode.interrupted, 'declined', result.plan, 0)
      : outcomeOf(ExitCode.done, 'done', result.plan, result.applied.changes);
  } finally {
    close();
  }
}

function outcomeOf(
  exitCode: ExitCode,
  outcome: HostUninstallDocument['outcome'],
  plan: Plan,
  changed: number,
): Outcome {
  const document: HostUninstallDocument = { schema: 1, command: 'host uninstall', outcome, plan, changed };
  return {
    exitCode,
    document,
    text: (style) => {
      if (outcome === 'declined') return 'nothing was changed';
      if (plan.kind === 'refused' || plan.changes.length === 0) return planText(plan, style);
      const but = plan.warnings.length === 0 ? '' : 'but for what the warnings name, ';
      return `uninstalled (${plural(changed, 'change')}); ${but}everything is as it was before host install`;
    },
  };
}
