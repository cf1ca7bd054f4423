/** `vgpu-agent host`: sets a machine up to serve its GPU, and undoes it. */
import { BlockList, isIPv6 } from 'node:net';
import { Command, InvalidArgumentError, Option } from 'commander';
import {
  type HostDaemon,
  type HostDevice,
  hostDevices,
  type ServingRequest,
} from '../../contracts/serving.js';
import { askDaemon } from '../../guest/host/inspect.js';
import { parseEndpoint } from '../../guest/vgpu-host/endpoint.js';
import { changeHost, openHost, planHost } from '../../install/pipeline/serving-host.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { spawnRunner } from '../../lib/run-command.js';
import { plural } from '../../lib/text.js';
import { planText } from '../output/plan-text.js';
import {
  approval,
  type CommandContext,
  changeDocument,
  declined,
  dryRun,
  examples,
  type Outcome,
  type Run,
  requireRoot,
} from './common.js';

interface HostOptions {
  readonly device?: HostDevice;
  readonly listen?: readonly string[];
  readonly memory?: string;
  readonly sessions?: number;
  readonly dryRun?: true;
  readonly yes?: true;
  readonly endSessions?: true;
  readonly force?: true;
}

export function hostCommand(run: Run): Command {
  const install = changeCommand(
    run,
    'install',
    'install vgpu-hostd with its units, device profiles and man pages, and start it',
  )
    .addOption(
      new Option(
        '--device <kind>',
        'cuda: the GPU of this machine; software: a simulated one (default: the installed one)',
      ).choices(hostDevices),
    )
    .option(
      '--listen <address>',
      'unix:PATH, vsock:PORT or tcp:ADDRESS:PORT (loopback only); repeatable (default: the installed ones, else unix:/run/vgpu/hostd.sock)',
      listenAddress,
    )
    .option('--memory <size>', 'device memory for each guest, such as 8G (default: no limit)', size)
    .option('--sessions <number>', 'simultaneous sessions of each guest (default: half of all)', number)
    .option('--end-sessions', 'restart vgpu-hostd if necessary, even while guests are served')
    .option('--force', 'continue even if the driver for --device cuda is not ready')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host install --device cuda --listen vsock:14833', 'for virtual machines'],
        ['sudo vgpu-agent host install --device software', 'a simulated GPU, to try it out'],
        ['sudo vgpu-agent host install --yes', 'an upgrade; sessions continue'],
      ),
    );
  const uninstall = changeCommand(
    run,
    'uninstall',
    'remove what host install added, and restore the former files byte for byte',
  )
    .option('--end-sessions', 'continue even while guests are served; their sessions end')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host uninstall', 'show what is removed and restored, and ask'],
        ['sudo vgpu-agent host uninstall --yes --end-sessions', 'also end the sessions'],
      ),
    );
  return new Command('host')
    .description('serve the GPU of this machine to its virtual machines')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host install --device cuda', 'this machine serves its GPU'],
        ['sudo vgpu-hostd status', 'its devices and the guests that it serves'],
        ['sudo vgpu-agent host uninstall', 'restore everything as it was before'],
      ),
    )
    .addCommand(install)
    .addCommand(uninstall);
}

function changeCommand(run: Run, intent: 'install' | 'uninstall', description: string): Command {
  return new Command(intent)
    .description(description)
    .option('-n, --dry-run', 'show what would change, and change nothing')
    .option('-y, --yes', 'do not ask')
    .action((options: HostOptions) =>
      run((context) => change(intent, options, context), { stoppable: true }),
    );
}

async function change(
  intent: 'install' | 'uninstall',
  options: HostOptions,
  context: CommandContext,
): Promise<Outcome> {
  const command = `host ${intent}`;
  const isDry = options.dryRun === true;
  if (!isDry) requireRoot(context, command);
  const { work, close } = await openHost();
  try {
    const { signal, talk } = context;
    const request: ServingRequest = {
      device: options.device ?? null,
      listen: options.listen ?? null,
      limits: { memory: options.memory ?? null, sessions: options.sessions ?? null },
      endSessions: options.endSessions === true,
      force: options.force === true,
    };
    const unasked = intent === 'install' ? { daemon: null } : {};
    if (isDry) return dryRun(command, await planHost(work, intent, request, talk.emit), context, unasked);
    const question = intent === 'install' ? 'Change this?' : 'Remove it and restore what was here before?';
    const ask = approval(context, command, options.yes === true, () => question);
    const result = await changeHost(work, { intent, request, signal, ...ask }, talk.emit);
    if (result.kind === 'declined') return declined(command, result.plan, unasked);
    const { plan, applied } = result;
    const daemon = intent === 'install' ? await running() : null;
    const did = plural(applied.changes, 'change');
    const but = plan.warnings.length === 0 ? '' : 'except for what the warnings name, ';
    const [done, nothing] =
      intent === 'install'
        ? [`installed (${did})`, '']
        : [
            `uninstalled (${did}); ${but}everything is as it was before host install`,
            '\nvgpu-agent host install has installed nothing on this machine',
          ];
    return {
      exitCode: ExitCode.done,
      document: changeDocument(command, 'done', plan, applied.changes, daemon === null ? {} : { daemon }),
      text: (style) => {
        const serves = daemon === null ? '' : `${servesText(daemon, plan.endpoint)}\n`;
        return serves + (plan.changes.length > 0 ? done : planText(plan, style) + nothing);
      },
    };
  } finally {
    close();
  }
}

async function running(): Promise<HostDaemon> {
  const answer = await askDaemon(spawnRunner());
  if (typeof answer !== 'string') return answer;
  throw new VgpuError(`vgpu-hostd is installed, but does not answer: ${answer}`, {
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

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

function listenAddress(value: string, earlier: readonly string[] = []): readonly string[] {
  const parsed = parseEndpoint(value.replace(/^vsock:(?=\d{1,10}$)/, 'vsock:2:'));
  if (parsed.kind === 'bad' || /^vsock:.*:/.test(value)) {
    const reason =
      parsed.kind !== 'bad'
        ? 'it has a CID'
        : value.startsWith('vsock:')
          ? 'after vsock: it needs a port'
          : parsed.reason;
    throw new InvalidArgumentError(
      `Not an address: ${reason}. Write unix:/PATH, vsock:PORT (without a CID: any guest may connect) or tcp:127.0.0.1:PORT.`,
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
