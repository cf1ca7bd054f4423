/**
 * PTX declarations are read twice: for the queries of a program about a module (kernels are skipped, only declarations
 * are read), and by the machine that runs the module. Both results must agree with each other and with the PTX ISA.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { askAll, type Host, type Shell, scratchDirectory, startHost, startShell } from '../shim_host.js';
import { runPtx } from './machine.js';

const HEAD = '.version 8.4\n.target sm_80\n.address_size 64\n';
const kernel = (parameters: string, directives = '', body = ''): string =>
  `${HEAD}.visible .entry k(${parameters}) ${directives} { ${body} ret; }\n`;

describe('declarations in PTX', () => {
  const scratch = scratchDirectory();
  let host: Host;
  let shell: Shell;
  let files = 0;
  const save = (text: string): string => {
    const file = path.join(scratch.path, `${files++}.ptx`);
    writeFileSync(file, text);
    return file;
  };

  before(async () => {
    host = await startHost({
      listen: `unix:${scratch.path}/s`,
      args: ['--software-kernels', 'skip'],
    });
    shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    await askAll(shell, ['begin']);
  });
  after(async () => {
    shell.kill();
    await host.stop();
    scratch.remove();
  });

  const layouts: readonly (readonly [what: string, list: string, layout: readonly string[]])[] = [
    [
      'an alignment behind .ptr, which is that of the memory pointed to',
      '.param .u32 n, .param .u64 .ptr .global .align 1 a, .param .u8 c, .param .u64 .ptr.shared.align 64 b',
      ['0:4', '8:8', '16:1', '24:8'],
    ],
    [
      'attributes with no space between, and any after .ptr',
      '.param .u8 c,.param.v4.f32 v,.param.u64.ptr.const p',
      ['0:1', '16:16', '32:8'],
    ],
    [
      'arrays of several dimensions, aligned by hand',
      '.param .u8 c, .param .align 16 .b8 a[3][5], .param .align 64 .b8 b[0x10]',
      ['0:1', '16:15', '64:16'],
    ],
    [
      'comments with what would end the list',
      '.param .u32 a, // the first) {\n /* ) ; */ .param .u64 b',
      ['0:4', '8:8'],
    ],
    ['no parameters', '', []],
  ];
  for (const [what, list, layout] of layouts) {
    it(`places parameters alike: ${what}`, async () => {
      const file = save(kernel(list));
      await askAll(shell, [`load 0 ${file}`, 'function 1 0 k']);
      assert.deepEqual((await shell.ask('parameters 1')).values, layout);
      const machine = runPtx({ ptx: { file } });
      const [offset = 0, size = 0] = layout.at(-1)?.split(':').map(Number) ?? [];
      assert.match(machine.load, /^ok /);
      assert.match(
        machine.kernels[0] ?? '',
        new RegExp(`parameters=${layout.length} bytes=${offset + size} `),
      );
    });
  }

  it('lets a kernel read a pointer to bytes that follows a smaller parameter', async () => {
    const body =
      '.reg .b32 %r; .reg .b64 %p; ld.param.u64 %p, [out]; ld.param.u32 %r, [n]; st.global.u32 [%p], %r;';
    const text = kernel('.param .u32 n, .param .u64 .ptr .global .align 1 out', '', body);
    const file = save(text.replace('.visible', '.global .u32 result;\n.visible'));
    const computes = await startHost({ listen: `unix:${scratch.path}/computes` });
    const program = startShell({ VGPU_HOST: computes.address }, 'code_shell');
    try {
      await askAll(program, ['begin', `load 0 ${file}`, 'function 1 0 k']);
      const [, , address = ''] = (await program.ask('global 0 result')).values;
      const block = Buffer.alloc(16);
      block.writeUInt32LE(77, 0);
      block.writeBigUInt64LE(BigInt(address), 8);
      await askAll(program, [`launch 1 1 1 1 1 1 1 0 ${block.toString('hex')}`, 'sync']);
      assert.deepEqual((await program.ask('global 0 result')).values.slice(0, 2), ['4', '4d000000']);
    } finally {
      program.kill();
      await computes.stop();
    }
  });

  const refused: readonly (readonly [what: string, text: string])[] = [
    ['an alignment that is no power of two', kernel('.param .align 3 .b8 a[3]')],
    ['a vector of more than 128 bits', kernel('.param .v4 .f64 a')],
    ['a vector of eight', kernel('.param .v8 .b8 a')],
    ['a parameter without a size', kernel('.param .b8 a[]')],
    ['a second dimension left open', `${HEAD}.global .b8 a[2][] = {1};\n`],
    ['an array without a size or values', kernel('.param .b8 a[0]')],
    ['a dimension that is a float', kernel('.param .b8 a[0f3F800000]')],
    ['a dimension that no device can hold', `${HEAD}.global .b8 a[1048576][1048576][2];\n`],
    ['a dimension that is negative', `${HEAD}.global .b8 a[-1];\n`],
    ['a predicate in memory', kernel('.param .pred a')],
    ['a comma with nothing behind it', kernel('.param .u32 a,')],
    ['a name that begins with a digit', kernel('.param .u32 1a')],
    ['a name that is a directive', `${HEAD}.entry .u32() { ret; }\n`],
    ['no type', kernel('.param a')],
    ['more values than elements', `${HEAD}.global .u32 a[2] = {1, 2, 3};\n`],
    ['values nested without end', `${HEAD}.global .u32 a[] = ${'{'.repeat(1000)}1;\n`],
    ['a text that ends in a body', `${HEAD}.entry k() { ret;\n`],
  ];
  for (const [what, text] of refused) {
    it(`refuses ${what}, for both`, async () => {
      const file = save(text);
      assert.equal((await shell.ask(`load 0 ${file}`)).result, 218);
      assert.match(runPtx({ ptx: { file } }).load, /^error invalid PTX: line \d+: /);
    });
  }

  const word = (...values: number[]): string => Buffer.from(Uint32Array.from(values).buffer).toString('hex');
  const variables: readonly (readonly [declaration: string, values: Readonly<Record<string, string>>])[] = [
    ['.global .u32 a = 1, b[2] = {2, 3}, c;', { a: word(1), b: word(2, 3), c: word(0) }],
    ['.const .align 8 .u32 table[] = {1, /* , */ 2, 3};', { table: word(1, 2, 3) }],
    ['.global .u32 rows[][2] = {{1, 2}, {3}};', { rows: word(1, 2, 3, 0) }],
    [
      '.global .f32 half = 0.5, one = 1, two = 0d4000000000000000;',
      { half: '0000003f', one: '0000803f', two: '00000040' },
    ],
    ['.global .f64 one = 0f3F800000;', { one: '000000000000f03f' }],
    ['.global .s32 low = -2; .global .u8 bits = ~0x0f;', { low: 'feffffff', bits: 'f0' }],
    ['.global .v2 .u16 pair[2] = {{1, 2}, {3, 4}};', { pair: '0100020003000400' }],
    ['.visible.global.attribute(.unified(1, 2)).b8 a[2] = {7, 8};', { a: '0708' }],
  ];
  for (const [declaration, values] of variables) {
    it(`gives the variables of "${declaration}" the same first values`, async () => {
      const names = Object.keys(values);
      const copies = names.map((name, i) => {
        const bytes = Array.from({ length: (values[name] ?? '').length / 2 }, (_, at) => at);
        const moves = bytes.map((at) => `ld.u8 %r, [%v+${at}]; st.u8 [%o+${i * 64 + at}], %r;`).join(' ');
        const space = declaration.startsWith('.const') ? 'const' : 'global';
        return `mov.u64 %v, ${name}; cvta.${space}.u64 %v, %v; ${moves}`;
      });
      const file = save(
        `${HEAD}${declaration}\n.entry k(.param .u64 out) { .reg .b16 %r; .reg .b64 %o, %v;\n` +
          `ld.param.u64 %o, [out]; ${copies.join('\n')} ret; }\n`,
      );
      await askAll(shell, [`load 0 ${file}`]);
      const { launches, buffers } = runPtx({
        ptx: { file },
        buffers: [names.length * 64],
        launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
      });
      assert.match(launches[0] ?? '', /^ok /);
      for (const [i, name] of names.entries()) {
        const wanted = values[name] ?? '';
        assert.deepEqual(
          (await shell.ask(`global 0 ${name}`)).values.slice(0, 2),
          [`${wanted.length / 2}`, wanted],
          `asked for ${name}`,
        );
        assert.equal(
          buffers[0]?.subarray(i * 64, i * 64 + wanted.length / 2).toString('hex'),
          wanted,
          `read of ${name}`,
        );
      }
    });
  }

  it('counts shared and local memory of a body alike, and knows it from instructions of the same name', async () => {
    const file = save(
      kernel(
        '.param .u64 p',
        '.maxntid 8, 4 .pragma "nounroll";',
        `.shared .u32 a, b[3];\n{ .local .align 8 .b8 depot[20]; }\n.loc 1 2 3
         .reg .b32 %r; $L:.shared .v2 .u16 c;\nst.shared.u32 [a], %r; .pragma ".shared { ;"; ld.shared::cta.u32 %r, [b];`,
      ),
    );
    await askAll(shell, [`load 0 ${file}`, 'function 1 0 k']);
    const attribute = async (id: number): Promise<string | undefined> =>
      (await shell.ask(`attribute 1 ${id}`)).values[0];
    assert.deepEqual([await attribute(0), await attribute(1), await attribute(3)], ['32', '20', '20']);
    assert.match(runPtx({ ptx: { file } }).kernels[0] ?? '', / shared=20 local=\d+ .* threads=32$/);
  });

  it('reads what this device does not run all the same', async () => {
    const text = `${HEAD}.global .newspace .u32 a = 3;\n.tex .u64 t;\n@@DWARF .byte 1\n.entry k(.param .u32 n) .newdirective 1, 2 { new.shared.thing; ret; }\n`;
    const file = save(text);
    await askAll(shell, [`load 0 ${file}`, 'function 1 0 k']);
    assert.deepEqual((await shell.ask('parameters 1')).values, ['0:4']);
    assert.deepEqual((await shell.ask('global 0 a')).values.slice(0, 2), ['4', '03000000']);
    assert.match(runPtx({ ptx: { file } }).load, /^error unsupported: line 4: '\.newspace' in a declaration/);
  });

  it('let the address of an element be taken, and parameters of calls be numbered', () => {
    const text = `.version 8.4
.target sm_90
.address_size 64
.global .align 8 .u16 words[4] = {1, 2, 3, 4};
.func (.param .b32 r) twice(.param .b64 a, .param .b32 b)
{
  .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .b16 %h<2>;
  ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [b];
  ld.global.u16 %h1, [%rd1]; cvt.u32.u16 %r2, %h1;
  mad.lo.u32 %r2, %r2, 2, %r1; st.param.b32 [r], %r2; ret;
}
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<6>; .reg .b64 %rd<4>;
  .shared .align 16 .b32 s[8];
  .param .b64 %Q<1>; .param .b32 %P<2>;
  ld.param.u64 %rd1, [p];
  mov.u64 %rd2, words[3];
  st.param.b64 [%Q0], %rd2; st.param.b32 [%P1], 100;
  call (%P0), twice, (%Q0, %P1);
  ld.param.b32 %r1, [%P0];
  mov.u32 %r2, s; mov.u32 %r3, s[5]; sub.u32 %r3, %r3, %r2;
  st.shared.u32 s[6], %r3; ld.shared.u32 %r3, [s+24];
  st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r3;
  ret;
}
`;
    const { load, launches, buffers } = runPtx({
      ptx: { text },
      buffers: [8],
      launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
    });
    assert.match(`${load} ${launches[0]}`, /^ok .* ok /);
    assert.deepEqual([buffers[0]?.readUInt32LE(0), buffers[0]?.readUInt32LE(4)], [108, 20]);
  });
});
