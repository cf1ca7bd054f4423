// Random arrangements of libraries, search paths and environments: the simulated loader and the real one end
// with the same link map. VGPU_TEST_LONG=1 tries five hundred instead of twenty.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { tree } from '../../machine/support.js';
import { really, simulated, thisRuntime, Workshop } from './loading.js';

const skip = process.arch !== 'x64' && 'the libraries are linked for x86-64';
const rounds = process.env['VGPU_TEST_LONG'] === '1' ? 500 : 20;

/** mulberry32: the same arrangements on every machine. */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const names = ['libcuda.so.1', 'libalpha.so.1', 'libbeta.so.1', 'libgamma.so.1'];
const directories = ['d1', 'd2', 'd3'];

it('any arrangement ends as with the real loader', { skip }, (context) => {
  const runtime = thisRuntime();
  const [hwcap = 'none'] = runtime.subdirectories;
  let started = 0;
  for (let round = 0; round < rounds; round += 1) {
    const random = generator(round + 1);
    const some = <Item>(from: readonly Item[], chance: number): Item[] =>
      from.filter(() => random(100) < chance);
    const shop = new Workshop(tree(context));
    const list = (chance: number): string =>
      some([...directories.map((one) => shop.at(one)), '$ORIGIN/../d2', '$ORIGIN'], chance).join(':');
    const paths = (): { rpath?: string; runpath?: string } => {
      const value = list(40);
      if (value === '' || random(3) === 0) return {};
      return random(2) === 0 ? { rpath: value } : { runpath: value };
    };
    for (const directory of directories) {
      for (const [index, name] of names.entries()) {
        if (random(100) >= 55) continue;
        const below = random(5) === 0 ? `${directory}/${hwcap}` : directory;
        // Only later ones, so that no circle hides what is searched first.
        const needed = some(names.slice(index + 1), 45);
        const flags = random(8) === 0 ? ['-z', 'nodefaultlib'] : [];
        shop.library(`${below}/${name}`, {
          ...(random(6) === 0 ? {} : { soname: name }),
          needed,
          flags,
          ...paths(),
        });
      }
    }
    shop.library('plugin.so', { needed: some(names, 50), ...paths() });
    const program = shop.program('bin/main', paths());
    const environment = {
      LD_LIBRARY_PATH: list(40),
      LD_PRELOAD: some([shop.at('d1/libcuda.so.1'), 'libbeta.so.1', shop.at('none.so')], 30).join(':'),
    };
    const opens = [shop.at('plugin.so'), 'libcuda.so.1', shop.at('d2/libalpha.so.1')];
    const real = really(program, opens, environment);
    const ours = simulated(program, opens, environment);
    const told = `arrangement ${round + 1}: ${JSON.stringify(environment)}`;
    const preloads = ours.loader.troubles.filter(({ neededBy }) => neededBy !== 'LD_PRELOAD');
    assert.equal(real !== null, preloads.length === 0, `${told}: starts`);
    if (real === null) continue;
    started += 1;
    assert.deepEqual(
      ours.objects.filter((one) => !one.includes('/ld-linux')),
      real.objects.filter((one) => !one.includes('/ld-linux')),
      told,
    );
    assert.deepEqual(
      ours.results.map(({ result, missing }) => result.kind === 'found' && missing.length === 0),
      real.opened,
      told,
    );
  }
  assert.ok(started > rounds / 2, `${started} of ${rounds} started`);
});
