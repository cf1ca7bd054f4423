// When the service collects its garbage.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memory } from '../../../agent/service/own-process.js';

/** A heap with `live` bytes, of which a collection takes everything but those. */
function heap(live: number): { bytes: number; collections: number; collect: () => void; size: () => number } {
  const one = {
    bytes: live,
    collections: 0,
    collect: () => {
      one.bytes = live;
      one.collections += 1;
    },
    size: () => one.bytes,
  };
  return one;
}

test('a tick after work collects twice, the ticks after that not at all', () => {
  const one = heap(8e6);
  const tidy = memory(one);
  tidy.tick();
  assert.equal(one.collections, 2);
  one.bytes += 1.5 * 1024 * 1024 - 1;
  tidy.tick();
  tidy.tick();
  assert.equal(one.collections, 2, 'less than 1.5 MB is left alone');
  one.bytes += 1;
  tidy.tick();
  assert.equal(one.collections, 4);
});

test('without a collector a tick does nothing', () => {
  memory(null).tick();
});
