/** Obstacles for this machine as a host, as far as they can be known before anything is changed. */

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
  const changeable = changeableSource(checking.sources);
  // A program that other users can change is not executed, not even for a check.
  if (changeable !== null) return [changeable];
  const [runs, held] = await Promise.all([programProblem(checking), addressProblems(checking)]);
  if (runs !== null) return [runs, ...held];
  const device = checking.device === 'cuda' ? await driverProblems(checking) : [];
  return [...device, ...held, ...vsockProblems(checking)];
}

function changeableSource(sources: readonly string[]): ServingProblem | null {
  const found = changeableByOthers(...sources);
  if (found === null) return null;
  return {
    code: 'changeable-by-others',
    message: `another user than root can change ${found}, which the host would execute or install`,
    remedy: 'run scripts/install-agent, which makes a copy that only root can change, and use that',
    weight: 'certain',
  };
}

/** Built for another system or without its libraries, it would fail at every start of the unit. */
async function programProblem({ runner, program }: Checking): Promise<ServingProblem | null> {
  const remedy =
    'if a library is missing, install it (Debian, Ubuntu: sudo apt-get install libjansson4 liblz4-1 libseccomp2 libzstd1; Fedora: sudo dnf install jansson lz4-libs libseccomp libzstd); otherwise build it on this machine: npm run build:shim';
  try {
    const ran = await runner.run(program, ['--version'], { timeoutMs: runLimitMs });
    if (ran.code === 0) return null;
    const said = oneLine(ran.stderr.toString().trim()) || `it ended with ${ran.code ?? ran.signal}`;
    return { code: 'program-broken', message: `${program} does not run: ${said}`, remedy, weight: 'certain' };
  } catch (error) {
    if (!(error instanceof VgpuError)) throw error;
    return { code: 'program-broken', message: error.message, remedy, weight: 'certain' };
  }
}

/**
 * Without the nodes nothing can work. With them the daemon tries the driver as a session's worker would, in the sandbox of
 * its unit: DeviceAllow= there resolves names of /proc/devices, and system calls are filtered.
 */
async function driverProblems(checking: Checking): Promise<readonly ServingProblem[]> {
  const nodes = nodeProblems(checking.root);
  if (nodes.length > 0) return nodes;
  const words = ['--self-check', '--device', 'cuda'];
  const ran = await runInSandbox(checking.runner, {
    unit: checking.unit,
    program: checking.program,
    args: words,
    limitMs: selfCheckLimitMs,
  });
  const lines = `${ran.stdout.toString()}${ran.stderr.toString()}`.trim().split('\n');
  if (ran.code === 0) return lines.flatMap(warningOf);
  const said = lines.slice(-mostLines);
  const why = ran.timedOut ? `no end after ${selfCheckLimitMs / 1000} s` : said.map(oneLine).join('; ');
  return [
    {
      code: 'self-check',
      message: `a worker of this host could not use the driver: ${why}`,
      remedy: `${checking.program} ${words.join(' ')} shows every step`,
      weight: 'device',
    },
  ];
}

/** `warning: WHAT IS SO; WHAT CHANGES IT`, which the self-check prints beside a driver that works. */
function warningOf(line: string): readonly ServingProblem[] {
  const [, message, remedy] = /^warning: (.*?); (.*)$/.exec(oneLine(line)) ?? [];
  if (message === undefined || remedy === undefined) return [];
  return [{ code: 'self-check', message, remedy, weight: 'warning' }];
}

/** NVIDIA's driver makes these when it is loaded; nvidia-uvm only when something asked for it once. */
function nodeProblems(root: Root): readonly ServingProblem[] {
  const missing = ['/dev/nvidiactl', '/dev/nvidia-uvm'].filter((node) => root.lstat(node) === null);
  const gpus = root.readdir('/dev').filter((name) => /^nvidia\d+$/.test(name));
  if (missing.length === 0 && gpus.length > 0) return [];
  const what = [...missing, ...(gpus.length === 0 ? ['/dev/nvidia0'] : [])].join(', ');
  return [
    {
      code: 'no-driver',
      message: `--device cuda needs NVIDIA's driver, and there is no ${what}`,
      remedy:
        'install the driver and load it (nvidia-smi shows the GPUs; nvidia-modprobe -u makes nvidia-uvm), or use --device software',
      weight: 'device',
    },
  ];
}

function vsockProblems({ root, listen }: Checking): readonly ServingProblem[] {
  if (!listen.some((address) => address.startsWith('vsock:'))) return [];
  if (root.lstat('/dev/vhost-vsock') !== null) return [];
  return [
    {
      code: 'no-vhost-vsock',
      message:
        'there is no /dev/vhost-vsock: no virtual machine can have a vsock device that connects to this host',
      remedy: 'modprobe vhost_vsock, and a line "vhost_vsock" in /etc/modules-load.d/vhost_vsock.conf',
      weight: 'warning',
    },
  ];
}

/** systemd would take over the socket of a daemon that was started by hand, and with it its guests. */
async function addressProblems({ listen, listening }: Checking): Promise<readonly ServingProblem[]> {
  if (listening) return [];
  const places = listen.flatMap((address): readonly Place[] => {
    const parsed = parseEndpoint(address);
    if (parsed.kind === 'tcp') {
      return [{ name: address, at: { host: parsed.address, port: parsed.port }, find: 'ss -tlnp' }];
    }
    if (parsed.kind !== 'unix' || !parsed.path.startsWith('/')) return [];
    const socket = path.normalize(parsed.path);
    return [{ name: socket, at: { path: socket }, find: `fuser ${socket}` }];
  });
  const held = await Promise.all(places.map(async (place) => ((await answers(place.at)) ? place : null)));
  return held.flatMap((place): readonly ServingProblem[] =>
    place === null
      ? []
      : [
          {
            code: 'address-in-use',
            message: `another program listens at ${place.name}`,
            remedy: `end it (${place.find} names it), or choose another address with --listen`,
            weight: 'certain',
          },
        ],
  );
}

interface Place {
  readonly name: string;
  readonly at: NetConnectOpts;
  readonly find: string;
}

function answers(at: NetConnectOpts): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(at);
    const end = (answer: boolean) => () => {
      connection.destroy();
      resolve(answer);
    };
    connection.setTimeout(connectLimitMs, end(true));
    connection.on('connect', end(true));
    connection.on('error', end(false));
  });
}
