import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { buildCaller, type Line, makeCalls, RESULT, SANITIZERS } from './calls.js';
import { twoDevices } from './devices.js';
import { OPCODE, startHost, type TestHost } from './host.js';

const GIB = 1024 ** 3;

for (const sanitize of SANITIZERS) {
  describe(`libnvidia-ml under ${sanitize} sanitizers`, () => {
    let program = '';
    let scratch = '';
    let socket = '';
    let host: TestHost;

    before(async () => {
      program = await buildCaller(sanitize);
      scratch = await mkdtemp(path.join(os.tmpdir(), 'nvml-'));
      socket = path.join(scratch, 'host.sock');
    });
    after(() => rm(scratch, { recursive: true, force: true }));
    beforeEach(async () => {
      host = await startHost(socket, twoDevices());
    });
    afterEach(() => host.close());

    const calls = (names: readonly string[], meanwhile: readonly (() => Promise<void> | void)[] = []) =>
      makeCalls(program, `unix:${socket}`, names, meanwhile);

    /** One call between nvmlInit and nvmlShutdown. */
    async function one(call: string): Promise<Line> {
      const [init, line, end] = await calls(['init', call, 'shutdown']);
      assert.equal(init?.result, RESULT.success);
      assert.equal(end?.result, RESULT.success);
      assert.ok(line);
      return line;
    }

    it('says who it is and what it found', async () => {
      const lines = await calls(['init', 'driver', 'nvml', 'cuda', 'count', 'shutdown']);
      assert.deepEqual(
        lines.map(({ result, text }) => [result, text]),
        [
          [RESULT.success, ''],
          [RESULT.success, '580.65.06'],
          [RESULT.success, '13.580.65.06'],
          [RESULT.success, '13000'],
          [RESULT.success, '2'],
          [RESULT.success, ''],
        ],
      );
      assert.equal(host.state.counts.get(OPCODE.facts), 1, 'facts are fetched once');
      assert.equal(host.state.counts.get(OPCODE.usage), undefined);
    });

    const answers: readonly (readonly [string, number, string])[] = [
      ['name:0', RESULT.success, 'NVIDIA H100 80GB HBM3 (simulated)'],
      ['name:0,10', RESULT.tooSmall, ''],
      ['name:0,33', RESULT.tooSmall, ''],
      ['name:0,34', RESULT.success, 'NVIDIA H100 80GB HBM3 (simulated)'],
      ['driver:5', RESULT.tooSmall, ''],
      ['uuid:0', RESULT.success, 'GPU-00112233-4455-6677-8899-aabbccddeeff'],
      ['handle:1', RESULT.success, '1'],
      ['handle:2', RESULT.invalid, ''],
      ['by-uuid:GPU-ffeeddcc-bbaa-9988-7766-554433221100', RESULT.success, '1'],
      ['by-uuid:GPU-FFEEDDCC-BBAA-9988-7766-554433221100', RESULT.success, '1'],
      ['by-uuid:GPU-ffeeddcc-bbaa-9988-7766-554433221101', RESULT.notFound, ''],
      ['by-uuid:', RESULT.notFound, ''],
      ['by-pci:0000:01:00.0', RESULT.success, '0'],
      ['by-pci:00000000:01:00.0', RESULT.success, '0'],
      ['by-pci:0:1:0', RESULT.success, '0'],
      ['by-pci:01:00', RESULT.success, '0'],
      ['by-pci:01:00.0', RESULT.success, '0'],
      ['by-pci:00000010:41:03.0', RESULT.success, '1'],
      ['by-pci:0000:02:00.0', RESULT.notFound, ''],
      ['by-pci:0000:01:00.1', RESULT.invalid, ''],
      ['by-pci:0000:01:00.0x', RESULT.invalid, ''],
      ['by-pci:nonsense', RESULT.invalid, ''],
      ['by-pci:', RESULT.invalid, ''],
      [
        'pci:0',
        RESULT.success,
        '00000000:01:00.0 0000:01:00.0 0:1:0 233010de 16c110de | 0000:01:00.0 16c110de | 0000:01:00.0 55555555',
      ],
      [
        'pci:1',
        RESULT.success,
        '00000010:41:03.0 0010:41:03.0 10:41:3 00000000 00000000 | 0010:41:03.0 00000000 | 0010:41:03.0 55555555',
      ],
      ['pci-ext:0', RESULT.success, '00000000:01:00.0 233010de 16c110de 3'],
      [
        'memory:0',
        RESULT.success,
        [80, 3, 77, 80, 3, 77]
          .map((g) => g * GIB)
          .join(' ')
          .replace(/^(\d+ \d+ \d+) /, '$1 | '),
      ],
      ['load:0', RESULT.success, '42 17'],
      ['processes:0', RESULT.success, '0'],
      ['compute:1', RESULT.success, '7.5'],
      // This host is older than these calls.
      ['clocks:0', RESULT.notSupported, ''],
      ['clocks:1', RESULT.notSupported, ''],
      ['ecc:0', RESULT.success, '1 1'],
      ['ecc:1', RESULT.notSupported, ''],
      ['temperature:0', RESULT.notSupported, ''],
      ['number:minor,1', RESULT.success, '1'],
      ['number:brand,0', RESULT.success, '14'],
      ['number:architecture,0', RESULT.success, '9'],
      ['number:architecture,1', RESULT.success, '6'],
      ['number:bus,0', RESULT.success, '5120'],
      ['number:bus,1', RESULT.notSupported, ''],
      ['number:persistence,0', RESULT.notSupported, ''],
      ['number:compute-mode,0', RESULT.success, '0'],
      ['number:power,0', RESULT.notSupported, ''],
      ['number:limit,0', RESULT.notSupported, ''],
      ['number:limit,1', RESULT.notSupported, ''],
      ['number:multi,0', RESULT.success, '0'],
      ['number:mig,0', RESULT.success, '0'],
      // without NVSwitches; the last number is beyond version 2
      ['fabric:0', RESULT.success, '0 0 0 | 25 | 0 0 0 0 0 55 | 0 0 0 0 0 0 | 25'],
      ['fabric:9', RESULT.invalid, ''],
      ['bad-handles', RESULT.success, '0'],
      ['null', RESULT.success, '15'],
      ['table', RESULT.success, '2008 1 248 13'],
      ['fields:0', RESULT.notSupported, ''], // and each field says so, too
      ['affinity:0', RESULT.success, 'all, 0 1 2 2'],
      ['error:9', RESULT.success, 'Driver Not Loaded'],
      ['error:29', RESULT.success, 'Resource not in correct state to perform requested operation'],
      ['error:30', RESULT.success, 'Unknown Error'],
      ['error:-1', RESULT.success, 'Unknown Error'],
    ];
    it('answers every call rightly', async () => {
      const lines = await calls(['init', ...answers.map(([call]) => call), 'shutdown']);
      const got = lines.slice(1, -1).map(({ call, result, text }) => [call, result, text]);
      assert.deepEqual(got, answers);
    });

    it('memory, load and processes follow the host from one call to the next', async () => {
      const [device] = host.state.devices;
      assert.ok(device);
      const lines = await calls(
        [
          'init',
          'memory:0',
          'processes:0',
          'wait',
          'memory:0',
          'load:0',
          'processes:0',
          'processes:0,1',
          'details:0',
          'shutdown',
        ],
        [
          () => {
            device.used = 50n * BigInt(GIB);
            device.gpuLoad = 100;
            device.temperature = 61;
            device.processes = [
              { pid: 12, used: 49n },
              { pid: 13, used: 1n },
            ];
          },
        ],
      );
      assert.match(lines[1]?.text ?? '', new RegExp(`^${80 * GIB} ${3 * GIB} `));
      assert.match(lines[4]?.text ?? '', new RegExp(`^${80 * GIB} ${50 * GIB} ${30 * GIB} `));
      assert.equal(lines[5]?.text, '100 17');
      assert.equal(lines[6]?.text, '2 12=49 13=1');
      assert.equal(lines[7]?.result, RESULT.tooSmall, 'a list that is too short is told');
      assert.equal(lines[8]?.text, '7 2 12=49 13=1 | 0 0 | 2 25 2 3');
    });

    it('a host that says more is used than there is does not make free memory huge', async () => {
      const [device] = host.state.devices;
      assert.ok(device);
      device.used = 90n * BigInt(GIB);
      assert.match((await one('memory:0')).text, new RegExp(`^${80 * GIB} ${80 * GIB} 0 `));
    });

    it('nothing is answered before nvmlInit or after the last nvmlShutdown', async () => {
      const lines = await calls([
        'driver',
        'count',
        'handle:0',
        'shutdown',
        'init',
        'init',
        'shutdown',
        'count',
        'shutdown',
        'count',
        'init',
        'count',
        'shutdown',
      ]);
      assert.deepEqual(
        lines.map(({ result }) => result),
        [
          RESULT.uninitialized,
          RESULT.uninitialized,
          RESULT.uninitialized,
          RESULT.success,
          RESULT.success,
          RESULT.success,
          RESULT.success,
          RESULT.success,
          RESULT.success,
          RESULT.uninitialized,
          RESULT.success,
          RESULT.success,
          RESULT.success,
        ],
      );
    });

    it('a forked child starts again and leaves its parent alone', async () => {
      const lines = await calls(['init', 'fork', 'memory:0', 'fork', 'shutdown']);
      assert.equal(lines[1]?.text, '102', 'the child sees both devices');
      assert.equal(lines[2]?.result, RESULT.success);
      assert.equal(lines[3]?.text, '102');
    });

    it('sixteen threads that come and go do not disturb each other', async () => {
      assert.equal((await one('threads:16')).text, '0');
    });
  });
}
