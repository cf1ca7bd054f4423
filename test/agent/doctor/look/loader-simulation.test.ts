// The simulated loader beside the real one: real libraries, real starts, the link map compared.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { describe, it, type TestContext } from 'node:test';
import { parseLoaderDiagnostics } from '../../../../agent/doctor/look/loader-runtime.js';
import type { LoadResult } from '../../../../agent/doctor/look/loader-types.js';
import { buildElf, tree } from '../../machine/support.js';
import { type RealRun, really, type SimulatedRun, simulated, thisRuntime, Workshop } from './loading.js';

const skip = process.arch !== 'x64' && 'the libraries are linked for x86-64';
const cuda = { soname: 'libcuda.so.1' } as const;

function workshop(context: TestContext): Workshop {
  return new Workshop(tree(context));
}

/** The interpreter stands at another place of the link map in other versions: its order says nothing. */
function sortedObjects(run: RealRun | SimulatedRun): readonly string[] {
  return run.objects.filter((one) => !/\/ld-linux|\/ld\.so/.test(one));
}

/** Both runs agree; gives the simulated result of the last open. */
function agree(
  program: string,
  opens: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  options: { readonly cwd?: string; readonly secure?: boolean } = {},
): LoadResult | undefined {
  const real = really(program, opens, environment, options);
  const ours = simulated(program, opens, environment, {
    directory: options.cwd ?? '/',
    secure: options.secure ?? false,
  });
  assert.ok(real !== null, 'the program starts');
  assert.deepEqual(sortedObjects(ours), sortedObjects(real));
  assert.deepEqual(
    ours.results.map(({ result, missing }) => result.kind === 'found' && missing.length === 0),
    real.opened,
  );
  return ours.results.at(-1)?.result;
}

function pathOf(result: LoadResult | undefined): string {
  assert.equal(result?.kind, 'found');
  return result.kind === 'found' ? result.object.path : '';
}

describe('the simulated loader takes the file that the real one takes', { skip }, () => {
  it('from LD_LIBRARY_PATH, the first directory that has it, empty entries and ; included', (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    shop.library('b/libcuda.so.1', cuda);
    shop.library('c/libcuda.so.1', cuda);
    const found = agree(program, ['libcuda.so.1'], {
      LD_LIBRARY_PATH: `${shop.at('a')}:${shop.at('b')}/;${shop.at('c')}`,
    });
    assert.equal(pathOf(found), shop.at('b/libcuda.so.1'));
    const empty = agree(
      program,
      ['libcuda.so.1'],
      { LD_LIBRARY_PATH: `:${shop.at('b')}` },
      { cwd: shop.at('c') },
    );
    assert.equal(empty?.kind, 'found');
  });

  it('by $ORIGIN with and without braces, $LIB and $PLATFORM', (context) => {
    const shop = workshop(context);
    const runtime = thisRuntime();
    const program = shop.program('bin/main');
    shop.library('bin/x/libone.so.1', { soname: 'libone.so.1' });
    shop.library(`y/${runtime.lib}/libtwo.so.1`, { soname: 'libtwo.so.1' });
    shop.library(`z/${runtime.platform ?? 'none'}/libthree.so.1`, { soname: 'libthree.so.1' });
    agree(program, ['libone.so.1', 'libtwo.so.1', 'libthree.so.1'], {
      LD_LIBRARY_PATH: `$ORIGIN/x:\${ORIGIN}/../y/$LIB:${shop.at('z')}/$PLATFORM`,
    });
  });

  it('DT_RPATH of the program before LD_LIBRARY_PATH, DT_RUNPATH after it', (context) => {
    const shop = workshop(context);
    shop.library('path/libcuda.so.1', cuda);
    shop.library('env/libcuda.so.1', cuda);
    const environment = { LD_LIBRARY_PATH: shop.at('env') };
    const old = shop.program('old', { rpath: '$ORIGIN/path' });
    const first = agree(old, ['libcuda.so.1'], environment);
    assert.equal(pathOf(first), shop.at('path/libcuda.so.1'));
    assert.equal(first?.kind === 'found' && first.object.by, `DT_RPATH of ${old}`);
    const now = shop.program('new', { runpath: '$ORIGIN/path' });
    assert.equal(pathOf(agree(now, ['libcuda.so.1'], environment)), shop.at('env/libcuda.so.1'));
    assert.equal(pathOf(agree(now, ['libcuda.so.1'])), shop.at('path/libcuda.so.1'));
  });

  it('DT_RPATH is inherited by what the library needs, DT_RUNPATH is not', (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    shop.library('deep/libcuda.so.1', cuda);
    shop.library('by-rpath.so', { needed: ['libmid.so.1'], rpath: shop.at('deep') });
    shop.library('by-runpath.so', { needed: ['libmid.so.1'], runpath: shop.at('deep') });
    shop.library('deep/libmid.so.1', { soname: 'libmid.so.1', needed: ['libcuda.so.1'] });
    const inherited = agree(program, [shop.at('by-rpath.so')]);
    assert.equal(inherited?.kind, 'found');
    const ours = simulated(program, [shop.at('by-rpath.so')], {});
    assert.equal(ours.loader.loaded('libcuda.so.1')?.path, shop.at('deep/libcuda.so.1'));

    const real = really(program, [shop.at('by-runpath.so')], {});
    assert.deepEqual(real?.opened, [false]);
    const without = simulated(program, [shop.at('by-runpath.so')], {}).results[0];
    assert.deepEqual(
      without?.missing.map(({ name, neededBy, result }) => [name, neededBy, result.kind]),
      [['libcuda.so.1', shop.at('deep/libmid.so.1'), 'not-found']],
    );
    agree(program, [shop.at('by-runpath.so'), shop.at('by-rpath.so')]);
  });

  it('a library with DT_RUNPATH ignores every DT_RPATH above it', (context) => {
    const shop = workshop(context);
    shop.library('rpath/libcuda.so.1', cuda);
    shop.library('env/libcuda.so.1', cuda);
    const program = shop.program('main', { rpath: shop.at('rpath') });
    shop.library('plugin.so', { needed: ['libcuda.so.1'], runpath: '/nowhere' });
    shop.library('plain.so', { needed: ['libcuda.so.1'] });
    const environment = { LD_LIBRARY_PATH: shop.at('env') };
    agree(program, [shop.at('plugin.so')], environment);
    const run = simulated(program, [shop.at('plugin.so')], environment);
    assert.equal(run.loader.loaded('libcuda.so.1')?.path, shop.at('env/libcuda.so.1'));
    agree(program, [shop.at('plain.so')], environment);
    const plain = simulated(program, [shop.at('plain.so')], environment);
    assert.equal(plain.loader.loaded('libcuda.so.1')?.path, shop.at('rpath/libcuda.so.1'));
  });

  it('who calls dlopen decides whose DT_RPATH and DT_RUNPATH count', (context) => {
    const shop = workshop(context);
    for (const kind of ['rpath', 'runpath'] as const) {
      // Found by its path, it does not find what it needs through the DT_RPATH of its caller.
      shop.library(`${kind}/libcuda.so.1`, { ...cuda, needed: ['libnext.so.1'] });
      shop.library(`${kind}/libnext.so.1`, { soname: 'libnext.so.1' });
      shop.library(`${kind}-caller.so`, { [kind]: shop.at(kind), opens: true });
      const program = shop.program(`main-${kind}`);
      const caller = shop.at(`${kind}-caller.so`);
      agree(program, [caller, `${caller}@libnext.so.1`, 'libnext.so.1']);
      agree(program, [caller, `${caller}@${shop.at(`${kind}/libcuda.so.1`)}`]);
    }
  });

  it('a preload answers to its SONAME, whatever its path; a needed name finds it', (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    shop.library('shim/ours.so', cuda);
    shop.library('env/libcuda.so.1', cuda);
    shop.library('plugin.so', { needed: ['libcuda.so.1'] });
    const environment = {
      LD_PRELOAD: `${shop.at('shim/ours.so')} ${shop.at('missing.so')}:`,
      LD_LIBRARY_PATH: shop.at('env'),
    };
    agree(program, [shop.at('plugin.so')], environment);
    const run = simulated(program, [shop.at('plugin.so'), 'libcuda.so.1'], environment);
    const found = run.results[1]?.result;
    assert.equal(pathOf(found), shop.at('shim/ours.so'));
    assert.ok(found?.kind === 'found' && found.already && found.object.by === 'LD_PRELOAD');
    assert.deepEqual(
      run.loader.troubles.map(({ name, neededBy }) => [name, neededBy]),
      [[shop.at('missing.so'), 'LD_PRELOAD']],
    );
    // Design 1 of Ollama opens an absolute path: the preload does not answer to that.
    const absolute = agree(program, [shop.at('env/libcuda.so.1')], environment);
    assert.equal(absolute?.kind, 'found');
  });

  it('a library without a SONAME does not answer to one', (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    shop.library('shim/ours.so');
    shop.library('env/libcuda.so.1', cuda);
    agree(program, ['libcuda.so.1'], {
      LD_PRELOAD: shop.at('shim/ours.so'),
      LD_LIBRARY_PATH: shop.at('env'),
    });
  });

  it('one file under two names is one library', (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    shop.library('a/real.so', {});
    symlinkSync('real.so', shop.at('a/libcuda.so.1'));
    symlinkSync('real.so', shop.at('a/libcuda.so'));
    const found = agree(program, ['libcuda.so.1', 'libcuda.so'], { LD_LIBRARY_PATH: shop.at('a') });
    assert.ok(found?.kind === 'found' && found.already);
  });

  it('another class or machine is passed over; a file that is no library ends the search', (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    for (const name of ['i386', 'arm', 'text', 'short', 'directory/libcuda.so.1'])
      mkdirSync(shop.at(name), { recursive: true });
    writeFileSync(shop.at('i386/libcuda.so.1'), buildElf({ bits: 32, soname: 'libcuda.so.1' }));
    writeFileSync(shop.at('arm/libcuda.so.1'), buildElf({ machine: 183, soname: 'libcuda.so.1' }));
    writeFileSync(shop.at('text/libcuda.so.1'), `${'INPUT(-lcuda) '.repeat(20)}\n`);
    writeFileSync(shop.at('short/libcuda.so.1'), '');
    shop.library('good/libcuda.so.1', cuda);
    const over = agree(program, ['libcuda.so.1'], {
      LD_LIBRARY_PATH: [shop.at('i386'), shop.at('arm'), shop.at('good')].join(':'),
    });
    assert.equal(pathOf(over), shop.at('good/libcuda.so.1'));
    assert.deepEqual(
      over?.steps.filter(({ outcome }) => outcome === 'passed-over').map(({ reason }) => reason),
      ['32-bit i386: not for this process', '64-bit aarch64: not for this process'],
    );
    for (const bad of ['text', 'short', 'directory']) {
      const ended = agree(program, ['libcuda.so.1'], {
        LD_LIBRARY_PATH: `${shop.at(bad)}:${shop.at('good')}`,
      });
      assert.equal(ended?.kind, 'refused', bad);
    }
  });

  it('glibc-hwcaps before the directory itself, and every try in the real order', (context) => {
    const shop = workshop(context);
    const runtime = thisRuntime();
    const program = shop.program('main');
    const [best] = runtime.subdirectories;
    assert.ok(best !== undefined);
    shop.library('lib/libcuda.so.1', cuda);
    const environment = { LD_LIBRARY_PATH: shop.at('lib') };
    const plain = simulated(program, ['libcuda.so.1'], environment);
    // What the real loader learns of directories that are not there it does not try again: the first search tells all.
    const real = really(program, ['libcuda.so.1'], environment, { debug: true });
    const first = plain.results[0]?.result.steps.map(({ path }) => path.replace(/libcuda\.so\.1$/, '')) ?? [];
    const tried = (real?.tried ?? []).filter((one) => one.startsWith(shop.at('lib')) && !/libcuda/.test(one));
    assert.deepEqual(
      tried.slice(0, first.length).map((one) => one.replace(/[^/]+$/, '')),
      first,
    );
    shop.library(`lib/${best}/libcuda.so.1`, cuda);
    const found = agree(program, ['libcuda.so.1'], environment);
    assert.equal(pathOf(found), shop.at(`lib/${best}/libcuda.so.1`));
  });

  it('the cache and the default directories, which -z nodefaultlib leaves out', (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    const cached = agree(program, ['libm.so.6']);
    assert.ok(cached?.kind === 'found' && cached.object.by === 'ld.so.cache');
    const strict = shop.program('strict', {
      rpath: thisRuntime().systemDirectories.join(':'),
      flags: ['-z', 'nodefaultlib'],
    });
    const found = agree(strict, ['libm.so.6']);
    assert.ok(found?.kind === 'found' && found.object.by.startsWith('DT_RPATH'));
    shop.library('plugin.so', { needed: ['libresolv.so.2'], flags: ['-z', 'nodefaultlib'] });
    assert.deepEqual(really(program, [shop.at('plugin.so')], {})?.opened, [false]);
    const run = simulated(program, [shop.at('plugin.so')], {}).results[0];
    assert.deepEqual(
      run?.missing.map(({ name, result }) => [name, result.kind]),
      [['libresolv.so.2', 'not-found']],
    );
  });

  it('with the rights of another it trusts the environment with nothing', {
    skip: process.geteuid?.() !== 0 && 'a set-user-ID program needs root',
  }, (context) => {
    const shop = workshop(context);
    const plain = shop.program('main', { runpath: '$ORIGIN/own' });
    const program = shop.at('secure');
    copyFileSync(plain, program);
    chownSync(program, 65534, 65534);
    chmodSync(program, 0o4755);
    chmodSync(shop.directory, 0o755);
    for (const place of ['own', 'env']) shop.library(`${place}/libcuda.so.1`, { soname: 'libcuda.so.1' });
    const environment = {
      LD_LIBRARY_PATH: shop.at('env'),
      LD_PRELOAD: `${shop.at('env/libcuda.so.1')} libm.so.6`,
    };
    agree(plain, ['libcuda.so.1'], environment);
    const found = agree(program, ['libcuda.so.1'], environment, { secure: true });
    assert.notEqual(found?.kind === 'found' && found.object.path, shop.at('env/libcuda.so.1'));
  });
});

describe('what a loader tells about itself', () => {
  it('is read: directories, $LIB, $PLATFORM and subdirectories as ld.so --help names them', { skip }, () => {
    const runtime = thisRuntime();
    const help = spawnSync('/lib64/ld-linux-x86-64.so.2', ['--help'], { encoding: 'utf8' }).stdout;
    const searched = [...help.matchAll(/^ {2}(x86-64-v\d) \(supported, searched\)$/gm)].map(
      (match) => match[1],
    );
    assert.deepEqual(
      runtime.subdirectories.filter((one) => one.startsWith('glibc-hwcaps/')),
      searched.map((one) => `glibc-hwcaps/${one}`),
    );
    const directories = [...help.matchAll(/^ {2}(\/\S+) \(system search path\)$/gm)].map((match) => match[1]);
    assert.deepEqual(runtime.systemDirectories, directories);
  });

  it('newer ones have no legacy subdirectories; what is no glibc loader is null', () => {
    const text = (version: string): string =>
      [
        'dl_dst_lib="lib64"',
        'dl_hwcap=0x6',
        'dl_hwcap_important=0x6',
        'dl_hwcaps_subdirs="x86-64-v4:x86-64-v3:x86-64-v2"',
        'dl_hwcaps_subdirs_active=0x6',
        'dl_platform="haswell"',
        'path.system_dirs[0x0]="/lib64/"',
        'path.system_dirs[0x1]="/usr/lib64/"',
        `version.version="${version}"`,
        '',
      ].join('\n');
    assert.deepEqual(parseLoaderDiagnostics(text('2.41')), {
      version: [2, 41],
      lib: 'lib64',
      platform: 'haswell',
      systemDirectories: ['/lib64', '/usr/lib64'],
      subdirectories: ['glibc-hwcaps/x86-64-v3', 'glibc-hwcaps/x86-64-v2'],
    });
    assert.equal(parseLoaderDiagnostics(text('2.36'))?.subdirectories[2], 'tls/haswell/avx512_1/x86_64');
    assert.equal(parseLoaderDiagnostics('musl libc (x86_64)\nVersion 1.2.5\n'), null);
  });
});
