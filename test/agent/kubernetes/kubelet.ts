// A kubelet's side of the device plugin protocol: registration, ListAndWatch, and requests. No pods and no API server.

import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import {
  Client,
  type ClientReadableStream,
  credentials,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceDefinition,
  type ServiceError,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { packageRoot } from '../../../agent/lib/paths.js';
import { at } from '../../guest/support/installed.js';
import { until } from '../../guest/support/process.js';

const proto = loadSync(path.join(packageRoot(), 'test/fixtures/kubernetes/kubelet.proto'), {
  keepCase: true,
  defaults: true,
});

function service(name: string): ServiceDefinition {
  const found = proto[`v1beta1.${name}`];
  if (found === undefined || 'format' in found) throw new Error(name);
  return found;
}

const deadlineMs = 60_000;

/** A call of a plugin, as a kubelet or somebody else makes it. */
export class Caller {
  readonly client: Client;

  constructor(socket: string) {
    // A connection of its own, because connections have a limit of calls.
    this.client = new Client(`unix:${socket}`, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
    });
  }

  call(name: string, request: object): Promise<unknown> {
    const method = service('DevicePlugin')[name];
    if (method === undefined) throw new Error(name);
    return new Promise((resolve, reject) => {
      this.client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        { deadline: Date.now() + deadlineMs },
        (error: ServiceError | null, answer: unknown) => (error === null ? resolve(answer) : reject(error)),
      );
    });
  }

  watch(): ClientReadableStream<unknown> {
    const method = service('DevicePlugin')['ListAndWatch'];
    if (method === undefined) throw new Error('ListAndWatch');
    const stream = this.client.makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      {},
    );
    stream.on('error', () => {});
    return stream;
  }

  allocate(...containers: readonly (readonly string[])[]): Promise<unknown> {
    return this.call('Allocate', { container_requests: containers.map((ids) => ({ devices_ids: ids })) });
  }

  prefer(available: readonly string[], required: readonly string[], count: number): Promise<unknown> {
    const request = {
      available_deviceIDs: available,
      must_include_deviceIDs: required,
      allocation_size: count,
    };
    return this.call('GetPreferredAllocation', { container_requests: [request] });
  }
}

/** `0-0 Healthy` and so on; null: no list yet. */
export type Listed = readonly string[] | null;

export class Kubelet {
  readonly registrations: unknown[] = [];
  /** The newest list of the plugin that registered last. */
  listed: Listed = null;
  plugin: Caller | null = null;
  /** Registrations that it refuses before it accepts one. */
  refusals = 0;
  readonly #directory: string;
  readonly #server = new Server();

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** Removes everything in its directory first, as a kubelet does. */
  static async start(root: string, refusals = 0): Promise<Kubelet> {
    const directory = path.join(root, 'device-plugins');
    mkdirSync(directory, { recursive: true, mode: 0o750 });
    for (const name of readdirSync(directory)) rmSync(path.join(directory, name), { force: true });
    const kubelet = new Kubelet(directory);
    kubelet.refusals = refusals;
    const server = kubelet.#server;
    server.addService(service('Registration'), {
      Register: (call: ServerUnaryCall<unknown, unknown>, reply: sendUnaryData<unknown>) =>
        kubelet.#register(call.request, reply),
    });
    const socket = path.join(directory, 'kubelet.sock');
    await new Promise<void>((resolve, reject) => {
      server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
    return kubelet;
  }

  #register(request: unknown, reply: sendUnaryData<unknown>): void {
    if (this.refusals > 0) {
      this.refusals -= 1;
      reply({ code: status.FAILED_PRECONDITION, details: 'the test refuses this registration' });
      return;
    }
    this.registrations.push(request);
    reply(null, {});
    this.plugin?.client.close();
    const plugin = new Caller(path.join(this.#directory, String(at(request, 'endpoint'))));
    this.plugin = plugin;
    plugin.watch().on('data', (message: unknown) => {
      const devices = at(message, 'devices');
      if (!Array.isArray(devices)) throw new Error(JSON.stringify(message));
      this.listed = devices.map((one: unknown) => `${at(one, 'ID')} ${at(one, 'health')}`);
    });
  }

  lists(wanted: readonly string[]): Promise<true> {
    return until(`the kubelet has ${wanted.join(', ')}`, deadlineMs, () => {
      if (JSON.stringify(this.listed) === JSON.stringify(wanted)) return true;
      return undefined;
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}; it has ${JSON.stringify(this.listed)}`);
    });
  }

  get caller(): Caller {
    if (this.plugin === null) throw new Error('no plugin has registered');
    return this.plugin;
  }

  /** Leaves the sockets of the plugins, as a kubelet does that ends. */
  stop(): void {
    this.plugin?.client.close();
    this.#server.forceShutdown();
  }
}
