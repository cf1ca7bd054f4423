import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { standInNvml, startStandIn } from '../host/stand_in.js';
import { twoDevices } from '../host/two_devices.js';
import { builtFile, type Host, SHIM, scratchDirectory, startHost } from '../shim_host.js';
import { WireClient } from '../wire/wire_client.js';
import { buildCaller, makeCalls } from './calls.js';

/** The lines of programs/nvml_queries.c: a call with its numbers, and its result with what it wrote. */
type Answers = ReadonlyMap<string, string>;

describe('a getter of NVML that the host answers', () => {
  const scratch = scratchDirectory();
  const program = builtFile('programs/nvml_queries');
  after(() => scratch.remove());

  async function withHost<T>(host: Promise<Host>, use: (host: Host) => Promise<T>): Promise<T> {
    const started = await host;
    try {
      return await use(started);
    } finally {
      await started.stop();
    }
  }

  async function ask(host: Host): Promise<Answers> {
    const ended = await runProgram(program, [], {
      env: { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM },
    });
    assert.equal(ended.code, 0, ended.stdout + ended.stderr);
    return new Map(
      ended.stdout
        .trimEnd()
        .split('\n')
        .map((line) => {
          const [call = '', answer = ''] = line.split(' = ');
          return [call, answer];
        }),
    );
  }

  const simulated = (name: string, profile: string): Promise<Host> =>
    startHost({
      device: 'software',
      listen: `unix:${scratch.path}/${name}`,
      args: ['--profile', path.join(ROOT, `profiles/devices/${profile}.json`)],
    });

  const word = (value: number): string => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    return bytes.toString('hex');
  };

  /** Number, result and value of each nvmlFieldValue_t, whose times are left out. */
  const fieldsOf = (answer: string): number[][] =>
    (answer.split(' ')[1]?.match(/.{48}/g) ?? []).map((field) => {
      const bytes = Buffer.from(field, 'hex');
      return [bytes.readUInt32LE(0), bytes.readUInt32LE(12), Number(bytes.readBigUInt64LE(16))];
    });

  it('is what an idle H100 answers, or its refusal, on a simulated one', async () => {
    const answers = await withHost(simulated('s', 'h100-80gb'), ask);
    const expected: readonly (readonly [string, string])[] = [
      ['MaxPcieLinkGeneration 0 0', `0 ${word(5)}`],
      ['MaxPcieLinkWidth 0 0', `0 ${word(16)}`],
      ['PcieSpeed 0 0', `0 ${word(32000)}`],
      ['BoardId 0 0', `0 ${word(0x100)}`],
      ['PerformanceState 0 0', `0 ${word(0)}`],
      ['ClockInfo 0 0', `0 ${word(345)}`],
      ['ClockInfo 2 0', `0 ${word(2619)}`],
      ['ClockInfo 3 0', `0 ${word(765)}`],
      ['MaxClockInfo 1 0', `0 ${word(1980)}`],
      ['MaxClockInfo 3 0', `0 ${word(1545)}`],
      ['PowerManagementLimitConstraints 0 0', `0 ${word(200000)} ${word(700000)}`],
      ['CurrentClocksEventReasons 0 0', `0 ${word(1)}${word(0)}`],
      ['MigMode 0 0', `0 ${word(0)} ${word(0)}`],
      ['NumGpuCores 0 0', `0 ${word(132 * 128)}`],
      ['RowRemapperHistogram 0 0', `0 ${word(2560)}${word(0).repeat(4)}`],
      ['SupportedMemoryClocks length', '7 1'],
      ['SupportedGraphicsClocks length', '7 1'],
      ['FanSpeed 0 0', '3'],
      ['RetiredPages 0 0', '3'],
      ['Serial 0 0', '3'],
      ['Temperature 0 0', '3'],
      ['ProcessUtilization 0 0', '6'],
    ];
    const fields = answers.get('nvmlDeviceGetFieldValues 0 0') ?? '';
    assert.deepEqual(fieldsOf(fields), [
      [1, 0, 1],
      [94, 0, 0],
      [186, 3, 0],
      [187, 0, 200_000],
      [190, 0, 700_000],
      [192, 0, 700_000],
      [9999, 3, 0],
    ]);
    for (const [call, answer] of expected) assert.equal(answers.get(`nvmlDeviceGet${call}`), answer, call);
  });

  it('differs for an older GPU as the real ones do', async () => {
    const answers = await withHost(simulated('t4', 't4'), ask);
    assert.equal(answers.get('nvmlDeviceGetMaxPcieLinkGeneration 0 0'), `0 ${word(3)}`);
    assert.equal(answers.get('nvmlDeviceGetMigMode 0 0'), '3');
    assert.equal(answers.get('nvmlDeviceGetRemappedRows 0 0'), '3');
    assert.equal(answers.get('nvmlDeviceGetRetiredPages length'), '0 0');
  });

  it('allows access between two simulated devices, without NVLink', async () => {
    const two = ['--profile', twoDevices(`${scratch.path}/two.json`)];
    const answers = await withHost(startHost({ listen: `unix:${scratch.path}/two`, args: two }), ask);
    const status = [0, 1, 2, 3].map((capability) => answers.get(`nvmlDeviceGetP2PStatus ${capability} 0`));
    assert.deepEqual(status, [`0 ${word(0)}`, `0 ${word(0)}`, `0 ${word(5)}`, `0 ${word(0)}`]);
  });

  it("is that of the host's NVML with --device cuda", async () => {
    await withHost(simulated('behind', 'h100-80gb'), async (behind) => {
      const direct = await ask(behind);
      const front = startHost({
        device: 'cuda',
        listen: `unix:${scratch.path}/front`,
        args: ['--cuda-library', builtFile('libcuda.so.1'), '--nvml-library', builtFile('libnvidia-ml.so.1')],
        env: { VGPU_HOST: behind.address },
      });
      const through = await withHost(front, ask);
      assert.ok(direct.size > 150, `${direct.size} calls`);
      assert.deepEqual([...through], [...direct]);
    });
  });

  it('describes the one of two devices that the guest sees, with --device cuda', async () => {
    const two = ['--profile', twoDevices(`${scratch.path}/own.json`)];
    const conf = ['--config', `${scratch.path}/own.conf`];
    writeFileSync(`${scratch.path}/own.conf`, 'allow unix devices=1\n');
    await withHost(startHost({ listen: `unix:${scratch.path}/both`, args: two }), async (behind) => {
      const alone = startHost({ listen: `unix:${scratch.path}/alone`, args: [...two, ...conf] });
      const direct = await withHost(alone, ask);
      const front = startHost({
        device: 'cuda',
        listen: `unix:${scratch.path}/own`,
        args: [
          ...['--cuda-library', builtFile('libcuda.so.1'), '--nvml-library', builtFile('libnvidia-ml.so.1')],
          ...conf,
        ],
        env: { VGPU_HOST: behind.address },
      });
      assert.deepEqual([...(await withHost(front, ask))], [...direct]);
      assert.notDeepEqual([...(await ask(behind))], [...direct], 'another device has other values');
    });
  });

  it('tells the utilization of the processes of its guest alone', async () => {
    const nvml = await standInNvml();
    const args = ['--nvml-library', nvml];
    await withHost(startStandIn('always', { listen: `unix:${scratch.path}/p`, args }), async (host) => {
      const answers = await ask(host);
      // The stand-in has samples of the worker that asks and of process 1.
      const sample = answers.get('nvmlDeviceGetProcessUtilization 0 0') ?? '';
      assert.match(sample, /^0 [0-9a-f]{64} 01000000$/);
      assert.doesNotMatch(sample, /^0 01000000/);
      assert.equal(answers.get('nvmlDeviceGetProcessUtilization length'), '7 1');
      assert.equal(answers.get('nvmlDeviceGetSerial 0 0'), '0 "1651424048039"');
      const caller = await buildCaller('thread');
      const [, loads] = await makeCalls(caller, host.address, ['init', 'loads:0', 'shutdown']);
      assert.equal(loads?.text, '1 10 5 0 0');
    });
  });

  it('is refused to a guest that asks in a way that our library does not', async () => {
    const QUERY = 11;
    const [OK, INVALID] = [0, 3];
    const TEMPERATURE_V = 352;
    const [CLOCK, SERIAL, FIELDS, COMMON_ANCESTOR, SUPPORTED_MEMORY_CLOCKS] = [33, 175, 73, 188, 181];
    await withHost(simulated('w', 'h100-80gb'), async () => {
      const client = await WireClient.greeted(`${scratch.path}/w`, 2);
      const query = async (
        number: number,
        values: readonly (number | bigint)[],
        device = 0,
        bulk: Buffer = Buffer.alloc(0),
      ): Promise<[status: number, result: number | undefined, bytes: number]> => {
        const body = Buffer.alloc(56);
        body.writeUInt32LE(number, 0);
        body.writeUInt32LE(device, 4);
        for (const [i, value] of values.entries()) body.writeBigUInt64LE(BigInt(value), 8 + 8 * i);
        const reply = await client.call(QUERY, body, bulk);
        return [reply.status, reply.status === 0 ? reply.body.readInt32LE(0) : undefined, reply.bulk.length];
      };
      const refused = [INVALID, undefined, 0];
      const version = (1 << 24) | 12;
      assert.deepEqual(await query(CLOCK, [0]), [OK, 0, 8]);
      assert.deepEqual(await query(CLOCK, [0], 1), refused, 'a device of others');
      assert.deepEqual(await query(9999, [0]), [OK, 3, 0], 'a getter of a newer library');
      assert.deepEqual(await query(243, [1]), [OK, 3, 0], 'nvmlDeviceSetPowerManagementLimit');
      assert.deepEqual(await query(COMMON_ANCESTOR, [1]), refused);
      assert.deepEqual(await query(SERIAL, [0, 65537]), refused, 'more than a call may write');
      assert.deepEqual(await query(SERIAL, [0, 2n ** 64n - 1n]), refused);
      assert.deepEqual(await query(SUPPORTED_MEMORY_CLOCKS, [2n ** 62n + 1n, 1]), refused, 'an overflow');
      assert.deepEqual(await query(FIELDS, [1, 1]), refused, 'without its fields');
      assert.deepEqual(await query(FIELDS, [2n ** 32n - 1n, 1]), refused);
      assert.deepEqual(await query(TEMPERATURE_V, [version]), refused, 'without its structure');
      assert.deepEqual(await query(TEMPERATURE_V, [(9 << 24) | 12], 0, Buffer.alloc(16)), refused);
      assert.equal((await query(TEMPERATURE_V, [version], 0, Buffer.alloc(16)))[0], OK);
      assert.equal((await client.call(QUERY, Buffer.alloc(48))).status, INVALID);
      client.close();
    });
  });
});
