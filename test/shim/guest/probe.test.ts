import assert from 'node:assert/strict';
import { cp, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type ProbeReport, parseProbeReport } from '../../../agent/contracts/probe.js';
import { buildProgram, type Ended, runProgram } from '../cuda/private_programs.js';

const SOURCES = [
  ...['main', 'report', 'cuda', 'nvml', 'compute', 'sessions'].map((name) => `shim-src/probe/${name}.c`),
  ...[
    'wire/sessions',
    'wire/greeting',
    'wire/stream',
    'wire/address',
    'guest/config',
    'guest/log',
    'guest/transport',
  ].map((name) => `shim-src/${name}.c`),
  // The text of its kernels, as the build made it.
  'build/meson/compute_ptx.c',
];

describe('vgpu-probe', { concurrency: 8 }, () => {
  let program = '';
  let scratch = '';
  let library = '';

  before(async () => {
    program = await buildProgram({ name: 'vgpu-probe', sources: SOURCES });
    const built = await buildProgram({
      name: 'probe_library.so',
      sources: ['test/shim/programs/probe_library.c'],
      soname: 'libcuda.so.1',
      sanitize: 'none',
    });
    scratch = await realpath(await mkdtemp(path.join(os.tmpdir(), 'probe-')));
    await mkdir(path.join(scratch, 'both'));
    library = path.join(scratch, 'both', 'libcuda.so.570.1.2');
    await cp(built, library);
    await symlink('libcuda.so.570.1.2', path.join(scratch, 'both', 'libcuda.so.1'));
    // Another file, because the loader knows an opened file by its inode.
    await cp(built, path.join(scratch, 'both', 'libnvidia-ml.so.1'));
  });
  after(() => rm(scratch, { recursive: true, force: true }));

  async function probe(
    fault: string,
    args: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
  ): Promise<Ended & { readonly answer: ProbeReport }> {
    const ended = await runProgram(program, args, {
      env: { LD_LIBRARY_PATH: path.join(scratch, 'both'), PROBE_FAULT: fault, ...env },
      limit: 20_000,
    });
    assert.equal(ended.stderr, '');
    assert.match(ended.stdout, /^\{.*\}\n$/, 'one document on one line');
    const answer = parseProbeReport(ended.stdout);
    if ('problem' in answer) throw new Error(answer.problem);
    assert.equal(ended.code, answer.ok ? 0 : 1);
    assert.equal(answer.ok, answer.error === null);
    return { ...ended, answer };
  }

  it('tells library, driver, devices and the round trip when all is well', async () => {
    const { answer } = await probe('none', ['--json']);
    assert.equal(answer.ok, true);
    assert.equal(answer.library, library, 'the real file behind the link');
    assert.equal(answer.driver, '12.8');
    assert.deepEqual(answer.devices, [
      {
        index: 0,
        name: 'NVIDIA Test (simulated)',
        compute: '9.0',
        memory: 2 ** 33,
        pci: '0000:01:00.0',
        uuid: 'GPU-00112233-4455-6677-8899-aabbccddeeff',
      },
      {
        index: 1,
        name: 'NVIDIA Test',
        compute: '9.1',
        memory: 2 ** 34,
        pci: '0000:02:00.0',
        uuid: 'GPU-01122334-4556-6778-899a-abbccddeef00',
      },
    ]);
    assert.equal(answer.simulated, true);
    assert.equal(answer.roundTrip?.ok, true);
    assert.equal(answer.roundTrip?.bytes, 1024 * 1024);
    assert.ok(Number.isInteger(answer.roundTrip?.microseconds));
    assert.deepEqual(answer.nvml, { ok: true, driver: '570.1.2', error: null });
  });

  it('with --compute a library without modules is reported, and its memory is still judged', async () => {
    const { answer } = await probe('', ['--compute']);
    assert.equal(answer.roundTrip?.ok, true);
    assert.deepEqual(answer.compute, { ok: false, values: 0, wrong: 0, microseconds: 0 });
    assert.equal(answer.error?.step, 'dlsym');
    assert.match(answer.error?.message ?? '', / has no cuModuleLoadData$/);
  });

  it('opens the library it is given, and the NVML beside it', async () => {
    const { answer } = await probe('none', ['--library', library], { LD_LIBRARY_PATH: '/nonexistent' });
    assert.equal(answer.ok, true);
    assert.equal(answer.library, library);
    assert.equal(answer.nvml.driver, '570.1.2');
  });

  it('a missing library is a failure of dlopen, in the loader’s words', async () => {
    const { answer } = await probe('none', ['--library', '/nonexistent/libcuda.so.1']);
    assert.equal(answer.library, null);
    assert.equal(answer.error?.step, 'dlopen');
    assert.equal(answer.error?.code, null);
    assert.match(answer.error?.message ?? '', /\/nonexistent\/libcuda\.so\.1: cannot open shared object/);
  });

  it('a file that is not a library and a library without the calls give different errors', async () => {
    const text = path.join(scratch, 'text.so');
    await writeFile(text, 'not a library');
    const noElf = await probe('none', ['--library', text]);
    assert.equal(noElf.answer.error?.step, 'dlopen');
    const empty = path.join(scratch, 'empty.c');
    await writeFile(empty, 'int cuNothing(void);\nint cuNothing(void) { return 0; }\n');
    const built = await buildProgram({
      name: 'probe_empty.so',
      sources: [empty],
      soname: 'libcuda.so.1',
      sanitize: 'none',
    });
    const noCalls = await probe('none', ['--library', built]);
    assert.equal(noCalls.answer.error?.step, 'dlsym');
    assert.match(noCalls.answer.error?.message ?? '', /has no cuInit/);
    assert.equal(noCalls.answer.library, await realpath(built));
  });

  it('no device is an error though cuInit succeeded', async () => {
    const { answer } = await probe('no-device');
    assert.equal(answer.error?.step, 'cuDeviceGetCount');
    assert.equal(answer.error?.code, null);
    assert.deepEqual(answer.devices, []);
    assert.equal(answer.simulated, false);
  });

  const calls = [
    'cuInit',
    'cuDriverGetVersion',
    'cuDeviceGetCount',
    'cuDeviceGet',
    'cuDeviceGetName',
    'cuDeviceTotalMem',
    'cuDeviceGetAttribute',
    'cuDeviceGetUuid',
    'cuDeviceGetPCIBusId',
    'cuDevicePrimaryCtxRetain',
    'cuCtxSetCurrent',
    'cuMemAlloc',
    'cuMemcpyHtoD',
    'cuMemcpyDtoD',
    'cuMemcpyDtoH',
    'cuMemFree',
    'cuDevicePrimaryCtxRelease',
  ];
  for (const call of calls) {
    it(`${call} that fails is told with its number and name`, async () => {
      const { answer } = await probe(`${call}:100`);
      assert.equal(answer.error?.step, call);
      assert.equal(answer.error?.code, 100);
      assert.equal(answer.error?.name, 'CUDA_ERROR_NO_DEVICE');
      assert.equal(answer.nvml.ok, true, 'NVML is asked all the same');
    });

    it(`${call} that never returns costs the time limit and no more`, async () => {
      const { answer, milliseconds } = await probe(`${call}:hang`, ['--timeout', '2']);
      assert.equal(answer.error?.step, call);
      assert.equal(answer.error?.code, null);
      assert.equal(answer.error?.message, 'no answer within 2 s');
      assert.ok(milliseconds >= 1900 && milliseconds < 20_000, `${milliseconds} ms`);
      assert.match(answer.nvml.error ?? '', new RegExp(`not asked: ${call} did not return`));
    });
  }

  it('a result without a name is reported by its number', async () => {
    const { answer } = await probe('cuInit:4242');
    assert.equal(answer.error?.code, 4242);
    assert.equal(answer.error?.name, null);
  });

  it('a crash in the library is an answer, with what was found before it', async () => {
    const { answer } = await probe('cuMemcpyDtoH:crash');
    assert.equal(answer.error?.step, 'cuMemcpyDtoH');
    assert.match(answer.error?.message ?? '', /signal 11/);
    assert.equal(answer.devices.length, 2);
    assert.equal(answer.driver, '12.8');
    assert.equal(answer.roundTrip, null);
  });

  it('a library that ends the process is an answer', async () => {
    const { answer } = await probe('cuInit:exit');
    assert.equal(answer.error?.step, 'cuInit');
    assert.match(answer.error?.message ?? '', /ended the process with status 0/);
  });

  it('one wrong bit in what comes back is a failure', async () => {
    const { answer } = await probe('wrong-bytes');
    assert.equal(answer.error?.step, 'compare');
    assert.equal(answer.roundTrip?.ok, false);
  });

  it('a library that prints on stdout does not spoil the document', async () => {
    const { answer } = await probe('noise');
    assert.equal(answer.ok, true);
  });

  it('any bytes in a name make valid JSON', async () => {
    const { answer } = await probe('odd-name');
    assert.equal(answer.devices[0]?.name, 'A "B" \\ é \ufffd \u0001');
  });

  it('NVML has a verdict of its own', async () => {
    const failed = await probe('nvmlInit_v2:9');
    assert.equal(failed.answer.ok, true);
    assert.deepEqual(failed.answer.nvml, {
      ok: false,
      driver: null,
      error: 'nvmlInit_v2 failed with 9 (Driver Not Loaded)',
    });
    const hung = await probe('nvmlSystemGetDriverVersion:hang', ['--timeout', '4']);
    assert.equal(hung.answer.ok, true);
    assert.equal(hung.answer.nvml.ok, false);
    assert.equal(hung.answer.nvml.error, 'no answer within 4 s');
    const crashed = await probe('nvmlInit_v2:crash');
    assert.equal(crashed.answer.ok, true);
    assert.match(crashed.answer.nvml.error ?? '', /signal 11/);
  });

  it('the default limit is 10 s', async () => {
    const { milliseconds } = await probe('cuInit:hang');
    assert.ok(milliseconds > 9900 && milliseconds < 40_000, `${milliseconds} ms`);
  });

  it('leaves no process behind when it is killed while a library hangs', async () => {
    const marker = `probe-${process.pid}-${Date.now()}`;
    await runProgram(program, ['--timeout', '60'], {
      env: { LD_LIBRARY_PATH: path.join(scratch, 'both'), PROBE_FAULT: 'cuInit:hang', PROBE_MARK: marker },
      limit: 500,
    });
    const search = `grep -slz '^PROBE_MARK=${marker}' /proc/[0-9]*/environ || true`;
    for (const end = Date.now() + 20_000; ; ) {
      const left = (await runProgram('/bin/sh', ['-c', search])).stdout.trim();
      if (left === '') break;
      assert.ok(Date.now() < end, left);
    }
  });

  const misuse: readonly (readonly string[])[] = [
    ['--timeout', '0'],
    ['--timeout', '-1'],
    ['--timeout', '601'],
    ['--timeout', '1x'],
    ['--timeout', 'nan'],
    ['--unknown'],
    ['extra'],
    ['--library'],
  ];
  for (const args of misuse) {
    it(`${args.join(' ')} is a usage error`, async () => {
      const ended = await runProgram(program, args);
      assert.equal(ended.code, 2);
      assert.equal(ended.stdout, '');
      assert.notEqual(ended.stderr, '');
    });
  }

  it('help is on stdout and succeeds', async () => {
    const ended = await runProgram(program, ['--help']);
    assert.equal(ended.code, 0);
    assert.match(ended.stdout, /^usage: vgpu-probe/);
  });

  it('a stdout that is full is not a success', async () => {
    const ended = await runProgram('/bin/sh', ['-c', `${program} > /dev/full`], {
      env: { LD_LIBRARY_PATH: path.join(scratch, 'both') },
    });
    assert.equal(ended.code, 1);
    assert.match(ended.stderr, /cannot write the answer/);
  });

  it('needs none of the libraries it asks about', async () => {
    const ended = await runProgram('readelf', ['-d', program]);
    assert.doesNotMatch(ended.stdout, /NEEDED.*(cuda|nvidia)/);
  });
});
