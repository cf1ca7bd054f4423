import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { describe, it, type TestContext } from 'node:test';
import type { LoadedUnit } from '../../../../agent/contracts/unit.js';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import { Root } from '../../../../agent/guest/files/root.js';
import {
  type LoaderChoice,
  type LoaderLook,
  lookAtLoader,
  type Opener,
} from '../../../../agent/guest/look/loader.js';
import { spawnRunner } from '../../../../agent/lib/run-command.js';
import type { UnitCommand } from '../../../../agent/systemd/run-in-unit.js';
import { facts, unit } from '../../install/plan/support.js';
import { buildElf, tree } from '../support.js';
import { Workshop } from './workshop.js';

// The real loader is asked about real libraries, and its answer becomes a choice.

const skip = process.arch !== 'x64' && 'the libraries are linked for x86-64';
const cuda = { soname: 'libcuda.so.1' } as const;

function workshop(context: TestContext): Workshop {
  return new Workshop(tree(context));
}

/** The questions for the next start of a unit with that program and environment. */
async function look(
  program: string,
  environment: LoadedUnit['environment'],
  openers: readonly Opener[] = [],
  commands: UnitCommand[] = [],
): Promise<LoaderLook> {
  const runner = spawnRunner();
  return lookAtLoader({
    root: new Root('/'),
    contents: new ContentCache(),
    facts: facts({ unit: unit({ execStart: [program], environment }), serviceUser: null, processes: [] }),
    openers,
    runner,
    // In a guest it is a transient unit (test/guest/doctor/settings.test.ts).
    runInUnit: async (command) => {
      commands.push(command);
      const ran = await runner.run(command.program, command.args, { env: command.environment });
      const [stdout, stderr] = [ran.stdout.toString('utf8'), ran.stderr.toString('utf8')];
      return {
        kind: 'ran',
        exitCode: ran.code,
        signal: null,
        timedOut: false,
        stdout,
        stderr,
        milliseconds: 1,
      };
    },
  });
}

function choiceOf(look: LoaderLook, neededBy: string | null = null, library = 'libcuda.so.1'): LoaderChoice {
  assert.equal(look.problem, null);
  const found = look.processes
    .flatMap(({ choices }) => choices)
    .find((one) => one.neededBy === neededBy && one.library === library);
  assert.ok(found !== undefined, JSON.stringify(look));
  return found;
}

/** `BY PATH`, or the kind of another outcome. */
function told({ outcome }: LoaderChoice): string {
  return outcome.kind === 'found' ? `${outcome.by} ${outcome.path}` : outcome.kind;
}

describe('the library that the loader chooses', { skip }, () => {
  it('is reported with the list that contains it', async (context) => {
    const shop = workshop(context);
    const program = shop.program('bin/main', { runpath: '$ORIGIN/../run' });
    const env = shop.library('env/libcuda.so.1', cuda);
    const run = shop.library('run/libcuda.so.1', cuda);
    const environment = { LD_LIBRARY_PATH: `${shop.at('none')}:${shop.at('env')}` };
    assert.equal(told(choiceOf(await look(program, environment))), `LD_LIBRARY_PATH ${env}`);
    assert.equal(told(choiceOf(await look(program, {}))), `DT_RUNPATH of ${program} ${run}`);
    const old = shop.program('old/main', { rpath: shop.at('run') });
    assert.equal(told(choiceOf(await look(old, environment))), `DT_RPATH of ${old} ${run}`);
  });

  it('of a preload is the library with the SONAME, whatever its path and whatever else is found', async (context) => {
    const shop = workshop(context);
    const ours = shop.library('shim/ours.so', cuda);
    shop.library('env/libcuda.so.1', cuda);
    const environment = {
      LD_PRELOAD: `${shop.at('missing.so')}:${ours}`,
      LD_LIBRARY_PATH: shop.at('env'),
    };
    const opener = shop.library('lib/plugin.so', { needed: ['libcuda.so.1'] });
    const openers = [{ path: opener, needed: ['libcuda.so.1'] }];
    const seen = await look(shop.program('main'), environment, openers);
    assert.equal(told(choiceOf(seen)), `LD_PRELOAD ${ours}`);
    assert.equal(told(choiceOf(seen, opener)), `LD_PRELOAD ${ours}`);
    assert.equal(told(choiceOf(seen, null, 'libnvidia-ml.so.1')), 'not-found');
  });

  it('at the start is found before what dlopen() would find', async (context) => {
    const shop = workshop(context);
    const deep = shop.library('deep/libcuda.so.1', cuda);
    shop.library('env/libcuda.so.1', cuda);
    shop.library('env/libmid.so.1', {
      soname: 'libmid.so.1',
      needed: ['libcuda.so.1'],
      rpath: shop.at('deep'),
    });
    const program = shop.program('main', { needed: ['libmid.so.1'] });
    const seen = await look(program, { LD_LIBRARY_PATH: shop.at('env') });
    assert.equal(told(choiceOf(seen)), `DT_RPATH of ${shop.at('env/libmid.so.1')} ${deep}`);
  });

  it('has the functions of the driver that nothing provides, and no others', async (context) => {
    const shop = workshop(context);
    shop.library('lib/libcuda.so.1', { ...cuda, defines: ['cuInit'] });
    const opener = shop.library('lib/plugin.so', {
      needed: ['libcuda.so.1'],
      uses: ['cuInit', 'cuNotInventedYet', 'cublasNot', 'nvmlNot'],
    });
    const openers = [{ path: opener, needed: ['libcuda.so.1'] }];
    const seen = await look(shop.program('main'), {}, openers);
    assert.deepEqual(choiceOf(seen, opener).missing, ['cuNotInventedYet']);
  });

  it('for a library of the consumer is searched with its own lists and beside it', async (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    const beside = shop.library('lib/v13/libcuda.so.1', cuda);
    const opener = shop.library('lib/v13/plugin.so', { needed: ['libcuda.so.1', 'libnone.so.1'] });
    const bare = shop.library('other/v12/plugin.so', { needed: ['libcuda.so.1'] });
    const openers = [opener, bare].map((one) => ({ path: one, needed: ['libcuda.so.1'] }));
    const seen = await look(program, {}, openers);
    assert.equal(told(choiceOf(seen, opener)), `LD_LIBRARY_PATH ${beside}`);
    assert.equal(told(choiceOf(seen, bare)), 'not-found');
  });

  it('is not a library for another machine; the reason is reported', async (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    for (const name of ['i386', 'arm']) mkdirSync(shop.at(name));
    writeFileSync(shop.at('i386/libcuda.so.1'), buildElf({ bits: 32, soname: 'libcuda.so.1' }));
    writeFileSync(shop.at('arm/libcuda.so.1'), buildElf({ machine: 183, soname: 'libcuda.so.1' }));
    const good = shop.library('good/libcuda.so.1', cuda);
    const list = ['i386', 'arm', 'good'].map((name) => shop.at(name)).join(':');
    const choice = choiceOf(await look(program, { LD_LIBRARY_PATH: list }));
    assert.equal(told(choice), `LD_LIBRARY_PATH ${good}`);
    const [first, second, ...rest] = choice.passedOver;
    assert.match(first ?? '', /^tried \S+\/i386\/libcuda\.so\.1 \(LD_LIBRARY_PATH\): .* is for 32-bit i386/);
    assert.match(second ?? '', /\/arm\/.* is for 64-bit aarch64/);
    assert.deepEqual(rest, []);
  });

  it('is nothing where a file is met that is no library, whichever user asks', async (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    const opener = shop.library('lib/plugin.so', { needed: ['libcuda.so.1'] });
    const needs = shop.program('needs', { needed: ['libcuda.so.1'] });
    const openers = [{ path: opener, needed: ['libcuda.so.1'] }];
    shop.library('good/libcuda.so.1', cuda);
    for (const [name, content] of [
      ['text', 'INPUT(-lcuda) '.repeat(20)],
      ['short', ''],
    ] as const) {
      mkdirSync(shop.at(name));
      writeFileSync(shop.at(`${name}/libcuda.so.1`), content);
      const environment = { LD_LIBRARY_PATH: `${shop.at(name)}:${shop.at('good')}` };
      const seen = await look(program, environment, openers);
      for (const choice of [
        choiceOf(seen),
        choiceOf(seen, opener),
        choiceOf(await look(needs, environment)),
      ]) {
        assert.ok(choice.outcome.kind === 'refused', JSON.stringify(choice));
        assert.equal(choice.outcome.path, shop.at(`${name}/libcuda.so.1`));
        assert.match(choice.outcome.reason, /is not a shared library/);
      }
    }
  });

  it('comes from the cache of the system', async (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    const seen = await look(program, {}, [
      { path: shop.library('a.so', { needed: ['libm.so.6'] }), needed: ['libm.so.6'] },
    ]);
    // Libraries that were not requested are not reported.
    assert.deepEqual(
      seen.processes.flatMap(({ choices }) => choices.map(told)),
      ['not-found', 'not-found'],
    );
  });
});

describe('the question to the loader', { skip }, () => {
  it('never runs the program', async (context) => {
    const shop = workshop(context);
    const program = shop.program('main');
    const commands: UnitCommand[] = [];
    await look(program, {}, [], commands);
    if (process.geteuid?.() !== 0) return;
    assert.ok(commands.length > 0);
    for (const { program: executed, environment, args } of commands) {
      assert.match(executed, /\/ld-linux/);
      assert.equal(environment['LD_TRACE_LOADED_OBJECTS'], '1');
      assert.equal(args.at(-1), program);
    }
  });

  it('is not put to a loader that another user can change', async (context) => {
    const shop = workshop(context);
    chmodSync(shop.directory, 0o777);
    const mine = shop.at('ld.so');
    writeFileSync(mine, '#!/bin/sh\ntouch "$0.ran"\n', { mode: 0o777 });
    const program = shop.program('main', { interpreter: mine });
    const commands: UnitCommand[] = [];
    const seen = await look(program, {}, [], commands);
    assert.match(seen.problem ?? '', /another user than root can change/);
    assert.deepEqual(commands, []);
  });

  it('is not put to a loader that would run the program', async (context) => {
    const shop = workshop(context);
    const musl = shop.library('ld-musl-x86_64.so.1', { soname: 'libc.musl-x86_64.so.1' });
    const commands: UnitCommand[] = [];
    const seen = await look(shop.program('main', { interpreter: musl }), {}, [], commands);
    assert.match(seen.problem ?? '', /not glibc's loader/);
    assert.deepEqual(commands, []);
  });

  it('cannot be put for a script, nor for a file that is not there', async (context) => {
    const shop = workshop(context);
    writeFileSync(shop.at('script'), '#!/bin/sh\n', { mode: 0o755 });
    for (const program of [shop.at('script'), shop.at('none')]) {
      const seen = await look(program, {});
      assert.match(seen.problem ?? '', /no dynamic loader starts this program/);
      assert.deepEqual(seen.processes, []);
    }
  });
});
