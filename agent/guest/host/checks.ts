/** Obstacles for this machine as a host, as far as they can be known before anything is changed. */
import { connect, type NetConnectOpts } from 'node:net';
import path from 'node:path';
import { type Refusal, told, type Warning } from '../../contracts/plan.js';
import type { HostDevice, ServingFacts } from '../../contracts/serving.js';
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
  /** Continue without a usable driver. */
  readonly force: boolean;
}

export type Obstacles = Pick<ServingFacts, 'refusals' | 'warnings'>;

const nothing: Obstacles = { refusals: [], warnings: [] };

const runLimitMs = 60_000;
/** A real driver takes seconds to initialize, and compiles a kernel. */
const selfCheckLimitMs = 120_000;
const mostLines = 6;
const connectLimitMs = 500;

export async function obstacles(checking: Checking): Promise<Obstacles> {
  const { root, device, listen, force } = checking;
  const changeable = changeableByOthers(...checking.sources);
  // A program that other users can change is not executed, not even for a check.
  if (changeable !== null) {
    const message = `another user than root can change ${changeable}, which the host would execute or install`;
    const remedy = 'run scripts/install-agent, which makes a copy that only root can change, and use that';
    return { refusals: told('changeable-by-others', message, remedy), warnings: [] };
  }
  const broken = await programRefusals(checking);
  const driver = broken.length === 0 && device === 'cuda' ? await tryDriver(checking) : nothing;
  const inUse = checking.listening ? [] : (await Promise.all(listen.map(addressRefusals))).flat();
  const vsock = listen.some((address) => address.startsWith('vsock:'));
  const unforced = driver.refusals.map((one) => ({
    ...one,
    remedy: `${one.remedy}; --force installs in any case`,
  }));
  return {
    refusals: [...broken, ...(force ? [] : unforced), ...inUse],
    warnings: [...(force ? driver.refusals : []), ...driver.warnings, ...(vsock ? vsockWarnings(root) : [])],
  };
}

function vsockWarnings(root: Root): readonly Warning[] {
  if (root.lstat('/dev/vhost-vsock') !== null) return [];
  return told(
    'no-vhost-vsock',
    'there is no /dev/vhost-vsock: no virtual machine can have a vsock device that connects to this host',
    'modprobe vhost_vsock, and a line "vhost_vsock" in /etc/modules-load.d/vhost_vsock.conf',
  );
}

/** Built for another system or without its libraries, it would fail at every start of the unit. */
async function programRefusals({ runner, program }: Checking): Promise<readonly Refusal[]> {
  const said = async (): Promise<string | null> => {
    const ran = await runner.run(program, ['--version'], { timeoutMs: runLimitMs });
    if (ran.code === 0) return null;
    return `${program} does not run: ${oneLine(ran.stderr.toString().trim()) || `it ended with ${ran.code ?? ran.signal}`}`;
  };
  const problem = await said().catch((error: unknown) => {
    if (error instanceof VgpuError) return error.message;
    throw error;
  });
  if (problem === null) return [];
  return told(
    'program-broken',
    problem,
    'if a library is missing, install it (Debian, Ubuntu: sudo apt-get install libjansson4 liblz4-1 libseccomp2 libzstd1; Fedora: sudo dnf install jansson lz4-libs libseccomp libzstd); otherwise build it on this machine: npm run build:shim',
  );
}

/**
 * Without the nodes nothing can work. With them the daemon tries the driver as a session's worker would, in the sandbox of
 * its unit: DeviceAllow= there resolves names of /proc/devices, and system calls are filtered.
 */
async function tryDriver({ root, runner, unit, program }: Checking): Promise<Obstacles> {
  // NVIDIA's driver makes these when it is loaded; nvidia-uvm only when something asked for it once.
  const missing = ['/dev/nvidiactl', '/dev/nvidia-uvm'].filter((node) => root.lstat(node) === null);
  if (!root.readdir('/dev').some((name) => /^nvidia\d+$/.test(name))) missing.push('/dev/nvidia0');
  if (missing.length > 0) {
    const message = `--device cuda needs NVIDIA's driver, and there is no ${missing.join(', ')}`;
    const remedy =
      'install the driver and load it (nvidia-smi shows the GPUs; nvidia-modprobe -u makes nvidia-uvm), or use --device software';
    return { refusals: told('no-driver', message, remedy), warnings: [] };
  }
  const args = ['--self-check', '--device', 'cuda'];
  const ran = await runInSandbox(runner, { unit, program, args, limitMs: selfCheckLimitMs });
  const lines = `${ran.stdout.toString()}${ran.stderr.toString()}`.trim().split('\n').map(oneLine);
  if (ran.code === 0) {
    // `warning: WHAT IS SO; WHAT CHANGES IT`, which the self-check prints beside a driver that works.
    const warnings = lines.flatMap((line) => {
      const [, message, remedy] = /^warning: (.*?); (.*)$/.exec(line) ?? [];
      return message === undefined || remedy === undefined ? [] : told('self-check', message, remedy);
    });
    return { refusals: [], warnings };
  }
  const why = ran.timedOut ? `no end after ${selfCheckLimitMs / 1000} s` : lines.slice(-mostLines).join('; ');
  const message = `a worker of this host could not use the driver: ${why}`;
  return {
    refusals: told('self-check', message, `${program} ${args.join(' ')} shows every step`),
    warnings: [],
  };
}

/** systemd would take over the socket of a daemon that was started by hand, and with it its guests. */
async function addressRefusals(address: string): Promise<readonly Refusal[]> {
  const parsed = parseEndpoint(address);
  if (parsed.kind !== 'tcp' && !(parsed.kind === 'unix' && parsed.path.startsWith('/'))) return [];
  const socket = parsed.kind === 'unix' ? path.normalize(parsed.path) : null;
  const at = parsed.kind === 'tcp' ? { host: parsed.address, port: parsed.port } : { path: socket ?? '' };
  if (!(await answers(at))) return [];
  const find = socket === null ? 'ss -tlnp' : `fuser ${socket}`;
  return told(
    'address-in-use',
    `another program listens at ${socket ?? address}`,
    `end it (${find} names it), or choose another address with --listen`,
  );
}

function answers(at: NetConnectOpts): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(at);
    const done = (listens: boolean) => () => {
      connection.destroy();
      resolve(listens);
    };
    connection.on('connect', done(true)).on('error', done(false)).setTimeout(connectLimitMs, done(true));
  });
}
