/**
 * Runs the device plugin: keeps it registered while kubelets come and go, and reports a device as healthy while a host
 * answers. A kubelet removes all sockets of its directory when it starts.
 */
import { rmSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { cdiKind } from '../containers/cdi.js';
import { createConfigReader, defaultConfig, readConfigText } from '../guest/agent-conf.js';
import { defaultShimDirectory } from '../guest/shim/store.js';
import { resolveEndpoint } from '../guest/vgpu-host/endpoint.js';
import { messageOf, VgpuError } from '../lib/errors.js';
import { agentConf as agentConfFile, cdiFile, defaultSocket, guestConf } from '../lib/paths.js';
import { oneLine, plural } from '../lib/text.js';
import { readLimited } from '../lib/trust/files.js';
import { type HostEvent, startHelper } from '../service/helper.js';
import { pacer, pause, steadyNow } from '../service/pacer.js';
import { watchDirectories } from '../service/watcher.js';
import { gpusIn, sharesOf } from './devices.js';
import { type Offer, type Plugin, pluginSocket, register, servePlugin } from './protocol.js';

interface KubernetesOptions {
  /** `/var/lib/kubelet`. */
  readonly kubelet: string;
  readonly signal: AbortSignal;
  readonly line: (text: string) => void;
}

/** The watches report each change at once; this finds what they miss, and asks the host. */
const lookMs = 4_000;
/** Time to wait for a host before the plugin registers, so that the kubelet does not see unhealthy devices first. */
const firstAnswerMs = 3_000;
const retryMs = { first: 1_000, longest: 60_000 };
const maxFileBytes = 1024 * 1024;

/** Runs until `signal` aborts. Throws a VgpuError when it cannot go on. */
export async function runKubernetes({ kubelet, signal: stop, line }: KubernetesOptions): Promise<void> {
  const directory = path.join(kubelet, 'device-plugins');
  const socket = path.join(directory, pluginSocket);
  const kubeletSocket = path.join(directory, 'kubelet.sock');
  if (identity(directory) === null) throw noKubelet(directory);

  const failed = new AbortController();
  const signal = AbortSignal.any([stop, failed.signal]);
  const say = repeats(line);
  const readConfig = createConfigReader();
  const begun = steadyNow();
  let config = defaultConfig;
  let endpoint: string | null = null;
  /** By the place in the list of hosts. */
  const answers = new Map<number, HostEvent>();
  let offer: Offer = { shares: [], healthy: false };
  /** `registered`: the socket of the kubelet that knows the plugin. */
  const now: { plugin: Plugin | null; registered: string | null } = { plugin: null, registered: null };
  let retry = { at: 0, delayMs: retryMs.first };

  const helper = startHelper({
    program: path.join(defaultShimDirectory(), 'vgpu-watch'),
    inherited: undefined,
    onHost(event, place) {
      answers.set(place, event);
      pace.now();
    },
    onLost: line,
  });

  const configure = (): void => {
    try {
      const text = readConfigText();
      config = text === null ? defaultConfig : readConfig(text, agentConfFile);
      say('config', null);
    } catch (error) {
      if (!(error instanceof VgpuError) || now.plugin === null) throw error;
      say('config', `${error.message}; the former settings stay in use`);
    }
  };
  const watchHosts = (): void => {
    const { endpoint: found, problem } = resolveEndpoint({
      flag: null,
      // Containers have guest.conf, and not this variable.
      environment: undefined,
      guestConf: textOf(guestConf),
      defaultSocketExists: identity(defaultSocket) !== null,
    });
    say('guest.conf', problem);
    const wanted = problem === null ? found : null;
    if (wanted === endpoint) return;
    endpoint = wanted;
    answers.clear();
    helper.watchHost(endpoint);
  };
  const offerNow = (): Offer => {
    const gpus = gpusIn(textOf(cdiFile) ?? '');
    say('cdi', gpus.length > 0 ? null : `${cdiFile} offers no GPU: run "vgpu-agent install" on this node`);
    const up = [...answers.values()].find((one) => one.kind === 'up');
    if (up?.kind === 'up') {
      say('host', `the host answers: ${oneLine(up.device)}`);
    } else if (answers.size > 0) {
      const reasons = [...answers.values()].map((one) => (one.kind === 'down' ? oneLine(one.reason) : ''));
      say(
        'host',
        `no host answers at ${endpoint}: ${reasons.join('; ')}. All devices are unhealthy; running pods continue`,
      );
    }
    return { shares: sharesOf(gpus, config.kubernetes.timeSlicing), healthy: up !== undefined };
  };
  const look = async (): Promise<void> => {
    configure();
    watchHosts();
    offer = offerNow();
    now.plugin?.changed();
    if (answers.size === 0 && endpoint !== null && steadyNow() - begun < firstAnswerMs) {
      pace.at(begun + firstAnswerMs);
      return;
    }
    if (now.plugin !== null && identity(socket) === null) {
      now.plugin.close();
      now.plugin = null;
      now.registered = null;
    }
    if (identity(directory) === null) {
      say('kubelet', `${directory} is gone; waiting for a kubelet`);
      return;
    }
    if (now.plugin === null) {
      await requireFree(socket);
      now.plugin = await servePlugin(socket, () => offer);
    }
    await keepRegistered();
  };
  const keepRegistered = async (): Promise<void> => {
    const present = identity(kubeletSocket);
    if (present === null) {
      now.registered = null;
      say('kubelet', `waiting for the kubelet: ${kubeletSocket} does not exist`);
      return;
    }
    if (present === now.registered) return;
    if (steadyNow() < retry.at) {
      pace.at(retry.at);
      return;
    }
    try {
      await register(kubeletSocket);
      now.registered = present;
      retry = { at: 0, delayMs: retryMs.first };
      say('kubelet', null);
      line(`registered ${cdiKind} with the kubelet: ${plural(offer.shares.length, 'device')}`);
    } catch (error) {
      const reason = messageOf(error);
      say(
        'kubelet',
        `the kubelet at ${kubeletSocket} did not register ${cdiKind}: ${oneLine(reason)}; retrying`,
      );
      retry = { at: steadyNow() + retry.delayMs, delayMs: Math.min(retry.delayMs * 2, retryMs.longest) };
      pace.at(retry.at);
    }
  };
  const pace = pacer(() => look().catch((error: unknown) => failed.abort(error)), signal);
  const watcher = watchDirectories(() => {
    retry = { ...retry, at: 0 };
    pace.soon();
  });
  watcher.set(
    new Map([
      [directory, new Set([pluginSocket, 'kubelet.sock'])],
      ...[cdiFile, guestConf, agentConfFile].map(
        (file) => [path.dirname(file), new Set([path.basename(file)])] as const,
      ),
    ]),
  );
  const ticking = setInterval(() => {
    helper.tick();
    pace.now();
  }, lookMs);
  try {
    pace.now();
    while (!signal.aborted) await pause(lookMs, signal);
    await pace.quiet();
  } finally {
    clearInterval(ticking);
    watcher.close();
    helper.stop();
    now.plugin?.close();
  }
  if (failed.signal.aborted) throw failed.signal.reason;
}

/** Says a state when it changes; null: nothing to say. */
function repeats(line: (text: string) => void): (subject: string, text: string | null) => void {
  const last = new Map<string, string | null>();
  return (subject, text) => {
    if (last.get(subject) === text) return;
    last.set(subject, text);
    if (text !== null) line(text);
  };
}

/** Differs for each file that has the name in turn, even if a file system reuses the inode. Null: no file. */
function identity(file: string): string | null {
  const stats = statSync(file, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : `${stats.dev}:${stats.ino}:${stats.ctimeNs}`;
}

function textOf(file: string): string | null {
  return readLimited(file, maxFileBytes)?.toString('utf8') ?? null;
}

/** Removes a socket that nobody serves. Two plugins would take the socket from each other without end. */
async function requireFree(socket: string): Promise<void> {
  const served = await new Promise<boolean>((resolve) => {
    const client = connect(socket, () => {
      client.destroy();
      resolve(true);
    });
    client.on('error', () => resolve(false));
  });
  if (!served) {
    rmSync(socket, { force: true });
    return;
  }
  throw new VgpuError(`another process serves ${socket}`, {
    kind: 'refused',
    operation: 'kubernetes',
    path: socket,
    remedy: `ss -xlp src ${socket} shows the process; one vgpu-agent kubernetes serves a node`,
  });
}

function noKubelet(directory: string): VgpuError {
  return new VgpuError(`${directory} does not exist: no kubelet has run on this machine`, {
    kind: 'failed',
    operation: 'kubernetes',
    path: directory,
    remedy: 'vgpu-agent kubernetes --kubelet DIR, if the kubelet has another --root-dir',
  });
}
