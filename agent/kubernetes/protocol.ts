/** The kubelet's device plugin protocol (v1beta1): the server of the plugin, and the registration of it. */
import path from 'node:path';
import {
  Client,
  credentials,
  logVerbosity,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type sendUnaryData,
  setLogVerbosity,
  status,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { cdiKind } from '../containers/cdi.js';
import { VgpuError } from '../lib/errors.js';
import { member } from '../lib/json.js';
import { packageRoot } from '../lib/paths.js';
import { grant, prefer, type sharesOf } from './devices.js';

export const pluginSocket = 'vgpu.org-gpu.sock';
const registerMs = 5_000;
/** A request of a kubelet for all shares of a node is far below these limits. */
const limits = { bytes: 1024 * 1024, containers: 1024, streams: 16 };

const options = { get_preferred_allocation_available: true };

type Shares = ReturnType<typeof sharesOf>;

export interface Offer {
  readonly shares: Shares;
  readonly healthy: boolean;
}

export interface Plugin {
  /** Sends the offer to each open ListAndWatch. */
  changed(): void;
  close(): void;
}

/** Serves on a unix socket that only root can open. */
export async function servePlugin(socket: string, offer: () => Offer): Promise<Plugin> {
  // Each failure is reported to us, too.
  setLogVerbosity(logVerbosity.NONE);
  const watchers = new Set<() => void>();
  const server = new Server({
    'grpc.max_receive_message_length': limits.bytes,
    'grpc.max_concurrent_streams': limits.streams,
  });
  server.addService(service('DevicePlugin'), {
    GetDevicePluginOptions: (_call: Unary, reply: Reply) => reply(null, options),
    ListAndWatch: (call: ServerWritableStream<unknown, unknown>) => listAndWatch(call, watchers, offer),
    GetPreferredAllocation: (call: Unary, reply: Reply) =>
      answerEach(call, reply, (request) => {
        const chosen = prefer(offer().shares, {
          available: texts(request, 'available_deviceIDs'),
          required: texts(request, 'must_include_deviceIDs'),
          count: Number(member(request, 'allocation_size')),
        });
        return chosen.kind === 'wrong' ? chosen : { kind: 'answer', value: { deviceIDs: chosen.value } };
      }),
    Allocate: (call: Unary, reply: Reply) =>
      answerEach(call, reply, (request) => grant(offer().shares, texts(request, 'devices_ids'))),
  });
  const umask = process.umask(0o177);
  try {
    await new Promise<void>((resolve, reject) => {
      server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
  } finally {
    process.umask(umask);
  }
  return {
    changed() {
      for (const send of watchers) send();
    },
    close: () => server.forceShutdown(),
  };
}

type Unary = ServerUnaryCall<unknown, unknown>;
type Reply = sendUnaryData<unknown>;

function listAndWatch(
  call: ServerWritableStream<unknown, unknown>,
  watchers: Set<() => void>,
  offer: () => Offer,
): void {
  if (watchers.size >= limits.streams) {
    call.emit('error', {
      code: status.RESOURCE_EXHAUSTED,
      details: `${watchers.size} calls of ListAndWatch are open, the most that this plugin serves`,
    });
    return;
  }
  let last = '';
  /** The kubelet does not read: the newest list follows when it does. */
  let full = false;
  const send = (): void => {
    const { shares, healthy } = offer();
    const devices = shares.map(({ id }) => ({ ID: id, health: healthy ? 'Healthy' : 'Unhealthy' }));
    const text = JSON.stringify(devices);
    if (full || text === last) return;
    last = text;
    full = !call.write({ devices });
  };
  call.on('drain', () => {
    full = false;
    send();
  });
  for (const end of ['cancelled', 'error', 'close']) call.on(end, () => watchers.delete(send));
  watchers.add(send);
  send();
}

type Answer = ReturnType<typeof grant> | { readonly kind: 'answer'; readonly value: object };

/** One answer for each container of the request; a wrong request is refused as a whole. */
function answerEach(call: Unary, reply: Reply, answer: (request: unknown) => Answer): void {
  const requests = member(call.request, 'container_requests');
  const refuse = (details: string): void => reply({ code: status.INVALID_ARGUMENT, details });
  if (!Array.isArray(requests) || requests.length > limits.containers) {
    refuse(`a request is for at most ${limits.containers} containers`);
    return;
  }
  const responses: object[] = [];
  for (const request of requests) {
    const one = answer(request);
    if (one.kind === 'wrong') {
      refuse(one.reason);
      return;
    }
    responses.push(one.value);
  }
  reply(null, { container_responses: responses });
}

function texts(request: unknown, name: string): readonly string[] {
  const list = member(request, name);
  return Array.isArray(list) ? list.filter((one): one is string => typeof one === 'string') : [];
}

/** Rejects with the kubelet's reason, or if the kubelet does not answer. */
export async function register(kubeletSocket: string): Promise<void> {
  const method = service('Registration')['Register'];
  if (method === undefined) throw new TypeError('Register');
  const request = {
    version: 'v1beta1',
    endpoint: pluginSocket,
    resource_name: cdiKind,
    options,
  };
  const client = new Client(`unix:${kubeletSocket}`, credentials.createInsecure());
  try {
    await new Promise<void>((resolve, reject) => {
      const call = client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        (error) => {
          clearTimeout(timer);
          if (error === null) resolve();
          else reject(error);
        },
      );
      // Not a deadline of gRPC, which is a time of day.
      const timer = setTimeout(() => {
        reject(new Error(`no answer within ${registerMs / 1000} s`));
        call.cancel();
      }, registerMs);
    });
  } finally {
    client.close();
  }
}

function service(name: string): ServiceDefinition {
  const file = path.join(packageRoot(), 'units', 'kubernetes', 'device-plugin.proto');
  const found = loadSync(file, { keepCase: true, defaults: true })[`v1beta1.${name}`];
  if (found !== undefined && !('format' in found)) return found;
  throw new VgpuError(`${file} describes no service ${name}`, {
    kind: 'internal',
    operation: 'read the protocol',
    path: file,
    remedy: 'reinstall vgpu-agent: its files are of different versions',
  });
}
