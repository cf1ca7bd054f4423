// When the service collects its garbage.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Memory, memory } from '../../../agent/service/own-process.js';

interface Heap {
  live: number;
  old: number;
  external: number;
  collections: number;
  collect: () => void;
  size: () => { old: number; external: number };
}

/** A heap with `live` bytes, of which a collection takes everything but those. */
function heap(live: number): Heap {
  const one = {
    live,
    old: live,
    external: 0,
    collections: 0,
    collect: () => {
      one.old = one.live;
      one.external = 0;
      one.collections += 1;
    },
    size: () => ({ old: one.old, external: one.external }),
  };
  return one;
}

/** The ticks at which a collection took place. */
function collecting(one: Heap, tidy: Memory, ticks: number): readonly number[] {
  const at: number[] = [];
  for (let tick = 0; tick < ticks; tick += 1) {
    const before = one.collections;
    tidy.tick();
    if (one.collections > before) at.push(tick);
  }
  return at;
}

test('after work the memory is collected at once and 1, 2, 4 and 8 ticks later, twice each', () => {
  const one = heap(8e6);
  const tidy = memory(one);
  assert.deepEqual(collecting(one, tidy, 100), [0, 1, 2, 4, 8]);
  assert.equal(one.collections, 10);
  one.old += 1.5 * 1024 * 1024 - 1;
  assert.deepEqual(collecting(one, tidy, 100), [], 'less than 1.5 MB is left alone');
  one.old += 1;
  assert.deepEqual(collecting(one, tidy, 100), [0, 1, 2, 4, 8]);
});

test('what work in progress holds during two collections is collected when the work has ended', () => {
  const one = heap(10e6);
  const tidy = memory(one);
  collecting(one, tidy, 2);
  one.live = 9e6;
  tidy.tick();
  assert.equal(one.old, 9e6);
});

test('the buffers of a minute of looks are left to the engine', () => {
  const one = heap(8e6);
  const tidy = memory(one);
  collecting(one, tidy, 9);
  one.external += 2 * 1024 * 1024;
  assert.deepEqual(collecting(one, tidy, 9), []);
  one.external += 2 * 1024 * 1024;
  tidy.tick();
  assert.equal(one.external, 0);
});

test('without a collector a tick does nothing', () => {
  memory(null).tick();
});
