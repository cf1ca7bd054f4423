// When the service collects its garbage.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memory } from '../../../agent/service/own-process.js';

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

test('a tick after work collects twice, and the next one too; the ticks after that not at all', () => {
  const one = heap(8e6);
  const tidy = memory(one);
  tidy.tick();
  assert.equal(one.collections, 2);
  tidy.tick();
  assert.equal(one.collections, 4);
  one.old += 1.5 * 1024 * 1024 - 1;
  tidy.tick();
  tidy.tick();
  assert.equal(one.collections, 4, 'less than 1.5 MB is left alone');
  one.old += 1;
  tidy.tick();
  assert.equal(one.collections, 6);
});

test('what work in progress holds during a collection is collected at the next tick', () => {
  const one = heap(10e6);
  const tidy = memory(one);
  tidy.tick();
  one.live = 9e6;
  tidy.tick();
  assert.equal(one.old, 9e6);
});

test('the buffers of a minute of looks are left to the engine', () => {
  const one = heap(8e6);
  const tidy = memory(one);
  tidy.tick();
  tidy.tick();
  one.external += 2 * 1024 * 1024;
  tidy.tick();
  assert.equal(one.collections, 4);
  one.external += 2 * 1024 * 1024;
  tidy.tick();
  assert.equal(one.collections, 6);
});

test('without a collector a tick does nothing', () => {
  memory(null).tick();
});
