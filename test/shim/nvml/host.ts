/**
 * A host for NVML's fault tests: speaks the wire's control frames (shim-src/wire/frame.h) and can freeze,
 * hang up or lie at any of them, which vgpu-hostd never does on purpose. What is true is tested with
 * vgpu-hostd itself.
 */
import { createServer, type Server, type Socket } from 'node:net';

const HEADER = 40;
export const OPCODE = { hello: 1, facts: 3, usage: 4, processes: 5 } as const;
const FLAG_REPLY = 1;
const ATTRIBUTES = 192;
const FACTS_SIZE = 968;

export interface HostDevice {
  readonly name: string;
  /** 16 bytes. */
  readonly uuid: Buffer;
  readonly pci: readonly [domain: number, bus: number, device: number];
  readonly compute: readonly [major: number, minor: number];
  readonly attributes: Readonly<Record<number, number>>;
  total: bigint;
  used: bigint;
  gpuLoad: number;
  memoryLoad: number;
  temperature: number;
  power: number;
  powerLimit: number;
  processes: readonly { readonly pid: number; readonly used: bigint }[];
}

/** The host's behaviour instead of an answer to a frame of one opcode. */
export type Fault = 'freeze' | 'hang up' | 'garbage' | 'refuse' | { readonly status: number };

export interface HostState {
  devices: HostDevice[];
  cudaVersion: number;
  driver: string;
  readonly faults: Map<number, Fault>;
  /** Frames received, by opcode. */
  readonly counts: Map<number, number>;
}

export interface TestHost {
  readonly state: HostState;
  /** Ends every connection there is; new ones are taken. */
  drop(): void;
  close(): Promise<void>;
}

function frame(request: Buffer, body: Buffer, bulk: Buffer, status: number): Buffer {
  const length = (HEADER + body.length + bulk.length + 7) & ~7;
  const out = Buffer.alloc(length);
  out.writeUInt32LE(length, 0);
  request.copy(out, 4, 4, 8);
  out.writeUInt32LE(FLAG_REPLY, 8);
  request.copy(out, 12, 12, 16);
  out.writeUInt32LE(body.length, 16);
  out.writeUInt32LE(bulk.length, 20);
  request.copy(out, 24, 24, 32);
  out.writeInt32LE(status, 32);
  body.copy(out, HEADER);
  bulk.copy(out, HEADER + body.length);
  return out;
}

function welcome(state: HostState): Buffer {
  const out = Buffer.alloc(160);
  out.write('VGPUWIRE', 0, 'latin1');
  out.writeUInt16LE(1, 8);
  out.writeUInt32LE(1024 * 1024 + 4096, 16);
  out.writeUInt32LE(state.devices.length, 20);
  out.writeInt32LE(state.cudaVersion, 24);
  out.writeUInt32LE(1, 28);
  out.writeBigUInt64LE(1n, 32);
  out.write(state.driver, 64, 'latin1');
  out.write('test host', 96, 'latin1');
  return out;
}

function facts(device: HostDevice): Buffer {
  const out = Buffer.alloc(FACTS_SIZE);
  out.write(device.name, 0, 127, 'latin1');
  device.uuid.copy(out, 128);
  out.writeBigUInt64LE(device.total, 144);
  for (const [index, value] of [...device.pci, ...device.compute, 1].entries()) {
    out.writeUInt32LE(value, 152 + index * 4);
  }
  for (const [number, value] of Object.entries(device.attributes)) {
    const at = Number(number);
    out.writeUInt8(out.readUInt8(176 + (at >> 3)) | (1 << (at & 7)), 176 + (at >> 3));
    out.writeInt32LE(value, 176 + ATTRIBUTES / 8 + at * 4);
  }
  return out;
}

function usage(device: HostDevice): Buffer {
  const out = Buffer.alloc(40);
  out.writeBigUInt64LE(device.total, 0);
  out.writeBigUInt64LE(device.used, 8);
  const { gpuLoad, memoryLoad, temperature, power, powerLimit, processes } = device;
  for (const [index, value] of [
    gpuLoad,
    memoryLoad,
    temperature,
    power,
    powerLimit,
    processes.length,
  ].entries()) {
    out.writeUInt32LE(value, 16 + index * 4);
  }
  return out;
}

function list(elements: readonly Buffer[], size: number): { body: Buffer; bulk: Buffer } {
  const body = Buffer.alloc(8);
  body.writeUInt32LE(elements.length, 0);
  body.writeUInt32LE(size, 4);
  return { body, bulk: Buffer.concat(elements) };
}

function answer(state: HostState, opcode: number, request: Buffer): Buffer {
  const none = Buffer.alloc(0);
  const device = opcode === OPCODE.hello ? undefined : state.devices[request.readUInt32LE(HEADER)];
  switch (opcode) {
    case OPCODE.hello:
      return frame(request, welcome(state), none, 0);
    case OPCODE.facts: {
      const { body, bulk } = list(state.devices.map(facts), FACTS_SIZE);
      return frame(request, body, bulk, 0);
    }
    case OPCODE.usage:
      return device === undefined ? frame(request, none, none, 3) : frame(request, usage(device), none, 0);
    case OPCODE.processes: {
      if (device === undefined) return frame(request, none, none, 3);
      const elements = device.processes.map(({ pid, used }) => {
        const out = Buffer.alloc(16);
        out.writeUInt32LE(pid, 0);
        out.writeBigUInt64LE(used, 8);
        return out;
      });
      const { body, bulk } = list(elements, 16);
      return frame(request, body, bulk, 0);
    }
    default:
      return frame(request, none, none, 4);
  }
}

function serve(state: HostState, socket: Socket): void {
  let pending: Buffer = Buffer.alloc(0);
  socket.on('error', () => socket.destroy());
  socket.on('data', (data) => {
    pending = Buffer.concat([pending, data]);
    while (pending.length >= HEADER && pending.length >= pending.readUInt32LE(0)) {
      const request = pending.subarray(0, pending.readUInt32LE(0));
      pending = pending.subarray(request.length);
      const opcode = request.readUInt32LE(4);
      state.counts.set(opcode, (state.counts.get(opcode) ?? 0) + 1);
      const fault = state.faults.get(opcode);
      if (fault === undefined) socket.write(answer(state, opcode, request));
      else if (fault === 'hang up') socket.destroy();
      else if (fault === 'garbage') socket.write(Buffer.alloc(4096, 0xa5));
      else if (fault === 'refuse') socket.write(frame(request, Buffer.alloc(0), Buffer.alloc(0), 2));
      else if (fault !== 'freeze')
        socket.write(frame(request, Buffer.alloc(0), Buffer.alloc(0), fault.status));
    }
  });
}

/** Listens on a unix socket; `state` can be changed at any time. */
export async function startHost(path: string, state: HostState): Promise<TestHost> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    serve(state, socket);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, resolve);
  });
  const drop = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    state,
    drop,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        drop();
      }),
  };
}
