import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { cMembers, cType } from '../../../shim-src/api/c-types.js';
import { emitCodesHeader, emitCodesModule, parseCodes } from '../../../shim-src/api/codes.js';
import { emitCoverage } from '../../../shim-src/api/emit-coverage.js';
import {
  checkLibrary,
  emitApi,
  emitProcTable,
  emitStreamFields,
  emitStubs,
  emitVersionScript,
} from '../../../shim-src/api/emit-guest.js';
import { emitCalls, emitDispatch } from '../../../shim-src/api/emit-wire.js';
import { exported, type Library } from '../../../shim-src/api/model.js';
import { parseDescription, parseErrors } from '../../../shim-src/api/parse.js';
import { ROOT } from './private_programs.js';

const API = path.join(ROOT, 'shim-src/api');

function library(text: string): Library {
  return { name: 'cuda', soname: 'libcuda.so.1', refusal: 801, entries: parseDescription('x.api', text) };
}

describe('the description of entry points', () => {
  it('is read with its continuation lines', () => {
    const [entry] = parseDescription(
      'x.api',
      '# a comment\n0007 cuFoo_v2 cuFoo@3020 waiting (out: *devptr, n: size)\n     send(context: u64) reply(out: u64)+bulk\n',
    );
    assert.deepEqual(entry, {
      number: 7,
      symbol: 'cuFoo_v2',
      proc: { base: 'cuFoo', version: 3020, perThread: false },
      carriage: {
        kind: 'waiting',
        send: { fields: [{ name: 'context', type: 'u64' }], bulk: false, raw: false },
        reply: { fields: [{ name: 'out', type: 'u64' }], bulk: true, raw: false },
        auto: false,
        common: false,
        awaits: 'nothing',
      },
      parameters: [
        { name: 'out', type: '*devptr' },
        { name: 'n', type: 'size' },
      ],
    });
  });

  for (const [what, text, complaint] of [
    ['a line that is none', 'cuFoo', /x\.api:1: not "NUMBER SYMBOL/],
    [
      'a number given twice',
      '0001 cuA - refused ()\n0001 cuB - refused ()',
      /x\.api:2: number 1 is already that of cuA/,
    ],
    ['a symbol twice', '0001 cuA - refused ()\n0002 cuA - refused ()', /x\.api:2: cuA is given twice/],
    ['number zero', '0000 cuA - refused ()', /0 is not a number/],
    ['an unknown way', '0001 cuA - telepathy ()', /"telepathy" is not a way to carry a call/],
    ['a carried call without its body', '0001 cuA - oneway ()', /needs "send\(\.\.\.\)"/],
    ['a field of no type', '0001 cuA - oneway ()\n send(a: u7)', /field "a: u7" is not/],
    ['a parameter without a type', '0001 cuA - refused (a)', /parameter "a" is not "name: type"/],
    ['a name without a version', '0001 cuA cuA refused ()', /"cuA" is not NAME@VERSION/],
    ['an unknown attribute', '0001 cuA - oneway ()\n send() comon', /"comon" is not "common"/],
    [
      'a call without an answer that is to be asked again',
      '0001 cuA - oneway ()\n send() awaits=own',
      /without an answer cannot be told to ask again/,
    ],
    ['a forward from nowhere', '0001 cuA - forward ()', /only _ptds and _ptsz symbols/],
  ] as const) {
    it(`refuses ${what}, naming file and line`, () => {
      assert.throws(() => parseDescription('x.api', text), { name: 'DescriptionError', message: complaint });
    });
  }

  it('lists the calls that find ended what was given back, for the guest and for the host', () => {
    const calls = emitCalls(
      library(
        '0001 cuA - waiting ()\n send() reply() awaits=own\n0002 cuB - asks ()\n send() reply() awaits=all\n0003 cuC - asks ()\n send() reply()',
      ),
    );
    const [, body = ''] = calls.split('vgpu_cuda_awaits(uint32_t opcode) {');
    assert.match(
      body,
      /case VGPU_OP_cuA:\n\s+return VGPU_AWAITS_OWN;\n\s+case VGPU_OP_cuB:\n\s+return VGPU_AWAITS_ALL;/,
    );
    assert.doesNotMatch(body, /VGPU_OP_cuC/);
  });

  it('refuses to forward to what does nothing', () => {
    assert.deepEqual(checkLibrary(library('0001 cuA - refused ()\n0002 cuA_ptsz - forward ()')), [
      'cuA_ptsz forwards to cuA, which does nothing',
    ]);
  });

  it('lays bodies out without hidden padding', () => {
    const body = {
      fields: [{ name: 'a', type: 'u64' } as const, { name: 'b', type: 'u32' } as const],
      bulk: false,
      raw: false,
    };
    assert.deepEqual(cMembers(body, 'x'), ['uint64_t a;', 'uint32_t b;', 'uint32_t reserved;']);
    const bad = {
      fields: [{ name: 'a', type: 'u32' } as const, { name: 'b', type: 'u64' } as const],
      bulk: false,
      raw: false,
    };
    assert.throws(() => cMembers(bad, 'cuA send'), /cuA send: field "b" is not aligned/);
  });

  it('knows each type it is given, and says so when not', () => {
    assert.equal(cType('*const void'), 'const void *');
    assert.equal(cType('**const void'), 'const void **');
    assert.equal(cType('*ctx'), 'struct vgpu_context **');
    assert.equal(cType('*CUDA_MEMCPY2D'), 'void *');
    assert.throws(() => cType('CUDA_MEMCPY2D'), /type "CUDA_MEMCPY2D" is not known/);
  });

  it('makes the guest part of an automatic call from its line', () => {
    const stubs = emitStubs(
      library('0001 cuA - auto (n: i32, out: *u64)\n send(context: u64, n: i32) reply(out: u64)'),
    );
    assert.match(stubs, /int cuA\(int32_t n, uint64_t \*out\)/);
    assert.match(stubs, /\.context = context_, \.n = n/);
    assert.match(stubs, /if \(out != NULL\) \*out = reply_\.out;/);
    assert.throws(
      () => emitStubs(library('0001 cuA - auto ()\n send(n: i32) reply()')),
      /no parameter for send field "n"/,
    );
  });

  it('never changes the number of an opcode', () => {
    const calls = emitCalls(library('0200 cuA - oneway ()\n send(a: u64)'));
    assert.match(calls, /#define VGPU_OP_cuA \(VGPU_OP_CUDA \| 0x00c8u\)/);
    assert.match(
      emitDispatch(library('0200 cuA - oneway ()\n send(a: u64)+bulk')),
      /\{VGPU_OP_cuA, 8, 0, true, true, false, false, false, -1, "cuA", \{software_cuA, cuda_cuA\}\}/,
    );
    assert.match(
      emitDispatch(library('0200 cuA - oneway ()\n send(a: u64)+bulk common')),
      /"cuA", \{common_cuA, common_cuA\}/,
      'one handler for every backend',
    );
  });

  it('exports nothing of a call of our own', () => {
    const own = library('0900 read_later - posts ()\n send(context: u64, stream: u64)');
    assert.match(emitCalls(own), /#define VGPU_OP_read_later/);
    for (const text of [emitApi(own), emitStubs(own), emitVersionScript(own), emitCoverage([own])]) {
      assert.doesNotMatch(text, /read_later/);
    }
  });

  it('knows where a body has the stream it works on', () => {
    const text =
      '0003 cuA - oneway ()\n send(context: u64, stream: u64)\n0004 cuB - oneway ()\n send(event: u64)';
    assert.match(emitStreamFields(library(text)), /\[3\] = 9,/);
    assert.doesNotMatch(emitStreamFields(library(text)), /\[4\]/);
    assert.match(emitDispatch(library(text)), /\{VGPU_OP_cuA, 16, 0, true, false, false, false, false, 8, /);
    assert.match(emitDispatch(library(text)), /\{VGPU_OP_cuB, 8, 0, true, false, false, false, false, -1, /);
  });

  it('sorts the names for cuGetProcAddress', () => {
    const table = emitProcTable(
      library('0001 cuB_v2 cuB@2 refused ()\n0002 cuB cuB@1 refused ()\n0003 cuA cuA@1 refused ()'),
    );
    assert.deepEqual(
      [...table.matchAll(/\{"(\w+)", (\d)/g)].map(([, name, version]) => `${name}${version}`),
      ['cuA1', 'cuB1', 'cuB2'],
    );
  });
});

describe('committed files', () => {
  const read = (name: 'cuda' | 'nvml', soname: string, refusal: number): Library => ({
    name,
    soname,
    refusal,
    entries: parseDescription(`${name}.api`, readFileSync(path.join(API, `${name}.api`), 'utf8')),
  });
  const cuda = read('cuda', 'libcuda.so.1', 801);
  const nvml = read('nvml', 'libnvidia-ml.so.1', 3);

  it('describes exactly the exports of the real libraries', () => {
    for (const [described, list] of [
      [cuda, 'libcuda.exports'],
      [nvml, 'libnvidia-ml.exports'],
    ] as const) {
      const names = readFileSync(path.join(API, list), 'utf8').trim().split('\n').sort();
      assert.deepEqual(
        exported(described)
          .map(({ symbol }) => symbol)
          .sort(),
        names,
      );
    }
  });

  it('has the coverage table that the description gives', () => {
    assert.equal(
      readFileSync(path.join(ROOT, 'docs/reference/coverage.md'), 'utf8'),
      emitCoverage([cuda, nvml]),
      'run scripts/build-shim',
    );
  });

  it('gives the agent the codes that the C parts have', () => {
    const codes = parseCodes('codes.list', readFileSync(path.join(API, 'codes.list'), 'utf8'));
    const committed = readFileSync(path.join(ROOT, 'agent/contracts/shim-codes.ts'), 'utf8');
    assert.equal(committed, emitCodesModule(codes), 'run scripts/build-shim');
    const header = emitCodesHeader(codes);
    for (const { prefix, codes: list } of codes)
      for (const { number, code } of list)
        assert.ok(header.includes(`  ${prefix}_${code.toUpperCase().replaceAll('-', '_')} = ${number}, /*`));
  });

  it('takes no code or number twice, and no line that it does not understand', () => {
    const start = 'enum vgpu_status VGPU_STATUS\n';
    for (const [text, says] of [
      ['0 ok fine\n', /x\.list:1: "0 ok fine" is neither/],
      [`${start}0 ok\n`, /x\.list:2: .* is neither/],
      [`${start}0 Ok fine\n`, /is neither/],
      [`${start}0 ok fine\n0 well fine\n`, /x\.list:3: .* has that number or code already/],
      [`${start}0 ok fine\n1 ok fine\n`, /has that number or code already/],
    ] as const)
      assert.throws(() => parseCodes('x.list', text), says, text);
  });

  it('names each error once', () => {
    const errors = parseErrors('errors.list', readFileSync(path.join(API, 'errors.list'), 'utf8'));
    assert.equal(new Set(errors.map(({ value }) => value)).size, errors.length);
    assert.equal(new Set(errors.map(({ name }) => name)).size, errors.length);
    assert.ok(errors.every(({ name }) => name === 'CUDA_SUCCESS' || name.startsWith('CUDA_ERROR_')));
  });
});
