// From the tracer's lines to what each process bound: hostile and torn lines, and what is counted.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { librariesOf, readTrace, type TracedProcess } from '../../../../../agent/verdict/doctor/trace.js';
import { gathered, line, ours, theirs } from './lines.js';

function only(text: string): TracedProcess {
  const { processes } = gathered(text);
  const [first, ...more] = processes;
  assert.ok(first !== undefined && more.length === 0, JSON.stringify(processes));
  return first;
}

describe('lines of a trace', () => {
  test('every event that the tracer writes is read, with quoted values', () => {
    const text =
      line(7, 'event=process program="/opt/a b/x"') +
      line(7, 'event=object object=/lib/x.so') +
      line(7, 'event=dlopen caller=/opt/x file=libcuda.so.1 flags=2 deepbind=no') +
      line(7, `event=dlsym caller=- of=default symbol=cuInit library=${ours}`) +
      line(
        7,
        `event=cuGetProcAddress of=${ours} symbol=cuMemAlloc version=12000 flags=0 result=0 library=${ours}`,
      ) +
      line(7, `event=binds object=program symbol=cuInit how=direct library=${ours}`) +
      line(7, 'event=bypassed object=/lib/y.so symbol=dlsym library=/lib/libc.so.6');
    const { lines, strange } = readTrace(text);
    assert.deepEqual([lines, strange], [7, 0]);
    const { program, bindings } = only(text);
    assert.equal(program, '/opt/a b/x');
    assert.deepEqual(
      bindings.map(({ way, by }) => [way, by]),
      [
        ['dlsym', null],
        ['driver', null],
        ['linked', 'program'],
      ],
    );
  });

  const good = line(7, 'event=object object=/lib/x.so');
  for (const [what, bad] of [
    ['a line cut short by a full disk, run into the next', `time=1.000000 pid=7 event=dls${good}`],
    ['a line without its end', 'time=1.000000 pid=7 event=object object=/x'],
    ['an open quote', line(7, 'event=object object="/x')],
    ['two pids', line(7, 'pid=8 event=object object=/x')],
    ['an unknown event', line(7, 'event=confess object=/x')],
    ['a pid that is none', line(0, 'event=object object=/x')],
    ['a huge pid', 'time=1.000000 pid=99999999999999999999 event=object object=/x\n'],
    ['no pid at all', 'time=1.000000 event=object object=/x\n'],
    ['no time', 'pid=7 event=object object=/x\n'],
    ['a time with more before it', 'time=x1.000000 pid=7 event=object object=/x\n'],
    ['a time with more behind it', 'time=1.0000000 pid=7 event=object object=/x\n'],
    ['a lookup without a symbol', line(7, `event=dlsym library=${ours}`)],
    ['an answer of a driver without a symbol', line(7, `event=cuGetProcAddress library=${ours}`)],
    ['an opened file without a name', line(7, 'event=dlopen caller=/x')],
    ['a reference without a symbol', line(7, `event=binds object=/x how=direct library=${ours}`)],
    ['a reference without an object', line(7, `event=binds symbol=cuInit how=direct library=${ours}`)],
    ['an object without a name', line(7, 'event=bypassed object=- symbol=dlsym library=/lib/libc.so.6')],
    ['words in a line', line(7, 'event=object object=/x and more')],
    ['an empty line', '\n'],
    ['a line longer than any of the tracer', line(7, `event=object object=/${'x'.repeat(3000)}`)],
    ['bytes that are no text', '\u0000\u001b[31m\ufffd\n'],
  ] as const) {
    test(`${what} is counted and passed over`, () => {
      const first = bad.endsWith(good) ? '' : good;
      const { lines, strange, processes } = readTrace(`${first}${bad}`);
      assert.equal(strange, 1);
      assert.deepEqual([lines, processes.size], first === '' ? [1, 0] : [2, 1]);
    });
  }

  test('a line as long as the longest of the tracer is read', () => {
    const rest = 'event=object object=/';
    const longest = line(7, rest + 'x'.repeat(2048 - line(7, rest).trimEnd().length));
    assert.equal(longest.length, 2048 + 1);
    assert.equal(readTrace(longest).strange, 0);
    assert.equal(readTrace(longest.replace('\n', 'x\n')).strange, 1);
  });

  test('sixteen megabytes of the worst are read in their time, and not all is kept', () => {
    const many = 'time=1.000000 pid=7 event=object object=/x\n'.repeat(380_000);
    assert.deepEqual([readTrace(many).lines, readTrace(many).strange], [380_000, 0]);
    assert.equal(readTrace('x'.repeat(16 * 1024 * 1024)).strange, 1);
    const symbols = Array.from({ length: 6_000 }, (_, at) =>
      line(7, `event=dlsym caller=/x of=default symbol=cu${at} library=${ours}`),
    );
    assert.equal(only(symbols.join('')).bindings[0]?.symbols, 5_000);
  });
});

describe('bindings of a process', () => {
  test('symbols are counted once each, for each object, way and library', () => {
    const bound = line(7, `event=binds object=/l/libggml-cuda.so symbol=cuInit how=direct library=${ours}`);
    const { bindings, asked } = only(
      bound +
        bound +
        line(7, `event=binds object=/l/libggml-cuda.so symbol=cuMemAlloc how=direct library=${ours}`) +
        line(7, `event=dlsym caller=/l/libcudart.so of=${ours} symbol=cuInit library=${ours}`),
    );
    assert.equal(asked, true);
    assert.deepEqual(bindings, [
      {
        way: 'linked',
        by: '/l/libggml-cuda.so',
        library: ours,
        example: 'cuInit',
        vendor: 'vgpu',
        symbols: 2,
      },
      { way: 'dlsym', by: '/l/libcudart.so', library: ours, example: 'cuInit', vendor: 'vgpu', symbols: 1 },
    ]);
  });

  test('a symbol that was not found, is not bound yet, or is found in the same library is not a binding', () => {
    const { bindings, asked } = only(
      line(7, 'event=dlsym caller=/x of=default symbol=cuNoSuchThing library=-') +
        line(7, 'event=binds object=program symbol=cuInit how=lazy library=-') +
        line(7, `event=binds object=${ours} symbol=cuInit how=direct library=${ours}`) +
        line(7, `event=dlsym caller=${theirs} of=next symbol=cuInit library=${theirs}`),
    );
    assert.deepEqual(bindings, []);
    assert.equal(asked, false);
  });

  test('functions from cuGetProcAddress do not count as bindings of the loader', () => {
    const { bindings } = only(
      line(7, `event=cuGetProcAddress of=${ours} symbol=cuMemAlloc version=12000 library=${ours}`),
    );
    assert.deepEqual(bindings, [
      { way: 'driver', by: null, library: ours, example: 'cuMemAlloc', vendor: 'vgpu', symbols: 1 },
    ]);
  });

  test('only opened drivers are recorded, with their vendor', () => {
    const names = [
      theirs,
      'libcuda.so',
      'libcuda.so.1',
      'libnvidia-ml.so.1',
      'libcudart.so.12',
      'notlibcuda.so.1',
      'libcuda.sofa',
    ];
    const { opened, asked, bypassed } = only(
      names.map((file) => line(7, `event=dlopen caller=/x file=${file} flags=2 deepbind=no`)).join('') +
        line(7, 'event=object object=/l/deep.so') +
        line(7, 'event=bypassed object=/l/deep.so symbol=dlsym library=/lib/libc.so.6'),
    );
    assert.deepEqual(opened, [
      { file: theirs, vendor: 'nvidia' },
      ...['libcuda.so', 'libcuda.so.1', 'libnvidia-ml.so.1'].map((file) => ({ file, vendor: null })),
    ]);
    assert.equal(asked, true);
    assert.deepEqual(bypassed, ['/l/deep.so']);
  });

  test('a process that makes names up fills no memory: a hundred of each kind are kept', () => {
    const many = Array.from({ length: 101 }, (_, at) =>
      [
        line(7, `event=dlopen caller=/x file=/${at}/libcuda.so.1 flags=2 deepbind=no`),
        line(7, `event=bypassed object=/${at}.so symbol=dlsym library=/lib/libc.so.6`),
        line(7, `event=dlsym caller=/${at} of=default symbol=cuInit library=${ours}`),
      ].join(''),
    ).join('');
    const { opened, bypassed, bindings } = only(many);
    assert.deepEqual([opened.length, bypassed.length, bindings.length], [100, 100, 100]);
  });

  test('a library that cannot be read any more has no owner', () => {
    const [binding] = only(line(7, 'event=dlsym caller=/x of=default symbol=cuInit library=/gone')).bindings;
    assert.equal(binding?.vendor, null);
  });

  test('only files that may be read are listed: absolute paths of drivers, and the files of symbols', () => {
    const read = readTrace(
      line(7, `event=dlopen caller=/x file=${theirs} flags=2 deepbind=no`) +
        line(7, 'event=dlopen caller=/x file=libcuda.so.1 flags=2 deepbind=no') +
        line(7, 'event=dlopen caller=/x file=/etc/shadow flags=2 deepbind=no') +
        line(7, 'event=dlsym caller=/x of=default symbol=cuNone library=-') +
        line(7, 'event=bypassed object=/l/deep.so symbol=dlsym library=/lib/libc.so.6') +
        line(7, `event=dlsym caller=/x of=default symbol=cuInit library=${ours}`),
    );
    assert.deepEqual([...librariesOf(read)], [theirs, ours]);
  });

  test('a process with the tracer that wrote nothing is reported; a flood of processes is only counted', () => {
    const live = { pid: 9, program: '/usr/bin/quiet', traced: true };
    const { processes } = gathered(line(7, 'event=object object=/x'), [
      live,
      { ...live, pid: 7 },
      { ...live, pid: 8, traced: false },
      { ...live, pid: 10, traced: null },
    ]);
    const silent = { bindings: [], opened: [], bypassed: [], asked: false };
    assert.deepEqual(processes, [
      { pid: 7, program: null, ...silent },
      { pid: 9, program: '/usr/bin/quiet', ...silent },
    ]);
    const flood = Array.from({ length: 700 }, (_, at) => line(at + 1, 'event=object object=/x')).join('');
    const found = gathered(flood);
    assert.deepEqual([found.processes.length, found.more], [500, 200]);
  });
});
