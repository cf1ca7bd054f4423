import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { type FatEntry, fatBinary } from '../cuda/fat_binary.js';
import { ROOT } from '../cuda/private_programs.js';
import {
  askAll,
  type Host,
  isIdle,
  SHIM,
  type Shell,
  scratchDirectory,
  startChain,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';

const FIXTURES = path.join(ROOT, 'test/fixtures/code');
const PTX_FILE = path.join(FIXTURES, 'kernels.ptx');
const CUBIN_FILE = path.join(FIXTURES, 'kernels.sm_90.cubin');
const PTX = readFileSync(PTX_FILE);
const CUBIN = readFileSync(CUBIN_FILE);
const PORT = await freePort();

/** The declarations of kernels.cu, as every image made of it reports them. */
const LAYOUTS = {
  nothing: [],
  add: ['0:8', '8:8', '16:8', '24:4'],
  mixed: ['0:1', '2:2', '4:4', '8:8', '16:16', '32:37', '72:8'],
  large: ['0:1', '1:4000', '4002:2', '4008:8'],
} as const;

interface Launch {
  readonly kernel: string;
  readonly grid: readonly number[];
  readonly block: readonly number[];
  readonly shared: number;
  readonly parameters: string;
  readonly attributes: readonly { readonly id: number; readonly value: string }[];
  readonly result: number;
}

/** Bytes that differ everywhere; padding between parameters is the shim's to choose, so it is zero here. */
function block(layout: readonly string[]): string {
  const places = layout.map((text) => text.split(':').map(Number));
  const last = places.at(-1) ?? [0, 0];
  const bytes = Buffer.alloc((last[0] ?? 0) + (last[1] ?? 0));
  for (const [offset = 0, size = 0] of places) {
    for (let i = 0; i < size; i++) bytes[offset + i] = (offset * 7 + i * 13 + 1) & 0xff;
  }
  return bytes.toString('hex');
}

/** The directory of NVIDIA's tools for cubins. Triton's wheels contain some. */
const TOOLS = process.env['VGPU_TEST_CUDA_TOOLS'] ?? '/usr/local/cuda/bin';
const noTools = ['cuobjdump', 'nvdisasm'].every((tool) => existsSync(path.join(TOOLS, tool)))
  ? false
  : `no cuobjdump and nvdisasm in ${TOOLS} (VGPU_TEST_CUDA_TOOLS names another directory)`;

/** A linked image whose text is hidden: the host reads the rest as it reads the cubins of NVIDIA's assembler. */
function withoutText(linked: Buffer): Buffer {
  const bytes = Buffer.from(linked);
  bytes[8] = 8; // EI_ABIVERSION of CUDA 13
  const name = bytes.indexOf('.vgpu.ptx\0');
  assert.ok(name > 0);
  bytes.write('.hidden__', name);
  return bytes;
}

for (const transport of ['unix', 'tcp', 'a host with --device cuda'] as const) {
  describe(`code over ${transport}`, () => {
    const scratch = scratchDirectory();
    const log = path.join(scratch.path, 'launches');
    let host: Host;
    const shells: Shell[] = [];
    const open = async (): Promise<Shell> => {
      const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
      shells.push(shell);
      await askAll(shell, ['begin']);
      return shell;
    };
    const launches = (): Launch[] =>
      readFileSync(log, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Launch);
    const image = (name: string, bytes: Buffer): string => {
      const file = path.join(scratch.path, name);
      writeFileSync(file, bytes);
      return file;
    };
    const container = (name: string, entries: readonly FatEntry[]): string => image(name, fatBinary(entries));

    before(async () => {
      const args = ['--software-kernels', 'skip', '--launch-log', log];
      const listen = transport === 'unix' ? `unix:${scratch.path}/s` : `tcp:127.0.0.1:${PORT}`;
      host =
        transport === 'unix' || transport === 'tcp'
          ? await startHost({ listen, args })
          : await startChain(scratch.path, args);
    });
    afterEach(async () => {
      for (const shell of shells.splice(0)) shell.kill();
      await until('the sessions to end', () => isIdle(host), 20_000);
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });

    for (const [form, load] of [
      ['PTX text', () => `load 0 ${PTX_FILE}`],
      ['a cubin', () => `load 0 ${CUBIN_FILE}`],
      [
        'a fat binary',
        () => `load 0 ${container('plain', [{ kind: 'elf', architecture: 90, payload: CUBIN }])}`,
      ],
      [
        'a wrapper around LZ4',
        () =>
          `load 0 ${container('lz4', [{ kind: 'ptx', architecture: 75, payload: PTX, packed: 'lz4' }])} wrapper 1`,
      ],
      [
        'a wrapper of version 2 with as many objects as NCCL has',
        () =>
          `load 0 ${container('many', [{ kind: 'elf', architecture: 90, payload: CUBIN }])} wrapper 2 300`,
      ],
      [
        'a wrapper of version 2 around zstd',
        () =>
          `load 0 ${container('zstd', [{ kind: 'elf', architecture: 90, payload: CUBIN, packed: 'zstd' }])} wrapper 2`,
      ],
    ] as const) {
      it(`finds kernels, their parameters and variables in ${form}`, async () => {
        const shell = await open();
        await askAll(shell, [load()]);
        assert.deepEqual((await shell.ask('names 0')).values, ['4', 'add', 'large', 'mixed', 'nothing']);
        for (const [name, layout] of Object.entries(LAYOUTS)) {
          await askAll(shell, [`function 1 0 ${name}`]);
          assert.deepEqual((await shell.ask('parameters 1')).values, layout, name);
        }
        assert.equal((await shell.ask('function 1 0 absent')).result, 500);
        assert.deepEqual((await shell.ask('global 0 counter')).values.slice(0, 2), ['4', '07000000']);
        const table = (await shell.ask('global 0 table')).values;
        assert.deepEqual(table.slice(0, 2), ['64', `0000c03f000000c0${'00'.repeat(56)}`]);
        assert.deepEqual((await shell.ask('global 0 zeros')).values[0], '800');
        assert.equal((await shell.ask('global 0 absent')).result, 500);
        assert.equal((await shell.ask(`free ${table[2]}`)).result, 1, 'a variable is not to be freed');
        await askAll(shell, ['unload 0']);
        assert.equal((await shell.ask('names 0')).result, 400);
        assert.equal((await shell.ask('attribute 1 0')).result, 400, 'functions go with their module');
      });
    }

    /** Writes the linked PTX text to a file. */
    const linked = async (shell: Shell, name: string): Promise<string> => {
      const file = path.join(scratch.path, name);
      await askAll(shell, [`link 1 ${PTX_FILE} ${file}`]);
      return file;
    };

    for (const [form, rewrite] of [
      ['a linked image', (bytes: Buffer) => bytes],
      [
        'a fat binary of a linked image',
        (bytes: Buffer) => fatBinary([{ kind: 'elf', architecture: 90, payload: bytes, packed: 'lz4' }]),
      ],
      ['the parts of a linked image that a cubin has', withoutText],
    ] as const) {
      it(`finds kernels, their parameters, attributes and variables in ${form}`, async () => {
        const shell = await open();
        const file = await linked(shell, 'linked.cubin');
        const rewritten = image('rewritten', rewrite(readFileSync(file)));
        await askAll(shell, [`load 0 ${rewritten}`, `load 3 ${PTX_FILE}`]);
        assert.deepEqual((await shell.ask('names 0')).values, ['4', 'add', 'large', 'mixed', 'nothing']);
        for (const [name, layout] of Object.entries(LAYOUTS)) {
          await askAll(shell, [`function 1 0 ${name}`, `function 2 3 ${name}`]);
          assert.deepEqual((await shell.ask('parameters 1')).values, layout, name);
          for (const attribute of [0, 1, 2, 3, 4, 6, 8, 10, 11]) {
            assert.deepEqual(
              (await shell.ask(`attribute 1 ${attribute}`)).values,
              (await shell.ask(`attribute 2 ${attribute}`)).values,
              `${name}, attribute ${attribute}`,
            );
          }
        }
        assert.deepEqual((await shell.ask('global 0 counter')).values.slice(0, 2), ['4', '07000000']);
        const table = (await shell.ask('global 0 table')).values;
        assert.deepEqual(table.slice(0, 2), ['64', `0000c03f000000c0${'00'.repeat(56)}`]);
        assert.deepEqual((await shell.ask('global 0 zeros')).values[0], '800');
      });
    }

    it('links to a file that readelf reads without a warning', async () => {
      const file = await linked(await open(), 'linked.cubin');
      const { stdout, stderr } = spawnSync('readelf', ['-aW', file], { encoding: 'utf8' });
      assert.equal(stderr, '');
      assert.match(stdout, /Machine: +NVIDIA CUDA architecture/);
      for (const name of Object.keys(LAYOUTS)) {
        assert.match(stdout, new RegExp(`FUNC +GLOBAL .* ${name}$`, 'm'));
        assert.match(stdout, new RegExp(` \\.text\\.${name} `));
        assert.match(stdout, new RegExp(` \\.nv\\.info\\.${name} `));
      }
      assert.match(stdout, / 800 OBJECT +GLOBAL .* zeros$/m);
      assert.match(stdout, / \.nv\.constant3 /);
      const text = spawnSync('readelf', ['-p', '.vgpu.ptx', file], { encoding: 'utf8' }).stdout;
      assert.match(text, /\.visible \.entry mixed\(/);
    });

    it("links to a file that NVIDIA's cuobjdump and nvdisasm take apart", { skip: noTools }, async () => {
      const file = await linked(await open(), 'linked.cubin');
      const told = (tool: string, ...options: string[]): string => {
        const { status, stdout, stderr } = spawnSync(path.join(TOOLS, tool), [...options, file], {
          encoding: 'utf8',
        });
        assert.deepEqual([status, stderr], [0, ''], `${tool} ${options.join(' ')}`);
        return stdout;
      };
      const sections = told('cuobjdump', '-elf');
      for (const name of Object.keys(LAYOUTS)) assert.match(sections, new RegExp(` \\.text\\.${name}$`, 'm'));
      assert.match(told('cuobjdump', '-symbols'), /STT_FUNC +STB_GLOBAL STO_ENTRY +mixed$/m);
      assert.match(told('cuobjdump', '-res-usage'), /Function add:\s+REG:\d+ STACK:0 SHARED:1280 /);
      assert.match(told('nvdisasm'), /EIATTR_KPARAM_INFO/);
    });

    it('tells attributes as the compiler wrote them', async () => {
      const shell = await open();
      await askAll(shell, [`load 0 ${CUBIN_FILE}`, 'function 1 0 mixed', 'function 2 0 add']);
      const read = async (slot: number, attribute: number): Promise<number> =>
        Number((await shell.ask(`attribute ${slot} ${attribute}`)).values[0]);
      assert.equal(await read(1, 0), 256, 'launch bounds');
      assert.equal(await read(2, 0), 1024);
      assert.equal(await read(2, 1), 256, 'static shared memory');
      assert.equal(await read(2, 2), 64, 'constants');
      assert.equal(await read(2, 6), 90, 'binary version');
      assert.ok((await read(2, 4)) > 0, 'registers');
      assert.equal(await read(2, 8), 49152 - 256);
      assert.equal((await shell.ask('attribute 2 16')).result, 1);
      assert.equal((await shell.ask('attribute 2 -1')).result, 1);
      await askAll(shell, ['set 2 8 200000']);
      assert.equal(await read(2, 8), 200000);
      assert.equal((await shell.ask('set 2 8 232448')).result, 1, 'more than the device has beside static');
      assert.equal((await shell.ask('set 2 1 5')).result, 1, 'not to be set');
    });

    it('sends parameters as the program gave them, whatever their size and form', async () => {
      const shell = await open();
      await askAll(shell, [`load 0 ${CUBIN_FILE}`, `library 1 ${PTX_FILE}`, 'names 0']);
      const before_ = launches().length;
      for (const [name, layout] of Object.entries(LAYOUTS)) {
        const bytes = block(layout);
        await askAll(shell, [
          `function 2 0 ${name}`,
          `launch 2 5 4 3 16 2 1 0 ${bytes || '-'}`,
          `launch 2 1 1 1 32 1 1 128 ${bytes || '-'} buffer`,
          `kernel 3 1 ${name}`,
          `launch 3 2 1 1 64 1 1 0 ${bytes || '-'}`,
          'as_function 4 3',
          `launch 4 2 1 1 64 1 1 0 ${bytes || '-'} cooperative`,
          `launch 4 2 1 1 64 1 1 0 ${bytes || '-'} ex 6 1`,
          'sync',
        ]);
        const made = launches().slice(-5);
        assert.deepEqual(
          made.map((launch) => [launch.kernel, launch.parameters, launch.result]),
          made.map(() => [name, bytes, 0]),
        );
        assert.deepEqual(made[0]?.grid, [5, 4, 3]);
        assert.deepEqual(made[0]?.block, [16, 2, 1]);
        assert.equal(made[1]?.shared, 128);
        assert.deepEqual(made[3]?.attributes, [{ id: 2, value: `01${'00'.repeat(63)}` }]);
        assert.deepEqual(made[4]?.attributes, [{ id: 6, value: `01${'00'.repeat(63)}` }]);
      }
      assert.equal(launches().length - before_, 20);
    });

    it('sends zeros for the end of the parameters that a buffer does not have', async () => {
      const shell = await open();
      const bytes = block(LAYOUTS.mixed);
      const given = bytes.slice(0, 10);
      await askAll(shell, [
        `load 0 ${CUBIN_FILE}`,
        'function 1 0 mixed',
        `launch 1 1 1 1 1 1 1 0 ${given} buffer`,
        'sync',
      ]);
      assert.equal(launches().at(-1)?.parameters, given.padEnd(bytes.length, '0'));
    });

    it('refuses launches that no device could carry out, at once', async () => {
      const shell = await open();
      await askAll(shell, [`load 0 ${CUBIN_FILE}`, 'function 1 0 mixed', 'function 2 0 nothing']);
      const bytes = block(LAYOUTS.mixed);
      const before_ = launches().length;
      const refusals: readonly (readonly [string, number])[] = [
        [`launch 1 0 1 1 1 1 1 0 ${bytes}`, 1],
        [`launch 1 1 1 1 0 1 1 0 ${bytes}`, 1],
        [`launch 1 1 65536 1 1 1 1 0 ${bytes}`, 1],
        [`launch 1 1 1 1 1 1 65 0 ${bytes}`, 1],
        [`launch 1 1 1 1 1024 2 1 0 ${bytes}`, 1],
        [`launch 1 1 1 1 257 1 1 0 ${bytes}`, 1], // .maxntid: numba's tests expect the same of a GPU
        [`launch 1 1 1 1 1 1 1 49153 ${bytes}`, 1],
        [`launch 63 1 1 1 1 1 1 0 ${bytes}`, 400],
      ];
      for (const [line, result] of refusals) assert.equal((await shell.ask(line)).result, result, line);
      await askAll(shell, ['sync']);
      assert.equal(launches().length, before_, 'none of them reached the host');
    });

    it('checks clusters and attributes at the host, and tells at the next wait', async () => {
      const shell = await open();
      await askAll(shell, [`load 0 ${CUBIN_FILE}`, 'function 1 0 nothing']);
      const cluster = (x: number, y: number): string => String((BigInt(y) << 32n) | BigInt(x));
      const outcome = async (line: string): Promise<number> => {
        const answer = await shell.ask(line);
        return answer.result === 0 ? (await shell.ask('sync')).result : answer.result;
      };
      assert.equal(await outcome(`launch 1 8 1 1 32 1 1 0 - ex 4 ${cluster(4, 1)} 1`), 0);
      assert.equal(await outcome(`launch 1 6 1 1 32 1 1 0 - ex 4 ${cluster(4, 1)} 1`), 912, 'not divisible');
      assert.equal(await outcome(`launch 1 16 1 1 32 1 1 0 - ex 4 ${cluster(16, 1)} 1`), 912);
      await askAll(shell, ['set 1 14 1']);
      assert.equal(await outcome(`launch 1 16 1 1 32 1 1 0 - ex 4 ${cluster(16, 1)} 1`), 0, 'non-portable');
      assert.equal(await outcome('launch 1 1 1 1 32 1 1 0 - ex 99 1'), 1, 'no such attribute');
      assert.equal(
        await outcome('launch 1 1 1 1 32 1 1 0 - ex 13 1'),
        801,
        'needs a device that updates nodes',
      );
      assert.equal(await outcome('launch 1 100000 1 1 1024 1 1 0 - cooperative'), 720);
      assert.equal(await outcome('launch 1 264 1 1 1024 1 1 0 - cooperative'), 0);
      assert.equal(
        await outcome('launch 1 265 1 1 1024 1 1 0 - cooperative'),
        720,
        'two of these fit each of 132',
      );
    });

    it('takes of a fat binary what fits the device, and says when nothing does', async () => {
      const shell = await open();
      const elf = (architecture: number, flags = 0): FatEntry => ({
        kind: 'elf',
        architecture,
        payload: CUBIN,
        flags,
      });
      const ptx = (architecture: number, flags = 0): FatEntry => ({
        kind: 'ptx',
        architecture,
        payload: PTX,
        flags,
      });
      const cases: readonly (readonly [string, readonly FatEntry[], number])[] = [
        ['other', [elf(80), elf(100)], 209],
        ['later', [ptx(100)], 209],
        ['specific', [elf(90, 0x100000), elf(80)], 0],
        ['older-specific', [ptx(80, 0x100000)], 209],
        ['family', [ptx(90, 0x200000)], 0],
        ['older-family', [ptx(80, 0x200000)], 209],
        ['older-family-and-ptx', [ptx(80, 0x200000), ptx(75)], 0],
        ['older-ptx', [elf(80), ptx(60)], 0],
        ['empty', [], 209],
      ];
      for (const [name, entries, result] of cases) {
        assert.equal((await shell.ask(`load 0 ${container(name, entries)}`)).result, result, name);
      }
    });

    it('tells the attributes of the PTX that runs if the machine code was compiled for another version', async () => {
      const shell = await open();
      const bounds = (architecture: number): string => {
        const text = PTX.toString('latin1').replace(/sm_75/, `sm_${architecture}`);
        return text.replace('.maxntid 256, 1, 1', '.maxntid 128, 1, 1');
      };
      for (const [architecture, ...told] of [
        [75, '128', '75'],
        [90, '256', '90'],
      ] as const) {
        const file = container(`both-${architecture}`, [
          { kind: 'elf', architecture: 90, payload: CUBIN },
          { kind: 'ptx', architecture, payload: Buffer.from(`${bounds(architecture)}\0`, 'latin1') },
        ]);
        await askAll(shell, [`load 0 ${file}`, 'function 1 0 mixed']);
        const read = [await shell.ask('attribute 1 0'), await shell.ask('attribute 1 5')];
        assert.deepEqual(
          read.map(({ values }) => values[0]),
          told,
        );
      }
    });

    it('says what is wrong with an image, in the log the program asked for', async () => {
      const shell = await open();
      const bad = image(
        'bad.ptx',
        Buffer.from('.version 7.0\n.target sm_70\n.entry x (.param .nonsense y) {}\n'),
      );
      const answer = await shell.ask(`load 0 ${bad} log 4096`);
      assert.equal(answer.result, 218);
      assert.match(answer.values.slice(1).join(' '), /line 3; error : a declaration without a type/);
      assert.equal(
        Number(answer.values[0]),
        answer.values.slice(1).join(' ').length + 1,
        'the log with its end',
      );
      const short = await shell.ask(`load 0 ${bad} log 10`);
      assert.deepEqual([short.result, short.values[0], short.values[1]?.length], [218, '10', 5]);
      assert.equal((await shell.ask(`load 0 ${image('noise', Buffer.from([1, 2, 3, 4, 0]))}`)).result, 200);
      assert.equal((await shell.ask(`load 0 ${image('empty-text', Buffer.from(' '))}`)).result, 200);
      const newer = image('newer.ptx', Buffer.from('.version 8.0\n.target sm_120\n.entry x() { ret; }\n'));
      assert.equal((await shell.ask(`load 0 ${newer}`)).result, 209);
      const specific = image('80a.ptx', Buffer.from('.version 8.0\n.target sm_80a\n.entry x() { ret; }\n'));
      const logged = await shell.ask(`load 0 ${specific} log 4096`);
      assert.equal(logged.result, 209);
      assert.match(logged.values.slice(1).join(' '), /the PTX is for sm_80a, the device is 9\.0/);
      assert.equal((await shell.ask('file 0 /nonexistent')).result, 301);
      await askAll(shell, [`file 0 ${CUBIN_FILE}`, 'names 0']);
    });

    it('keeps a library out of contexts until it is used, and gives one module for each', async () => {
      const shell = await open();
      await askAll(shell, [
        `library 0 ${container('lib', [{ kind: 'ptx', architecture: 75, payload: PTX, packed: 'lz4' }])} wrapper 1`,
      ]);
      assert.deepEqual((await shell.ask('kernels 0')).values, ['4', 'add', 'large', 'mixed', 'nothing']);
      await askAll(shell, ['kernel 1 0 add', 'module_of 2 0', 'module_of 3 0', 'function 4 2 add']);
      const one = (await shell.ask('library_global 0 counter')).values;
      assert.deepEqual((await shell.ask('global 2 counter')).values, one, 'the same variable');
      assert.equal((await shell.ask('unload 2')).result, 400, 'a library keeps its module');
      await askAll(shell, ['kernel_set 1 8 100000']);
      assert.deepEqual((await shell.ask('attribute 1 8')).values, ['100000']);
      await askAll(shell, ['drop 0']);
      assert.equal((await shell.ask('attribute 1 8')).result, 400);
      assert.equal((await shell.ask('names 2')).result, 400);
      assert.equal((await shell.ask('drop 0')).result, 400);
    });

    it('estimates the registers of a thread from those that PTX declares, within its limits', async () => {
      const kernels = [
        ['few', '', '.reg .b32 %r<25>;'],
        ['wide', '', '.reg .b64 %rd<8>, %one; .reg .pred %p<99>; { .reg .v4 .f32 v<2>, %more; }'],
        ['many', '', '.reg .b32 %r<2500>;'],
        ['bound', '.maxntid 128', '.reg .b32 %r<2500>;'],
        ['limited', '.maxnreg 40', '.reg .b32 %r<2500>;'],
        ['none', '', ''],
      ] as const;
      const text = kernels.map(
        ([name, limit, body]) => `.visible .entry ${name}() ${limit} { ${body} ret; }`,
      );
      const file = image(
        'registers.ptx',
        Buffer.from(`.version 8.0\n.target sm_90\n.address_size 64\n${text.join('\n')}\n\0`),
      );
      const shell = await open();
      await askAll(shell, [`load 0 ${file}`]);
      const told: Record<string, string> = {};
      for (const [name] of kernels) {
        await askAll(shell, [`function 1 0 ${name}`]);
        told[name] = (await shell.ask('attribute 1 4')).values[0] ?? '';
      }
      // "many" may be launched with 1024 threads, which leaves 64 registers to each.
      assert.deepEqual(told, { few: '12', wide: '12', many: '60', bound: '84', limited: '40', none: '8' });
    });

    it('computes occupancy by the public rules', async () => {
      const shell = await open();
      await askAll(shell, [
        `load 0 ${CUBIN_FILE}`,
        'function 1 0 nothing',
        'function 2 0 add',
        'set 2 8 200000',
      ]);
      const blocks = async (line: string): Promise<number> =>
        Number((await shell.ask(`blocks ${line}`)).values[0]);
      assert.equal(await blocks('1 32 0'), 32, 'as many blocks as there are places');
      assert.equal(await blocks('1 1024 0'), 2, 'threads');
      assert.equal(await blocks('2 64 100000'), 2, 'shared memory: 228 KiB / (256 + 100000 + 1024)');
      assert.equal(await blocks('2 64 200000'), 1);
      assert.equal((await shell.ask('blocks 1 0 0')).result, 1);
      assert.deepEqual((await shell.ask('potential 1')).values, ['264', '1024']);
      assert.deepEqual((await shell.ask('available 1 2 1024')).values, [String(233472 / 2 - 1024)]);
      assert.equal((await shell.ask('available 1 3 1024')).result, 1, 'three such blocks never fit');
    });
  });
}

describe('kernels on a device that runs none', () => {
  it('fails each launch with CUDA_ERROR_NOT_SUPPORTED, and the process continues', async () => {
    const scratch = scratchDirectory();
    const host = await startHost({
      listen: `unix:${scratch.path}/s`,
      args: ['--software-kernels', 'refuse'],
    });
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    try {
      await askAll(shell, ['begin', `load 0 ${PTX_FILE}`, 'function 1 0 nothing']);
      assert.equal((await shell.ask('launch 1 1 1 1 1 1 1 0 -')).result, 801);
      assert.equal((await shell.ask('sync')).result, 0, 'told once');
      await host.logged(/kernel nothing: this simulated device executes no kernels/);
    } finally {
      shell.kill();
      await host.stop();
      scratch.remove();
    }
  });

  it('fails each launch of machine code at once, and logs each kernel once', async () => {
    const scratch = scratchDirectory();
    const host = await startHost({ listen: `unix:${scratch.path}/s` });
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    try {
      await askAll(shell, ['begin', `load 0 ${CUBIN_FILE}`, 'function 1 0 nothing', 'function 2 0 large']);
      await askAll(shell, [`library 3 ${CUBIN_FILE}`, 'kernel 4 3 nothing']);
      const large = block(LAYOUTS.large);
      const again = '1 1 1 1 1 1 1 0 -';
      for (const launch of [again, again, '4 1 1 1 1 1 1 0 -', `2 1 1 1 1 1 1 0 ${large}`]) {
        assert.equal((await shell.ask(`launch ${launch}`)).result, 209, 'by the launch itself');
        assert.equal((await shell.ask('sync')).result, 0, 'told once');
      }
      const why = 'cannot be run here: its module has only machine code, no PTX; a real GPU runs it';
      await host.logged(new RegExp(`kernel large ${why}`));
      assert.equal(host.log().split(`kernel nothing ${why}`).length - 1, 1);
    } finally {
      shell.kill();
      await host.stop();
      scratch.remove();
    }
  });

  // A module of 260 MB took five times its size at the host: each step made a copy.
  it('holds the text of a module once', {
    skip: SHIM.endsWith('/shim') ? false : 'sanitizers keep books of their own',
  }, async () => {
    const scratch = scratchDirectory();
    const text = path.join(scratch.path, 'large.ptx');
    const bytes = 64 << 20;
    writeFileSync(text, Buffer.concat([PTX, Buffer.alloc(bytes - PTX.length, '// nothing\n')]));
    const host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--image-cache', '0'] });
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    try {
      await askAll(shell, ['begin', `load 0 ${text}`]);
      const worker = (await host.logged(/worker (\d+)/))[1];
      const status = readFileSync(`/proc/${worker}/status`, 'utf8');
      const most = Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
      assert.ok(most > bytes && most < 1.5 * bytes, `${most} bytes resident at most, for a text of ${bytes}`);
    } finally {
      shell.kill();
      await host.stop();
      scratch.remove();
    }
  });

  it('says in its name that it skips kernels', async () => {
    const scratch = scratchDirectory();
    const host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--software-kernels', 'skip'] });
    const shell = startShell({ VGPU_HOST: host.address });
    try {
      await askAll(shell, ['init']);
      assert.equal(
        (await shell.ask('name 0')).values.join(' '),
        'NVIDIA H100 80GB HBM3 - kernels skipped (simulated)',
      );
    } finally {
      shell.kill();
      await host.stop();
      scratch.remove();
    }
  });
});
