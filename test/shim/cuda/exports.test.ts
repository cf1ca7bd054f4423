import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { parseDescription } from '../../../shim-src/api/parse.js';
import { builtFile, SHIM, scratchDirectory, startHost, startShell, VARIANT } from '../shim_host.js';
import { ROOT, runProgram } from './private_programs.js';

const run = promisify(execFile);
const long = process.env['VGPU_TEST_LONG'] === '1';
const API = path.join(ROOT, 'shim-src/api');

async function tool(name: string, ...args: readonly string[]): Promise<string> {
  return (await run(name, args, { maxBuffer: 64 * 1024 * 1024 })).stdout;
}

const LIBRARIES = [
  {
    file: 'libcuda.so.1',
    list: 'libcuda.exports',
    description: 'cuda.api',
    component: 'libcuda',
    refusal: 801,
  },
  {
    file: 'libnvidia-ml.so.1',
    list: 'libnvidia-ml.exports',
    description: 'nvml.api',
    component: 'libnvidia-ml',
    refusal: 3,
  },
] as const;

for (const { file, list, description, component, refusal } of LIBRARIES) {
  describe(file, () => {
    const expected = readFileSync(path.join(API, list), 'utf8').trim().split('\n');

    it('exports every name of the real library and nothing else', async () => {
      const lines = (await tool('nm', '-D', '--defined-only', builtFile(file))).trim().split('\n');
      const exported = lines.map((line) => line.split(' ')[2] ?? '').sort();
      assert.deepEqual(exported, [...expected].sort());
    });

    it('is hardened, named and bound to itself', async () => {
      const dynamic = await tool('readelf', '-dW', builtFile(file));
      assert.match(dynamic, new RegExp(`SONAME.*\\[${file.replaceAll('.', '\\.')}\\]`));
      assert.match(dynamic, /FLAGS.*BIND_NOW/);
      assert.match(dynamic, /\(SYMBOLIC\)/);
      assert.match(dynamic, /FLAGS_1.*NODELETE/);
      assert.doesNotMatch(dynamic, /RPATH|RUNPATH|TEXTREL/);
      const needed = [...dynamic.matchAll(/NEEDED.*\[(.+?)\]/g)].map(([, name]) => name ?? '');
      if (VARIANT === 'shim') {
        assert.deepEqual(
          needed.filter((name) => !/^(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux-.*)$/.test(name)),
          [],
        );
      }
      const segments = await tool('readelf', '-lW', builtFile(file));
      assert.match(segments, /GNU_STACK.* RW /);
      assert.match(segments, /GNU_RELRO/);
      assert.doesNotMatch(segments, /LOAD.* RWE /);
      assert.doesNotMatch(await tool('readelf', '-VW', builtFile(file)), /Version definition/);
    });

    it('does nothing when it is loaded', {
      skip: VARIANT === 'shim' ? false : 'the sanitizers have constructors',
    }, async () => {
      // One entry of each is the compiler's own (frame_dummy). A constructor of the shim would be another; at the end
      // the library says goodbye to the host, if it has a session.
      const dynamic = await tool('readelf', '-dW', builtFile(file));
      assert.match(dynamic, /INIT_ARRAYSZ\)\s+8 \(bytes\)/);
      assert.match(dynamic, /FINI_ARRAYSZ\)\s+16 \(bytes\)/);
    });

    it('says in its note whose it is', async () => {
      const notes = await tool('readelf', '-nW', builtFile(file));
      const hex = /VGPU\s+0x[0-9a-f]+\s+NT_VERSION.*?description data: ([0-9a-f ]+)/s.exec(notes)?.[1] ?? '';
      const text = Buffer.from(hex.replaceAll(/\s/g, ''), 'hex').toString();
      assert.deepEqual(JSON.parse(text), { component, version: '0.1.0', wire: 1 });
    });

    it('fails closed at every call that is not implemented, whatever the arguments', async () => {
      const entries = parseDescription(description, readFileSync(path.join(API, description), 'utf8'));
      const refused = entries
        .filter(({ carriage }) => carriage.kind === 'refused')
        .map(({ symbol }) => symbol);
      assert.ok(refused.length > 100);
      const child = run(builtFile('programs/sweep_exports'), [builtFile(file)], {
        env: { ...process.env, VGPU_HOST: 'unix:/nonexistent' },
      });
      child.child.stdin?.end(`${refused.join('\n')}\n`);
      const { stdout, stderr } = await child;
      assert.deepEqual(
        stdout.trim().split('\n'),
        refused.map((symbol) => `${symbol} ${refusal}`),
      );
      assert.equal(stderr, '');
    });
  });
}

describe('cuGetProcAddress', () => {
  const entries = parseDescription('cuda.api', readFileSync(path.join(API, 'cuda.api'), 'utf8'));
  const rows = entries.flatMap(({ symbol, proc }) => (proc === undefined ? [] : [{ symbol, ...proc }]));

  it('knows as many names and signatures as the CUDA 13.0 headers declare, and 51 of newer ones', () => {
    assert.equal(rows.length, 671 + 51);
    assert.equal(new Set(rows.map(({ base }) => base)).size, 477 + 38);
  });

  it('finds every one at its version, with each flag, as the rule says', async () => {
    const shell = startShell({ VGPU_HOST: 'unix:/nonexistent' });
    /** The rule, written down a second time and from the rows alone. */
    const rule = (base: string, version: number, flag: number): string => {
      const known = rows.filter((row) => row.base === base);
      const usable = known.filter((row) => row.version <= version && (flag === 2 || !row.perThread));
      const preferred = usable.filter((row) => row.perThread);
      const [best] = (preferred.length > 0 ? preferred : usable).sort((a, b) => b.version - a.version);
      if (best !== undefined) return `0 0 ${best.symbol}`;
      return known.length > 0 ? '0 2 -' : '0 1 -';
    };
    try {
      for (const { base, version } of rows) {
        for (const flag of [0, 1, 2]) {
          for (const asked of [version, version - 1, 13_000, 13_050]) {
            const answer = await shell.ask(`proc ${base} ${asked} ${flag}`);
            assert.equal(
              `${answer.result} ${answer.values.join(' ')}`,
              rule(base, asked, flag),
              `${base} ${asked} ${flag}`,
            );
          }
        }
      }
    } finally {
      shell.kill();
    }
  });

  it('gives the entry points that matter by name', async () => {
    const shell = startShell({ VGPU_HOST: 'unix:/nonexistent' });
    try {
      for (const [ask, expected] of [
        ['cuCtxCreate 11040 0', 'cuCtxCreate_v3'],
        ['cuCtxCreate 12040 0', 'cuCtxCreate_v3'],
        ['cuCtxCreate 13000 0', 'cuCtxCreate_v4'],
        ['cuCtxCreate 3020 0', 'cuCtxCreate_v2'],
        ['cuMemAlloc 13000 2', 'cuMemAlloc_v2'],
        ['cuMemcpyHtoD 13000 0', 'cuMemcpyHtoD_v2'],
        ['cuMemcpyHtoD 13000 2', 'cuMemcpyHtoD_v2_ptds'],
        ['cuMemcpyHtoDAsync 12000 2', 'cuMemcpyHtoDAsync_v2_ptsz'],
        ['cuGetProcAddress 11030 0', 'cuGetProcAddress'],
        ['cuGetProcAddress 12000 0', 'cuGetProcAddress_v2'],
        ['cuDeviceGetUuid 9020 0', 'cuDeviceGetUuid'],
        ['cuDeviceGetUuid 11040 0', 'cuDeviceGetUuid_v2'],
        ['cuStreamGetCaptureInfo 12030 0', 'cuStreamGetCaptureInfo_v3'],
        ['cuLaunchKernel 4000 0', 'cuLaunchKernel'],
      ] as const) {
        assert.deepEqual((await shell.ask(`proc ${ask}`)).values, ['0', expected], ask);
      }
      for (const ask of [
        "'' 13000 0",
        'cuMemAlloc_v2 13000 0',
        'cuNoSuchThing 13000 0',
        'cudbgMain 13000 0',
      ]) {
        const answer = await shell.ask(`proc ${ask}`);
        assert.deepEqual([answer.result, ...answer.values], [0, '1', '-'], ask);
      }
      assert.equal((await shell.ask('proc cuInit 13000 3')).result, 1);
    } finally {
      shell.kill();
    }
  });
});

describe('the build', { skip: VARIANT === 'shim' ? false : 'a build of its own' }, () => {
  it('gives the same bytes in another directory', async () => {
    const scratch = scratchDirectory();
    try {
      const copy = path.join(scratch.path, 'elsewhere', 'tree');
      mkdirSync(copy, { recursive: true });
      for (const name of [
        'shim-src',
        'test/shim/programs',
        'dist/shim-src',
        'scripts',
        'package.json',
        'profiles/devices',
      ]) {
        cpSync(path.join(ROOT, name), path.join(copy, name), { recursive: true, preserveTimestamps: true });
      }
      // The build writes a document and a contract.
      for (const written of ['docs/reference', 'agent/contracts'])
        mkdirSync(path.join(copy, written), { recursive: true });
      mkdirSync(path.join(copy, 'build'));
      const build = path.join(copy, 'build/meson');
      const names = ['libnvidia-ml.so.1', 'vgpu-probe', 'vgpu-watch'];
      if (process.arch === 'x64') names.push('libvgpu-trace.so');
      // The same rules build libcuda and the host, which take ten times as long to compile as all of these.
      const commands = long
        ? [['bash', path.join(copy, 'scripts/build-shim')]]
        : [
            ['meson', 'setup', build, path.join(copy, 'shim-src')],
            ['ninja', '-C', build, ...names],
          ];
      for (const [program = '', ...args] of commands) {
        const built = await runProgram(program, args, { limit: 900_000, env: { SOURCE_DATE_EPOCH: '0' } });
        assert.equal(built.code, 0, built.stdout + built.stderr);
      }
      for (const name of long ? [...names, 'libcuda.so.1', 'vgpu-hostd'] : names) {
        const [here, there] = [
          readFileSync(builtFile(name)),
          readFileSync(path.join(copy, long ? 'build/shim' : 'build/meson', name)),
        ];
        assert.ok(here.equals(there), `${name} differs`);
      }
    } finally {
      scratch.remove();
    }
  });

  it('does nothing the second time', async () => {
    const before = readFileSync(builtFile('libcuda.so.1'));
    const again = await runProgram('bash', [path.join(ROOT, 'scripts/build-shim')], { limit: 900_000 });
    assert.equal(again.code, 0, again.stderr);
    assert.ok(readFileSync(builtFile('libcuda.so.1')).equals(before));
  });
});

describe('two libraries with the same names', {
  skip: VARIANT === 'shim' ? false : 'a preload comes before the sanitizer',
}, () => {
  it('do not take over each other: preloaded beside a stranger, ours answers its own calls', async () => {
    // Loaded twice under two names, each copy keeps to itself and both work.
    const scratch = scratchDirectory();
    const host = await startHost({ listen: `unix:${scratch.path}/s` });
    const copy = path.join(scratch.path, 'libcuda-other.so');
    cpSync(path.join(SHIM, 'libcuda.so.1'), copy);
    const shell = startShell({ VGPU_HOST: host.address, LD_PRELOAD: copy });
    try {
      assert.equal((await shell.ask('use 4')).result, 0);
    } finally {
      shell.kill();
      await host.stop();
      scratch.remove();
    }
  });
});
