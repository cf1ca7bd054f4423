import assert from 'node:assert/strict';
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { buildProgram, type Ended, runProgram } from '../cuda/private_programs.js';
import { builtFile, SHIM, scratchDirectory, VARIANT } from '../shim_host.js';

const skip =
  VARIANT !== 'shim'
    ? 'interposes what sanitizers interpose'
    : process.arch === 'x64'
      ? false
      : 'written for x86-64 only';

type Line = Readonly<Record<string, string>>;

/** The key=value pairs of each line; throws for a line that is not whole. */
function parse(text: string): Line[] {
  assert.ok(text === '' || text.endsWith('\n'), 'the last line is whole');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const pairs = [...line.matchAll(/(?:^| )([a-z]+)=("(?:[^"\\]|\\.)*"|[^ "]+)/g)];
      assert.equal(pairs.map(([whole]) => whole).join(''), line);
      return Object.fromEntries(pairs.map(([, key = '', value = '']) => [key, value]));
    });
}

describe('libvgpu-trace.so', { skip }, () => {
  const scratch = scratchDirectory();
  const trace = path.join(scratch.path, 'trace');
  const cuda = path.join(SHIM, 'libcuda.so.1');
  const copy = path.join(scratch.path, 'other/libcuda.so.1');
  let guest = '';
  let library = '';
  let runs = 0;

  before(async () => {
    builtFile('libvgpu-trace.so');
    library = await buildProgram({
      name: 'libtrace-library.so',
      sources: ['test/shim/programs/trace_library.c'],
      sanitize: 'none',
      soname: 'libtrace-library.so',
    });
    guest = await buildProgram({
      name: 'trace-guest',
      sources: ['test/shim/programs/trace_guest.c', builtFile('libcuda.so.1')],
      sanitize: 'none',
    });
    mkdirSync(path.dirname(copy));
    copyFileSync(cuda, copy);
  });
  after(() => scratch.remove());

  const start = (
    preload: readonly string[],
    env: Readonly<Record<string, string>>,
    words: readonly string[],
  ): Promise<Ended> =>
    runProgram(guest, words, {
      env: { VGPU_HOST: 'unix:/nonexistent', LD_LIBRARY_PATH: SHIM, LD_PRELOAD: preload.join(':'), ...env },
    });

  /** A run with the tracer, which must not be told from one without by what the program prints. */
  const traced = async (words: readonly string[], others: readonly string[] = []): Promise<Line[]> => {
    runs += 1;
    const file = `${trace}-${runs}`;
    const plain = await start(others, {}, words);
    const ended = await start([builtFile('libvgpu-trace.so'), ...others], { VGPU_TRACE: file }, words);
    assert.deepEqual(
      [ended.code, ended.signal, ended.stdout, ended.stderr],
      [plain.code, plain.signal, plain.stdout, plain.stderr],
    );
    assert.equal(ended.code, 0, ended.stderr);
    return parse(readFileSync(file, 'utf8'));
  };
  const where = (lines: readonly Line[], wanted: Line): Line[] =>
    lines.filter((line) => Object.entries(wanted).every(([key, value]) => line[key] === value));
  const only = (lines: readonly Line[], wanted: Line): Line => {
    const [found, ...more] = where(lines, wanted);
    assert.ok(
      found !== undefined && more.length === 0,
      `one line ${JSON.stringify(wanted)}: ${JSON.stringify(lines)}`,
    );
    return found;
  };

  it('prints nothing without a destination', async () => {
    const ended = await start([builtFile('libvgpu-trace.so')], {}, ['looks']);
    assert.equal(ended.code, 0, ended.stderr);
    assert.equal(ended.stderr, '');
    assert.equal(existsSync(trace), false);
  });

  it('writes to standard error for "-", and does without a file that cannot be written', async () => {
    const told = await start([builtFile('libvgpu-trace.so')], { VGPU_TRACE: '-' }, ['looks']);
    assert.equal(parse(told.stderr).filter(({ event }) => event === 'dlsym').length, 2);
    const lost = await start([builtFile('libvgpu-trace.so')], { VGPU_TRACE: '/nonexistent/file' }, ['looks']);
    assert.deepEqual([lost.code, lost.stderr, lost.stdout], [0, '', told.stdout]);
  });

  it('tells what is opened and where each symbol of CUDA was found', async () => {
    const lines = await traced(['looks']);
    assert.equal(only(lines, { event: 'dlopen' })['file'], 'libcuda.so.1');
    assert.equal(only(lines, { event: 'dlopen' })['deepbind'], 'no');
    const found = only(lines, { event: 'dlsym', symbol: 'cuInit' });
    assert.deepEqual([found['of'], found['library'], found['caller']], [cuda, cuda, guest]);
    assert.equal(only(lines, { event: 'dlsym', symbol: 'cuNoSuchThing' })['library'], '-');
    assert.deepEqual(where(lines, { symbol: 'malloc' }), [], 'of others nothing is told');
  });

  it('tells what direct linking is bound to, which no interposer sees', async () => {
    const lines = await traced(['direct']);
    const bound = where(lines, { event: 'binds', object: 'program', symbol: 'cuDriverGetVersion' });
    assert.equal(bound.at(-1)?.['library'], cuda, JSON.stringify(bound));
    assert.equal(bound.at(-1)?.['how'], 'direct');
    assert.deepEqual(where(lines, { event: 'dlsym' }), []);
  });

  it('tells of RTLD_DEEPBIND, and that lookups of such a library do not come by', async () => {
    const deep = await traced(['through', library, 'deep']);
    assert.equal(only(deep, { event: 'dlopen', file: library })['deepbind'], 'yes');
    const bypassed = where(deep, { event: 'bypassed', object: library });
    assert.deepEqual(bypassed.map(({ symbol }) => symbol).sort(), ['dlopen', 'dlsym']);
    assert.match(bypassed[0]?.['library'] ?? '', /libc\.so\.6$/);
    assert.deepEqual(where(deep, { event: 'dlsym', symbol: 'cuInit' }), []);

    const plain = await traced(['through', library, 'plain']);
    assert.deepEqual(where(plain, { event: 'bypassed' }), []);
    assert.equal(only(plain, { event: 'dlsym', symbol: 'cuInit' })['caller'], library);
  });

  it('shows the results of cuGetProcAddress for each libcuda separately', async () => {
    const lines = await traced(['asks', cuda, copy]);
    const asked = (of: string, symbol: string): Line =>
      only(lines, { event: 'cuGetProcAddress', of, symbol });
    assert.equal(asked(cuda, 'cuMemAlloc')['library'], cuda);
    assert.equal(asked(copy, 'cuMemAlloc')['library'], copy);
    assert.equal(asked(copy, 'cuMemFree')['library'], copy, 'also by what it gave for itself');
    assert.deepEqual(
      [asked(copy, 'cuNoSuchThing')['status'], asked(copy, 'cuNoSuchThing')['library']],
      ['1', '-'],
    );
    assert.deepEqual(
      [asked(cuda, 'cuGraphAddNode')['version'], asked(cuda, 'cuGraphAddNode')['status']],
      ['8000', '2'],
    );
  });

  it('keeps the meaning of RTLD_NEXT: the next library after that of the caller', async () => {
    const lines = await traced(['next'], [library]);
    const asked = where(lines, { event: 'dlsym', symbol: 'cuInit' });
    assert.deepEqual(
      asked.map(({ of, caller }) => [of, caller]),
      [
        ['default', guest],
        ['next', library],
      ],
    );
  });

  it('names the program of each process that writes, once', async () => {
    const lines = await traced(['looks']);
    const { pid, program } = only(lines, { event: 'process' });
    assert.equal(program, guest);
    assert.ok(lines.every((line) => line['pid'] === pid));
  });

  it('adds nothing to a file that has reached VGPU_TRACE_LIMIT, and the program continues', async () => {
    const file = path.join(scratch.path, 'limited');
    const env = { VGPU_TRACE: file, VGPU_TRACE_LIMIT: '4096' };
    const ended = await start([builtFile('libvgpu-trace.so')], env, ['threads']);
    assert.equal(ended.code, 0, ended.stderr);
    const text = readFileSync(file, 'utf8');
    parse(text);
    // Each of the 16 threads may have been about to write the last one.
    assert.ok(text.length >= 4096 && text.length < 4096 + 17 * 2048, String(text.length));
  });

  it('writes whole lines from many threads at once', async () => {
    const lines = await traced(['threads']);
    assert.equal(where(lines, { event: 'dlsym' }).length, 16 * 200);
  });
});
