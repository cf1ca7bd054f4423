import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { descriptorSource, type ElfReading, nativeElf, readElf } from '../../../agent/guest/elf.js';
import { bufferSource, buildElf, ourNote, realLibrary, tree, withoutRealLibraries } from './support.js';

function read(bytes: Buffer): ElfReading {
  return readElf(bufferSource(bytes));
}

function factsOf(reading: ElfReading) {
  assert.equal(reading.kind, 'elf', reading.kind === 'problem' ? reading.reason : '');
  return reading.kind === 'elf' ? reading.facts : assert.fail();
}

function readFrom(file: string): ElfReading {
  const descriptor = openSync(file, 'r');
  try {
    return readElf(descriptorSource(descriptor));
  } finally {
    closeSync(descriptor);
  }
}

describe('elf', () => {
  for (const [bits, bigEndian, machine, name] of [
    [64, false, 62, 'x86_64'],
    [64, false, 183, 'aarch64'],
    [32, false, 3, 'i386'],
    [64, true, 22, 's390'],
    [32, true, 4711, '4711'],
  ] as const) {
    it(`reads a ${bits}-bit ${bigEndian ? 'big' : 'little'}-endian library (${name})`, () => {
      const recipe = { soname: 'libcuda.so.1', needed: ['libc.so.6', 'libm.so.6'], note: ourNote };
      const provenance = { component: 'libcuda', version: '0.1.0', wire: 1 };
      assert.deepEqual(factsOf(read(buildElf({ bits, bigEndian, machine, ...recipe }))), {
        class: bits,
        machine: name,
        type: 'dyn',
        ...(bits === 64 && !bigEndian
          ? { soname: recipe.soname, needed: recipe.needed, provenance }
          : { soname: null, needed: [], provenance: null }),
      });
    });
  }

  for (const note of [
    '',
    'not json',
    '[]',
    '{"component":"libcuda"}',
    '{"component":1,"version":"1","wire":1}',
  ]) {
    it(`takes ${JSON.stringify(note)} in the note for no provenance`, () => {
      assert.equal(factsOf(read(buildElf({ note }))).provenance, null);
    });
  }

  it('gives a file without names none', () => {
    const facts = factsOf(read(buildElf()));
    assert.equal(facts.soname, null);
    assert.deepEqual(facts.needed, []);
  });

  it('says why something is no ELF file', () => {
    for (const [bytes, reason] of [
      [Buffer.alloc(0), /0 bytes/],
      [Buffer.from('/* GNU ld script */ INPUT(x)'), /magic/],
      [buildElf().subarray(0, 40), /header is truncated/],
    ] as const) {
      const reading = read(bytes);
      assert.ok(reading.kind === 'problem');
      assert.match(reading.reason, reason);
    }
  });

  it('survives being cut off at every byte', () => {
    const whole = buildElf({ soname: 'libcuda.so.1', needed: ['libc.so.6'], note: ourNote });
    for (let length = 0; length < whole.length; length += 1) {
      const reading = read(whole.subarray(0, length));
      if (reading.kind === 'problem') assert.notEqual(reading.reason, '');
    }
    assert.equal(read(whole.subarray(0, 200)).kind, 'problem');
  });

  it('survives any single byte being any extreme, in both classes', () => {
    for (const bits of [32, 64] as const) {
      const whole = buildElf({ bits, soname: 'libcuda.so.1', needed: ['libc.so.6'], note: ourNote });
      for (let at = 4; at < whole.length; at += 1) {
        for (const value of [0, 1, 0x7f, 0x80, 0xff]) {
          const broken = Buffer.from(whole);
          broken[at] = value;
          read(broken);
        }
      }
    }
  });

  it('survives random damage to words', () => {
    const whole = buildElf({ soname: 'libcuda.so.1', needed: ['libc.so.6', 'libm.so.6'], note: ourNote });
    let state = 12345;
    const random = (limit: number): number => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return state % limit;
    };
    for (let round = 0; round < 20_000; round += 1) {
      const broken = Buffer.from(whole);
      for (let hits = random(4) + 1; hits > 0; hits -= 1) {
        broken.writeUInt32LE(random(2 ** 32), 16 + random(broken.length - 20));
      }
      read(broken);
    }
  });

  it('refuses counts and sizes beyond reason', () => {
    const manySegments = buildElf();
    manySegments.writeUInt16LE(0xffff, 56);
    assert.match(String(Object.values(read(manySegments))), /65535 program headers/);
    const hugeDynamic = buildElf();
    hugeDynamic.writeBigUInt64LE(2n ** 62n, 64 + 56 + 32);
    const reading = read(hugeDynamic);
    assert.equal(reading.kind, 'problem');
  });

  it('reads little of a huge sparse file', (context) => {
    const file = path.join(tree(context), 'libcuda.so.1');
    const descriptor = openSync(file, 'w');
    writeSync(descriptor, buildElf({ soname: 'libcuda.so.1' }));
    ftruncateSync(descriptor, 2 ** 40);
    closeSync(descriptor);
    const started = performance.now();
    assert.equal(factsOf(readFrom(file)).soname, 'libcuda.so.1');
    assert.ok(performance.now() - started < 5_000);
  });

  for (const driver of ['535', '550'] as const) {
    for (const name of ['libcuda', 'libnvidia-ml'] as const) {
      const file = realLibrary(name, driver);
      it(`reads NVIDIA's ${name} ${driver} as readelf does`, {
        skip: file === null && withoutRealLibraries,
      }, () => {
        const facts = factsOf(readFrom(file ?? ''));
        const told = spawnSync('readelf', ['-dW', file ?? ''], { encoding: 'utf8' }).stdout;
        const names = (tag: string): string[] =>
          [...told.matchAll(new RegExp(`\\(${tag}\\).*\\[(.*)\\]`, 'g'))].map((match) => match[1] ?? '');
        assert.deepEqual([facts.soname], names('SONAME'));
        assert.deepEqual(facts.needed, names('NEEDED'));
        assert.ok(facts.needed.length > 3);
        assert.deepEqual(
          [facts.class, facts.machine, facts.type, facts.provenance],
          [64, 'x86_64', 'dyn', null],
        );
      });
    }
  }

  it('reads the note that a compiler and linker make', (context) => {
    const directory = tree(context, {
      'note.s': [
        '.section .note.vgpu,"a",@note',
        '.long 5, 2f-1f, 1',
        '.asciz "VGPU"',
        '.balign 4',
        `1: .ascii ${JSON.stringify(ourNote)}`,
        '2: .balign 4',
        '',
      ].join('\n'),
    });
    const file = path.join(directory, 'libx.so');
    const built = spawnSync(
      'gcc',
      ['-shared', '-nostdlib', '-Wl,-soname,libcuda.so.1', '-o', file, 'note.s'],
      { cwd: directory, encoding: 'utf8' },
    );
    assert.equal(built.status, 0, built.stderr);
    const facts = factsOf(readFrom(file));
    assert.equal(facts.soname, 'libcuda.so.1');
    assert.equal(facts.provenance?.component, 'libcuda');
    spawnSync('strip', [file]);
    assert.equal(factsOf(readFrom(file)).provenance?.wire, 1);
  });

  it('reads a program of this machine as native', () => {
    const facts = factsOf(readFrom(process.execPath));
    const native = nativeElf(spawnSync('uname', ['-m'], { encoding: 'utf8' }).stdout.trim());
    assert.deepEqual({ class: facts.class, machine: facts.machine }, native);
    assert.equal(facts.type === 'exec' || facts.type === 'dyn', true);
  });

  it('is not misled by a file that shrinks while it is read', (context) => {
    const file = path.join(tree(context), 'lib.so');
    writeFileSync(file, buildElf({ soname: 'libcuda.so.1' }));
    const descriptor = openSync(file, 'r+');
    const source = descriptorSource(descriptor);
    ftruncateSync(descriptor, 70);
    assert.equal(readElf(source).kind, 'problem');
    closeSync(descriptor);
    assert.equal(readFileSync(file).length, 70);
  });
});
