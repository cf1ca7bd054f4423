import type { HostDevice, HostState } from './host.js';

const GIB = 1024n ** 3n;

/** An H100 with something on it and a nameless device that tells as little as it may. */
export function twoDevices(): HostState {
  const first: HostDevice = {
    name: 'NVIDIA H100 80GB HBM3 (simulated)',
    uuid: Buffer.from('00112233445566778899aabbccddeeff', 'hex'),
    pci: [0, 1, 0],
    compute: [9, 0],
    attributes: {
      13: 1980000,
      20: 0,
      32: 1,
      36: 2619000,
      37: 5120,
      84: 0,
      139: 0x233010de,
      140: 0x16c110de,
    },
    total: 80n * GIB,
    used: 3n * GIB,
    gpuLoad: 42,
    memoryLoad: 17,
    temperature: 0,
    power: 0,
    powerLimit: 700000,
    processes: [],
  };
  const second: HostDevice = {
    ...first,
    name: 'X (simulated)',
    uuid: Buffer.from('ffeeddccbbaa99887766554433221100', 'hex'),
    pci: [0x10, 0x41, 3],
    compute: [7, 5],
    attributes: {},
    used: 0n,
    gpuLoad: 0,
    memoryLoad: 0,
    powerLimit: 0,
  };
  return {
    devices: [first, second],
    cudaVersion: 13000,
    driver: '580.65.06',
    faults: new Map(),
    counts: new Map(),
  };
}
