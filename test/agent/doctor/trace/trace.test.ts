// From the tracer's lines to the finding: hostile and torn lines, grouping, and what follows from what was seen.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { LibraryVendor } from '../../../../agent/contracts/facts.js';
import { tracedBindings } from '../../../../agent/doctor/checks/traced-bindings.js';
import { gatherTrace, librariesOf, type TracedProcess } from '../../../../agent/doctor/trace/bindings.js';
import { readTrace } from '../../../../agent/doctor/trace/events.js';
import type { TracedStart } from '../../../../agent/doctor/trace/types.js';
import { styleFor } from '../../../../agent/output/style.js';
import { traceText } from '../../../../agent/output/trace-text.js';
import { findingsOf } from '../../confirm/support.js';
import { doctorFacts, troubleOf } from '../support.js';

const ours = '/opt/vgpu/current/libcuda.so.1';
const theirs = '/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01';
const vendors = new Map<string, LibraryVendor>([
  [ours, 'vgpu'],
  [theirs, 'nvidia'],
]);

function line(pid: number, rest: string): string {
  return `time=12.345678 pid=${pid} ${rest}\n`;
}

function gathered(text: string, live: Parameters<typeof gatherTrace>[2] = []) {
  return gatherTrace(readTrace(text).events, vendors, live);
}

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
    const { events, strange } = readTrace(text);
    assert.equal(strange, 0);
    assert.deepEqual(
      events.map(({ kind }) => kind),
      ['process', 'object', 'dlopen', 'dlsym', 'cuGetProcAddress', 'binds', 'bypassed'],
    );
    assert.deepEqual(events[0], { pid: 7, kind: 'process', program: '/opt/a b/x' });
    assert.deepEqual(events[3], { pid: 7, kind: 'dlsym', caller: null, symbol: 'cuInit', library: ours });
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
    ['a lookup without a symbol', line(7, `event=dlsym library=${ours}`)],
    ['words in a line', line(7, 'event=object object=/x and more')],
    ['an empty line', '\n'],
    ['a line longer than any of the tracer', line(7, `event=object object=/${'x'.repeat(3000)}`)],
    ['bytes that are no text', '\u0000\u001b[31m\ufffd\n'],
  ] as const) {
    test(`${what} is counted and passed over`, () => {
      const first = bad.endsWith(good) ? '' : good;
      const { events, strange } = readTrace(`${first}${bad}`);
      assert.equal(strange, 1);
      assert.equal(events.length, first === '' ? 0 : 1);
    });
  }

  test('sixteen megabytes of the worst are read in their time, and not all is kept', () => {
    const many = 'time=1.000000 pid=7 event=object object=/x\n'.repeat(380_000);
    const { events, strange } = readTrace(many);
    assert.equal(events.length, 300_000);
    assert.equal(strange, 80_000);
    assert.equal(readTrace('x'.repeat(16 * 1024 * 1024)).strange, 1);
  });
});

describe('what a process bound', () => {
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

  test('what was not found, is not bound yet, or a library finds in itself, is no binding', () => {
    const { bindings, asked } = only(
      line(7, 'event=dlsym caller=/x of=default symbol=cuNoSuchThing library=-') +
        line(7, 'event=binds object=program symbol=cuInit how=lazy library=-') +
        line(7, `event=binds object=${ours} symbol=cuInit how=direct library=${ours}`) +
        line(7, `event=dlsym caller=${theirs} of=next symbol=cuInit library=${theirs}`),
    );
    assert.deepEqual(bindings, []);
    assert.equal(asked, false);
  });

  test('a library that nobody can read any more has no owner', () => {
    const [binding] = only(line(7, 'event=dlsym caller=/x of=default symbol=cuInit library=/gone')).bindings;
    assert.equal(binding?.vendor, null);
  });

  test('only what may be read is asked for: absolute paths of drivers, and what symbols were found in', () => {
    const { events } = readTrace(
      line(7, `event=dlopen caller=/x file=${theirs} flags=2 deepbind=no`) +
        line(7, 'event=dlopen caller=/x file=libcuda.so.1 flags=2 deepbind=no') +
        line(7, 'event=dlopen caller=/x file=/etc/shadow flags=2 deepbind=no') +
        line(7, `event=dlsym caller=/x of=default symbol=cuInit library=${ours}`),
    );
    assert.deepEqual([...librariesOf(events)], [theirs, ours]);
  });

  test('who has the tracer and wrote nothing is told; processes without end are counted', () => {
    const live = { pid: 9, program: '/usr/bin/quiet', traced: true, deaf: null };
    const { processes } = gathered(line(7, 'event=object object=/x'), [live]);
    assert.deepEqual(
      processes.map(({ pid, asked }) => [pid, asked]),
      [
        [7, false],
        [9, false],
      ],
    );
    const flood = Array.from({ length: 700 }, (_, at) => line(at + 1, 'event=object object=/x')).join('');
    const found = gathered(flood);
    assert.deepEqual([found.processes.length, found.more], [500, 200]);
  });
});

function traced(text: string, changes: Partial<TracedStart> = {}): TracedStart {
  const live = changes.live ?? [];
  return {
    kind: 'traced',
    ...gathered(text, live),
    live,
    lines: readTrace(text).events.length,
    strange: 0,
    cut: false,
    complete: true,
    ...changes,
  };
}

const cpu = { log: findingsOf('0.32.9_cuda_v13_no-libcuda_debug0') };
const program = line(7, 'event=process program=/usr/local/lib/ollama/llama-server');
const toOurs = line(7, `event=binds object=/l/libggml-cuda.so symbol=cuInit how=direct library=${ours}`);
const toTheirs = line(7, `event=dlsym caller=/l/libcudart.so of=${theirs} symbol=cuInit library=${theirs}`);
const opensTheirs = line(7, `event=dlopen caller=/l/libcudart.so file=${theirs} flags=2 deepbind=no`);
const bypass = line(7, 'event=bypassed object=/l/deep.so symbol=dlsym library=/lib/libc.so.6');

describe('traced-bindings', () => {
  test('was not asked for: it says how, and is no alarm', () => {
    assert.equal(tracedBindings.examine(doctorFacts()).kind, 'not-applicable');
    const declined = { kind: 'not-traced', why: 'nothing was restarted', declined: true } as const;
    assert.equal(tracedBindings.examine(doctorFacts({ trace: declined })).kind, 'not-applicable');
    const impossible = { kind: 'not-traced', why: 'x', declined: false } as const;
    assert.equal(tracedBindings.examine(doctorFacts({ trace: impossible })).kind, 'unknown');
  });

  test('all ours is well, also where one library goes its own way and the service is on the GPU', () => {
    const finding = tracedBindings.examine(doctorFacts({ trace: traced(program + toOurs + bypass) }));
    assert.equal(finding.kind, 'ok');
    assert.deepEqual('evidence' in finding && finding.evidence, [
      'llama-server (process 7): the symbol cuInit of libggml-cuda.so -> our libcuda.so.1',
      'what /l/deep.so looks up is not seen: RTLD_DEEPBIND, or it is bound to itself',
    ]);
  });

  test('one symbol of somebody else is the reason, and is named with who calls it', () => {
    const trouble = troubleOf(
      tracedBindings.examine(doctorFacts({ trace: traced(program + toOurs + opensTheirs + toTheirs) })),
    );
    assert.equal(trouble.kind, 'broken');
    assert.match(trouble.cause, /^llama-server \(process 7\) calls \S+libcuda\.so\.550\.163\.01, NVIDIA's/);
    assert.match(
      trouble.evidence,
      /the symbol cuInit that libcudart\.so looked up -> \S+550\.163\.01, NVIDIA's/,
    );
    assert.match(trouble.evidence, /llama-server \(process 7\) opened \S+550\.163\.01, NVIDIA's/);
    assert.doesNotMatch(trouble.evidence, /our libcuda/);
  });

  test('off the GPU, what goes past the tracer is told as a warning', () => {
    const trace = traced(program + toOurs + bypass);
    const trouble = troubleOf(tracedBindings.examine(doctorFacts({ trace, observation: cpu })));
    assert.equal(trouble.kind, 'warning');
    assert.match(trouble.evidence, /deep\.so looks up is not seen/);
  });

  test('nobody opened libcuda: no driver can help, and each program is named', () => {
    const trace = traced(program + line(7, 'event=object object=/x'));
    const trouble = troubleOf(tracedBindings.examine(doctorFacts({ trace, observation: cpu })));
    assert.match(trouble.cause, /^None of its processes ever opened libcuda/);
    assert.equal(trouble.evidence, 'llama-server (process 7) never opened libcuda');
    const opened = traced(program + line(7, 'event=dlopen caller=/x file=libcuda.so.1 flags=2 deepbind=no'));
    const lacking = troubleOf(tracedBindings.examine(doctorFacts({ trace: opened, observation: cpu })));
    assert.match(lacking.cause, /asked for a CUDA driver and called nothing of it/);
  });

  for (const why of ['it gains rights when it is started', 'its program is for i386, 32 bits']) {
    test(`a tracer that is not heeded is not taken for a service without CUDA: ${why}`, () => {
      const live = [{ pid: 9, program: '/usr/bin/x', traced: false, deaf: why }];
      const finding = tracedBindings.examine(doctorFacts({ trace: traced('', { live }), observation: cpu }));
      assert.ok(finding.kind === 'unknown');
      assert.ok(finding.why.includes(why));
    });
  }

  test('a trace that was cut short or could not be read whole says so', () => {
    const trace = traced(program + toOurs, { cut: true, strange: 3, complete: false, more: 2 });
    const finding = tracedBindings.examine(doctorFacts({ trace }));
    const text = 'evidence' in finding ? finding.evidence.join('\n') : '';
    for (const told of [
      /reached its limit/,
      /3 lines of the trace could not be read/,
      /had not said/,
      /only counted/,
    ]) {
      assert.match(text, told);
    }
  });
});

test('a person sees programs that did the same together, nothing that a terminal obeys, and no long lines', () => {
  const plain = styleFor({ isTty: true, columns: 80, wanted: false, env: {} });
  const same = [7, 8].map((pid) => (program + toOurs).replaceAll('pid=7', `pid=${pid}`)).join('');
  const trace = traced(`${same}${line(9, 'event=process program=/usr/local/bin/ollama')}`);
  assert.deepEqual(traceText(trace, plain), [
    'one traced start (5 lines of the tracer)',
    '  llama-server (processes 7, 8)',
    '    the symbol cuInit of libggml-cuda.so -> our libcuda.so.1',
    '  ollama (process 9) never opened libcuda',
    '',
  ]);
  const evil = traced(
    line(7, `event=dlsym caller=/x of=default symbol=cu\u009bInit library="/tmp/a b ${'c'.repeat(60)}"`),
  );
  const lines = traceText(evil, plain).join('\n').split('\n');
  assert.ok(
    lines.every((one) => one.length <= 80 && !one.includes('\u009b')),
    lines.join('\n'),
  );
  assert.deepEqual(traceText(null, plain), []);
});
