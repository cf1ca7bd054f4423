/** Obstacles for this machine as a host, as far as they can be known before anything is changed. */
import { once } from 'node:events';
import { connect, type NetConnectOpts } from 'node:net';
import path from 'node:path';
import type { HostDevice, ServingProblem } from '../../contracts/serving.js';
import { VgpuError } from '../../lib/errors.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { oneLine } from '../../lib/text.js';
import { changeableByOthers } from '../../lib/trust/files.js';
import { runInSandbox } from '../../systemd/unit-sandbox.js';
import type { Root } from '../files/root.js';
import { parseEndpoint } from '../vgpu-host/endpoint.js';

interface Checking {
  readonly root: Root;
  readonly runner: CommandRunner;
  readonly program: string;
  /** Text of the daemon's unit, whose sandbox the self-check gets. */
  readonly unit: string;
  readonly device: HostDevice;
  readonly listen: readonly string[];
  readonly sources: readonly string[];
  readonly listening: boolean;
}

const runLimitMs = 60_000;
/** A real driver takes seconds to initialize, and compiles a kernel. */
const selfCheckLimitMs = 120_000;
const mostLines = 6;
const connectLimitMs = 500;

export async function servingProblems(checking: Checking): Promise<readonly ServingProblem[]> {
  const { root, device, listen, sources } = checking;
  const changeable = changeableByOthers(...sources);
  // A program that other users can change is not executed, not even for a check.
  if (changeable !== null) {
    const message = `another user than root can change ${changeable}, which the host would execute or install`;
    const remedy = 'run scripts/install-agent, which makes a copy that only root can change, and use that';
    return [{ weight: 'certain', code: 'changeable-by-others', message, remedy }];
  }
  const [broken, held] = await Promise.all([programProblem(checking), addressProblems(checking)]);
  if (broken !== null) return [broken, ...held];
  const driver = device === 'cuda' ? await driverProblems(checking) : [];
  const vsock = listen.some((address) => address.startsWith('vsock:'));
  if (!vsock || root.lstat('/dev/vhost-vsock') !== null) return [...driver, ...held];
  const message =
    'there is no /dev/vhost-vsock: no virtual machine can have a vsock device that connects to this host';
  const remedy = 'modprobe vhost_vsock, and a line "vhost_vsock" in /etc/modules-load.d/vhost_vsock.conf';
  return [...driver, ...held, { weight: 'warning', code: 'no-vhost-vsock', message, remedy }];
}

/** Built for another system or without its libraries, it would fail at every start of the unit. */
async function programProblem({ runner, program }: Checking): Promise<ServingProblem | null> {
  const problem = (message: string): ServingProblem => ({
    weight: 'certain',
    code: 'program-broken',
    message,
    remedy:
      'if a library is missing, install it (Debian, Ubuntu: sudo apt-get install libjansson4 liblz4-1 libseccomp2 libzstd1; Fedora: sudo dnf install jansson lz4-libs libseccomp libzstd); otherwise build it on this machine: npm run build:shim',
  });
  try {
    const ran = await runner.run(program, ['--version'], { timeoutMs: runLimitMs });
    if (ran.code === 0) return null;
    const said = oneLine(ran.stderr.toString().trim()) || `it ended with ${ran.code ?? ran.signal}`;
    return problem(`${program} does not run: ${said}`);
  } catch (error) {
    if (error instanceof VgpuError) return problem(error.message);
    throw error;
  }
}

/**
 * Without the nodes nothing can work. With them the daemon tries the driver as a session's worker would, in the sandbox of
 * its unit: DeviceAllow= there resolves names of /proc/devices, and system calls are filtered.
 */
async function driverProblems(checking: Checking): Promise<readonly ServingProblem[]> {
  const { root, runner, unit, program } = checking;
  // NVIDIA's driver makes these when it is loaded; nvidia-uvm only when something asked for it once.
  const missing = ['/dev/nvidiactl', '/dev/nvidia-uvm'].filter((node) => root.lstat(node) === null);
  if (!root.readdir('/dev').some((name) => /^nvidia\d+$/.test(name))) missing.push('/dev/nvidia0');
  if (missing.length > 0) {
    const message = `--device cuda needs NVIDIA's driver, and there is no ${missing.join(', ')}`;
    const remedy =
      'install the driver and load it (nvidia-smi shows the GPUs; nvidia-modprobe -u makes nvidia-uvm), or use --device software';
    return [{ weight: 'device', code: 'no-driver', message, remedy }];
  }
  const args = ['--self-check', '--device', 'cuda'];
  const ran = await runInSandbox(runner, { unit, program, args, limitMs: selfCheckLimitMs });
  const lines = `${ran.stdout.toString()}${ran.stderr.toString()}`.trim().split('\n');
  if (ran.code === 0) return lines.flatMap(warningOf);
  const said = lines.slice(-mostLines).map(oneLine).join('; ');
  const why = ran.timedOut ? `no end after ${selfCheckLimitMs / 1000} s` : said;
  const message = `a worker of this host could not use the driver: ${why}`;
  const remedy = `${program} ${args.join(' ')} shows every step`;
  return [{ weight: 'device', code: 'self-check', message, remedy }];
}

/** `warning: WHAT IS SO; WHAT CHANGES IT`, which the self-check prints beside a driver that works. */
function warningOf(line: string): readonly ServingProblem[] {
  const [, message, remedy] = /^warning: (.*?); (.*)$/.exec(oneLine(line)) ?? [];
  if (message === undefined || remedy === undefined) return [];
  return [{ weight: 'warning', code: 'self-check', message, remedy }];
}

/** systemd would take over the socket of a daemon that was started by hand, and with it its guests. */
async function addressProblems({ listen, listening }: Checking): Promise<readonly ServingProblem[]> {
  if (listening) return [];
  const held = await Promise.all(
    listen.map(async (address): Promise<ServingProblem | null> => {
      const parsed = parseEndpoint(address);
      const socket =
        parsed.kind === 'unix' && parsed.path.startsWith('/') ? path.normalize(parsed.path) : null;
      if (parsed.kind !== 'tcp' && socket === null) return null;
      const at = parsed.kind === 'tcp' ? { host: parsed.address, port: parsed.port } : { path: socket ?? '' };
      if (!(await answers(at))) return null;
      const message = `another program listens at ${socket ?? address}`;
      const find = socket === null ? 'ss -tlnp' : `fuser ${socket}`;
      const remedy = `end it (${find} names it), or choose another address with --listen`;
      return { weight: 'certain', code: 'address-in-use', message, remedy };
    }),
  );
  return held.filter((one) => one !== null);
}

async function answers(at: NetConnectOpts): Promise<boolean> {
  const connection = connect(at);
  const signal = AbortSignal.timeout(connectLimitMs);
  try {
    await once(connection, 'connect', { signal });
    return true;
  } catch {
    return signal.aborted;
  } finally {
    connection.on('error', () => {}).destroy();
  }
}
