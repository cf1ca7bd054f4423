import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { LibraryCandidate } from '../../../../agent/contracts/facts.js';
import { type ProbeReport, parseProbeReport } from '../../../../agent/contracts/probe.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { findRealGpu } from '../../../../agent/guest/vgpu-host/devices.js';
import { type HostQuestion, readHost } from '../../../../agent/guest/vgpu-host/probe.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import type { CommandOptions, CommandResult, CommandRunner } from '../../../../agent/lib/run-command.js';
import { tree } from '../support.js';

const report: ProbeReport = {
  schema: 1,
  ok: true,
  simulated: false,
  library: '/usr/lib/libcuda.so.550.163.01',
  driver: '12.4',
  devices: [
    { index: 0, name: 'NVIDIA L40S', compute: '8.9', memory: 48e9, pci: '0000:01:00.0', uuid: 'GPU-1' },
  ],
  roundTrip: { bytes: 1048576, ok: true, microseconds: 300 },
  nvml: { ok: true, driver: '550.163.01', error: null },
  host: null,
  error: null,
};
const noDevice: ProbeReport = {
  ...report,
  ok: false,
  devices: [],
  roundTrip: null,
  error: {
    kind: 'call',
    step: 'cuInit',
    code: 100,
    name: 'CUDA_ERROR_NO_DEVICE',
    message: 'cuInit failed with 100 (CUDA_ERROR_NO_DEVICE)',
  },
};

interface Call {
  readonly file: string;
  readonly args: readonly string[];
  readonly options: CommandOptions | undefined;
}

/** A probe that says what it is told to say: there is no real GPU and no broken probe where tests run. */
function probe(answer: (library: string) => unknown): CommandRunner & { readonly calls: Call[] } {
  const calls: Call[] = [];
  return {
    calls,
    run: async (file, args, options) => {
      calls.push({ file, args, options });
      const said = answer(args[1] ?? '');
      if (said instanceof Error) throw said;
      const result: CommandResult = {
        code: 0,
        signal: null,
        stdout: Buffer.from(typeof said === 'string' ? said : JSON.stringify(said)),
        stderr: Buffer.alloc(0),
        timedOut: said === 'slow',
      };
      return result;
    },
  };
}

describe('probe-report', () => {
  it('takes the document of the contract', () => {
    for (const good of [report, noDevice]) {
      assert.deepEqual(parseProbeReport(`${JSON.stringify(good)}\n`), good);
    }
  });

  it('takes nothing else', () => {
    for (const text of [
      '',
      'null',
      '[]',
      '{}',
      '{"schema":1}',
      JSON.stringify({ ...report, schema: 2 }),
      JSON.stringify({ ...report, ok: 'true' }),
      JSON.stringify({ ...report, devices: [{ index: 0 }] }),
      JSON.stringify({ ...report, nvml: null }),
      JSON.stringify({ ...report, error: {} }),
      `${JSON.stringify(report)}{}`,
    ]) {
      assert.ok('problem' in parseProbeReport(text), text.slice(0, 60));
    }
  });
});

describe('host', () => {
  const sources = {
    flag: 'unix:/run/x.sock',
    environment: undefined,
    guestConf: null,
    defaultSocketExists: false,
  };
  const shim: HostQuestion['shim'] = {
    files: ['libcuda.so.1', 'vgpu-probe'].map((name) => ({
      name,
      source: `/build/${name}`,
      sha256: '',
      size: 0,
      mode: 0,
    })),
  };
  const ask = (runner: CommandRunner) => readHost(runner, { sources, shim, timeoutMs: 1500 });

  it('asks through our own library, at the address that counts', async () => {
    const runner = probe(() => ({ ...report, simulated: true }));
    const host = await ask(runner);
    assert.ok(host.answer.kind === 'answers');
    assert.equal(host.answer.device, 'NVIDIA L40S');
    assert.equal(host.answer.simulated, true);
    const [call] = runner.calls;
    assert.deepEqual(
      [call?.file, ...(call?.args ?? [])],
      ['/build/vgpu-probe', '--library', '/build/libcuda.so.1', '--json', '--timeout', '1.5'],
    );
    assert.equal(call?.options?.env?.['VGPU_HOST'], 'unix:/run/x.sock');
    assert.ok((call?.options?.timeoutMs ?? 0) > 1500);
  });

  for (const [what, answer, message] of [
    ['no device', noDevice, /^cuInit failed with 100 \(CUDA_ERROR_NO_DEVICE\)$/],
    [
      'a lost round trip',
      { ...report, ok: false, roundTrip: { bytes: 1, ok: false, microseconds: 1 } },
      /other bytes/,
    ],
    ['garbage', 'Segmentation fault', /it is not JSON: "Segmentation fault"/],
    ['nothing in time', 'slow', /did not end within 1500 ms/],
    [
      'a probe that does not start',
      new VgpuError('cannot run "/build/vgpu-probe": no such program', { kind: 'failed', operation: 'run' }),
      /no such program/,
    ],
  ] as const) {
    it(`is unreachable with ${what}, and says so`, async () => {
      const host = await ask(probe(() => answer));
      assert.ok(host.answer.kind === 'unreachable');
      assert.match(host.answer.message, message);
    });
  }

  it('does not query a bad address, nor when queries are switched off', async () => {
    const runner = probe(() => report);
    const bad = await readHost(runner, {
      sources: { ...sources, flag: null, guestConf: 'host=x' },
      shim,
      timeoutMs: 1,
    });
    assert.ok(bad.answer.kind === 'unreachable');
    assert.match(bad.answer.message, /guest\.conf/);
    const unasked = await readHost(runner, { sources, shim: null, timeoutMs: 1 });
    assert.deepEqual(unasked.answer, { kind: 'unasked' });
    assert.equal(runner.calls.length, 0);
  });
});

describe('real-gpu', () => {
  const candidate = (file: string, changes: Partial<LibraryCandidate> = {}): LibraryCandidate => ({
    path: file,
    library: 'libcuda',
    state: { kind: 'absent' },
    resolution: { kind: 'file', realPath: file, steps: [] },
    ownerOfPath: null,
    ownerOfFile: null,
    elf: {
      class: 64,
      machine: 'x86_64',
      type: 'dyn',
      soname: 'libcuda.so.1',
      needed: [],
      provenance: null,
    },
    vendor: 'nvidia',
    alternative: null,
    ...changes,
  });
  const withGpu = { 'proc/driver/nvidia/gpus/0000:01:00.0': {}, 'dev/nvidia0': '' };
  const find = (
    root: string,
    runner: CommandRunner,
    candidates: readonly LibraryCandidate[],
    program: string | null = '/probe',
  ) => findRealGpu(new Root(root), runner, { candidates, architecture: 'x86_64', program, timeoutMs: 100 });

  it('is none without a trace of the driver, and no program is run for it', async (context) => {
    const runner = probe(() => report);
    const root = tree(context, { 'dev/nvidiactl': '', 'dev/nvidia-uvm': '', 'dev/null': '' });
    assert.deepEqual(await find(root, runner, [candidate('/a')]), { kind: 'none' });
    assert.equal(runner.calls.length, 0);
  });

  it('works when NVIDIA’s own library lists a device', async (context) => {
    const runner = probe(() => report);
    const root = tree(context, withGpu);
    const found = await find(root, runner, [
      candidate('/a/libcuda.so.550.163.01'),
      candidate('/a/libcuda.so.550.163.01'),
    ]);
    assert.deepEqual(found, {
      kind: 'present',
      works: true,
      evidence: `${root}/a/libcuda.so.550.163.01 lists NVIDIA L40S, CUDA 12.4`,
    });
    assert.equal(runner.calls[0]?.options?.env?.['VGPU_HOST'], undefined);
  });

  it('works when its memory is full but the device is listed', async (context) => {
    const full = { ...report, ok: false, roundTrip: null, error: { ...noDevice.error, step: 'cuMemAlloc' } };
    const found = await find(
      tree(context, withGpu),
      probe(() => full),
      [candidate('/a')],
    );
    assert.ok(found.kind === 'present' && found.works);
  });

  it('never takes our shim, another’s library, the wrong architecture or NVML for the driver', async (context) => {
    const runner = probe(() => report);
    const found = await find(tree(context, withGpu), runner, [
      candidate('/ours', { vendor: 'vgpu' }),
      candidate('/foreign', { vendor: 'foreign' }),
      candidate('/nvml', { library: 'libnvidia-ml' }),
      candidate('/arm', { elf: { ...(candidate('/x').elf ?? assert.fail()), machine: 'aarch64' } }),
      candidate('/gone', { resolution: { kind: 'dangling', missing: '/x', steps: [] } }),
    ]);
    assert.ok(found.kind === 'present' && !found.works);
    assert.match(found.evidence, /no libcuda of NVIDIA's/);
    assert.equal(runner.calls.length, 0);
  });

  it('never takes a simulated device for a real one', async (context) => {
    const found = await find(
      tree(context, withGpu),
      probe(() => ({ ...report, simulated: true })),
      [candidate('/a')],
    );
    assert.ok(found.kind === 'present' && !found.works);
    assert.match(found.evidence, /simulated/);
  });

  it('asks the next library when one fails, and tells every failure when all do', async (context) => {
    const root = tree(context, withGpu);
    const second = await find(
      root,
      probe((file) => (file.endsWith('/b') ? report : noDevice)),
      [candidate('/a'), candidate('/b')],
    );
    assert.ok(second.kind === 'present' && second.works);
    const none = await find(
      root,
      probe(() => noDevice),
      [candidate('/a'), candidate('/b')],
    );
    assert.ok(none.kind === 'present' && !none.works);
    assert.match(
      none.evidence,
      /gpus\/0000:01:00\.0 exists, but .*\/a: cuInit failed.*; .*\/b: cuInit failed/,
    );
  });

  it('is present and not known to work when it was not asked', async (context) => {
    const found = await find(
      tree(context, withGpu),
      probe(() => report),
      [candidate('/a')],
      null,
    );
    assert.ok(found.kind === 'present' && !found.works);
    assert.match(found.evidence, /not queried/);
  });
});
