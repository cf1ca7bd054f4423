/** docs/reference/software-gpu.md says what the machine runs and what it refuses by name: both are checked here. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { runPtx } from './machine.js';

const [, section = ''] =
  /\n## What it runs\n([\s\S]*?)\n## /.exec(
    readFileSync(path.join(ROOT, 'docs/reference/software-gpu.md'), 'utf8'),
  ) ?? [];
const [runs = '', rest = ''] = section.split('Some instructions are refused');
const refused = [...rest.matchAll(/^\|[^|]*\| `(.+)` \|$/gm)].map(([, instruction = '']) => instruction);

/** The first line of the module's kernel is its seventh. */
function loaded(instruction: string): string {
  const text = `.version 8.4
.target sm_90
.address_size 64
.entry k(.param .u64 p)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>; .reg .pred %p<9>; .reg .f32 %f<9>;
${instruction};
}
`;
  const { load, refused: said } = runPtx({ ptx: { text } });
  assert.match(load, /^ok /);
  return said.join('\n');
}

const PTX = path.join(ROOT, 'shim-src/host/backend/software/ptx');

/** Every mnemonic of the decoders' tables. */
const decoded = new Set(
  ['decode', 'texture']
    .flatMap((room) => readdirSync(path.join(PTX, room)).map((name) => path.join(PTX, room, name)))
    .filter((file) => /decode[^/]*\.c$/.test(file))
    .flatMap((file) => [...readFileSync(file, 'utf8').matchAll(/\{"([a-z0-9]+)", \w*decode_\w+,/g)])
    .map(([, mnemonic]) => mnemonic),
);

describe('docs/reference/software-gpu.md', () => {
  it('lists refusals that can be tried', () => {
    assert.ok(refused.length > 12, `${refused.length}`);
    assert.ok(decoded.size > 100, `${decoded.size}`);
  });

  for (const instruction of refused) {
    const [name = ''] = instruction.split(' ');
    it(`is right that ${name} is refused, and it is refused by its name`, () => {
      const said = loaded(instruction);
      assert.ok(said.startsWith(`line 7: ${name} is not supported`), said);
    });
  }

  it('names no instruction as one that runs which the decoder does not know', () => {
    const functions = new Set(['vprintf', '__assertfail', 'malloc', 'free']);
    const names = [...runs.matchAll(/`([^`]+)`/g)]
      .flatMap(([, text = '']) => text.split('/'))
      .map((text) => text.split('.')[0] ?? '')
      .filter((name) => !functions.has(name));
    assert.ok(names.length > 20, names.join());
    for (const name of names) assert.ok(decoded.has(name), name);
  });

  it('names every family of instructions that warps and blocks need and the decoder has', () => {
    const control = readFileSync(path.join(PTX, 'decode/decode_matrix.c'), 'utf8');
    const matrix = [...control.matchAll(/\{"([a-z0-9]+)", decode_\w+,/g)].map(([, name = '']) => name);
    assert.ok(matrix.length > 3, matrix.join());
    for (const name of [...matrix, 'mbarrier', 'shfl', 'vote', 'match', 'redux', 'elect', 'atom', 'red'])
      assert.match(runs, new RegExp(`[\`/]${name}[.\`/]`), name);
  });

  it('is right that a grid is not counted in clusters', () => {
    const text = `.version 8.4\n.target sm_90\n.address_size 64\n.entry k() .reqnctapercluster 2 .blocksareclusters { ret; }\n`;
    assert.match(
      runPtx({ ptx: { text } }).refused.join(),
      /^line 4: the directive '.blocksareclusters' is not supported/,
    );
  });
});

describe('a modifier that the decoder does not know', () => {
  // These take any modifier, for none can change a result: hints and fences, for example.
  const any =
    /^(prefetch|prefetchu|applypriority|discard|createpolicy|membar|fence|call|ret|exit|trap|brkpt|nanosleep|pmevent|setmaxnreg|griddepcontrol|tensormap|txq|suq)$/;

  it('is refused by name with every mnemonic whose result it could change', () => {
    const strict = [...decoded].filter((name) => name !== undefined && !any.test(name));
    assert.ok(strict.length > 90, `${strict.length}`);
    for (const name of strict) {
      const said = loaded(`${name}.unheard.b32 %r1, %r2, %r3`);
      assert.ok(
        said.includes(`${name}.unheard.b32 is not supported: the modifier .unheard`),
        `${name}: ${said}`,
      );
    }
  });

  it('may be a type too many', () => {
    assert.match(loaded('add.u32.u32 %r1, %r2, %r3'), /is not supported: the type \.u32/);
    assert.match(loaded('mul.rn.ftz.f32.bf16 %f1, %f2, %f3'), /is not supported: the type \.bf16/);
  });
});
