// Symbols with their versions, beside what readelf says of the same real files.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { descriptorSource } from '../../../../agent/guest/elf.js';
import { missingFrom, readSymbols, type SymbolReading } from '../../../../agent/guest/look/symbols.js';
import { packageRoot } from '../../../../agent/lib/paths.js';
import { bufferSource, realLibrary, tree, withoutRealLibraries } from '../support.js';

type Symbols = Extract<SymbolReading, { kind: 'symbols' }>;

function symbols(file: string): Symbols {
  const descriptor = openSync(file, 'r');
  try {
    const reading = readSymbols(descriptorSource(descriptor));
    assert.equal(reading.kind, 'symbols', reading.kind === 'problem' ? reading.reason : '');
    if (reading.kind !== 'symbols') throw new Error('unreachable');
    return reading;
  } finally {
    closeSync(descriptor);
  }
}

/** `name@version` of global and weak symbols as readelf prints them; a hidden version has one @, as ours. */
function told(file: string): { needed: string[]; exported: string[] } {
  const { stdout } = spawnSync('readelf', ['--dyn-syms', '--wide', file], {
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  const lists = { needed: [] as string[], exported: [] as string[] };
  for (const line of stdout.split('\n')) {
    const match =
      /^ +[1-9]\d*: [0-9a-f]+ +\S+ \S+ +(?:GLOBAL|WEAK|UNIQUE) +\S+ +(?:\[.*\] +)?(\S+) (\S+)/.exec(line);
    if (match?.[2] === undefined) continue;
    const list = match[1] === 'UND' ? lists.needed : lists.exported;
    list.push(match[2].replace('@@', '@'));
  }
  return lists;
}

function written(all: readonly { name: string; version: string | null }[]): string[] {
  // The symbol that stands for a version itself is printed without it.
  return all.map(({ name, version }) => (version === null || version === name ? name : `${name}@${version}`));
}

function same(file: string): Symbols {
  const ours = symbols(file);
  const expected = told(file);
  // readelf names the base version of a definition, which a program cannot request.
  const base = (all: readonly string[]): string[] => all.map((one) => one.replace(/@\(?Base\)?$/, '')).sort();
  assert.deepEqual(written(ours.needed).sort(), base(expected.needed));
  assert.deepEqual(written(ours.exported).sort(), base(expected.exported));
  return ours;
}

describe('symbols are read as readelf reads them', () => {
  it('of node, the C library and our libraries', () => {
    const libc = ['/lib/x86_64-linux-gnu/libc.so.6', '/lib64/libc.so.6'].find(existsSync);
    const built = path.join(packageRoot(), 'build/shim');
    const files = [process.execPath, libc, `${built}/libcuda.so.1`, `${built}/libnvidia-ml.so.1`];
    for (const file of files) if (file !== undefined && existsSync(file)) same(file);
  });

  it('of NVIDIA’s libcuda', {
    skip: realLibrary('libcuda', '550') === null && withoutRealLibraries,
  }, () => {
    const file = realLibrary('libcuda', '550');
    assert.ok(file !== null);
    assert.ok(same(file).exported.some(({ name }) => name === 'cuInit'));
  });

  it('with only the old hash table, with only the new one, and with versions', (context) => {
    const directory = tree(context, {
      'give.c': 'int cuGiven(void){return 1;} int cuLater(void){return 2;}',
      'give.map': 'ONE { global: cuGiven; local: *; }; TWO { global: cuLater; } ONE;',
      'take.c':
        'extern int cuGiven(void), cuLater(void), cuPlain(void); extern int cuMaybe(void) __attribute__((weak)); int take(void){return cuGiven()+cuLater()+cuPlain()+(cuMaybe?1:0);}',
      'one.map': 'ONE { global: cuGiven; local: *; };',
    });
    const cc = (...args: string[]): void => {
      const ran = spawnSync('gcc', ['-shared', '-fPIC', ...args], { cwd: directory, encoding: 'utf8' });
      assert.equal(ran.status, 0, ran.stderr);
    };
    cc('-o', 'libgive.so', 'give.c', '-Wl,--version-script=give.map,-soname,libgive.so,--hash-style=sysv');
    cc('-o', 'libtake.so', 'take.c', '-L.', '-lgive', '-Wl,--hash-style=gnu');
    const give = same(path.join(directory, 'libgive.so'));
    const take = same(path.join(directory, 'libtake.so'));
    assert.deepEqual(give.versions, ['ONE', 'TWO']);
    assert.deepEqual(
      take.needed.filter(({ name }) => name.startsWith('cu')).toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      [
        { name: 'cuGiven', version: 'ONE', library: 'libgive.so', weak: false },
        { name: 'cuLater', version: 'TWO', library: 'libgive.so', weak: false },
        { name: 'cuMaybe', version: null, library: null, weak: true },
        { name: 'cuPlain', version: null, library: null, weak: false },
      ],
    );
    const wanted = take.needed.filter(({ name }) => name.startsWith('cu'));
    assert.deepEqual(
      missingFrom(wanted, give).map(({ name }) => name),
      ['cuPlain'],
    );

    // A provider with versions must have the one that is asked for; one without any may have just the name.
    cc('-o', 'old.so', 'give.c', '-Wl,--version-script=one.map');
    cc('-o', 'plain.so', 'give.c');
    const lacks = (file: string): string[] =>
      missingFrom(wanted, same(path.join(directory, file)))
        .map(({ name }) => name)
        .toSorted();
    assert.deepEqual(lacks('old.so'), ['cuLater', 'cuPlain']);
    assert.deepEqual(lacks('plain.so'), ['cuPlain']);
  });

  it('a damaged file is not read beyond its end, and causes no exception', (context) => {
    const directory = tree(context, { 'give.c': 'int cuGiven(void){return 1;}' });
    const ran = spawnSync('gcc', ['-shared', '-fPIC', '-nostdlib', '-o', 'give.so', 'give.c'], {
      cwd: directory,
    });
    assert.equal(ran.status, 0);
    const whole = readFileSync(path.join(directory, 'give.so'));
    for (let length = 0; length < whole.length; length += 61)
      readSymbols(bufferSource(whole.subarray(0, length)));
    for (let at = 0; at < Math.min(whole.length, 4096); at += 1) {
      const broken = Buffer.from(whole);
      broken[at] = (broken[at] ?? 0) ^ 0xff;
      readSymbols(bufferSource(broken));
    }
    writeFileSync(path.join(directory, 'text'), 'no library');
    assert.equal(readSymbols(bufferSource(Buffer.from('no library at all'))).kind, 'problem');
  });
});
