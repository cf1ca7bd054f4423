import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Asking, askThenLock } from '../../../../agent/install/pipeline/ask-then-lock.js';

/** Plans come one after the other, the last forever; everything that is done is written down. */
function stage(plans: readonly (string | null)[], over: Partial<Asking<string | null>> = {}) {
  const did: string[] = [];
  const rest = [...plans];
  const work = {
    locked: async <T>(command: string, task: () => Promise<T>): Promise<T> => {
      did.push(`lock ${command}`);
      const result = await task();
      did.push('unlock');
      return result;
    },
  };
  const asking: Asking<string | null> = {
    command: 'install',
    tidy: async () => did.push('tidy'),
    plan: async () => {
      const next = rest.length > 1 ? rest.shift() : rest[0];
      did.push(`plan ${next ?? 'nothing'}`);
      return next ?? null;
    },
    words: (planned) => planned,
    approve: async (planned) => {
      did.push(`ask ${planned}`);
      return true;
    },
    asks: true,
    signal: new AbortController().signal,
    ...over,
  };
  const notes: string[] = [];
  const run = () =>
    askThenLock(
      work,
      asking,
      async (planned) => did.push(`do ${planned ?? 'nothing'}`),
      (event) => {
        if (event.kind === 'note') notes.push(event.code);
      },
    );
  return { did, notes, run };
}

test('the lock is not held while a person thinks', async () => {
  const { did, run } = stage(['a']);
  assert.equal((await run()).kind, 'done');
  assert.deepEqual(did, [
    'lock repair',
    'tidy',
    'unlock',
    'plan a',
    'ask a',
    'lock install',
    'tidy',
    'plan a',
    'do a',
    'unlock',
  ]);
});

test('another plan under the lock is asked about again, without the lock', async () => {
  const { did, notes, run } = stage(['a', 'b']);
  assert.equal((await run()).kind, 'done');
  assert.deepEqual(notes, ['plan-changed']);
  assert.deepEqual(did.filter((one) => one !== 'tidy' && !one.startsWith('plan')).slice(2), [
    'ask a',
    'lock install',
    'unlock',
    'ask b',
    'lock install',
    'do b',
    'unlock',
  ]);
});

test('the answer no ends the command without the lock', async () => {
  const { did, run } = stage(['a'], { approve: async () => false });
  assert.deepEqual(await run(), { kind: 'declined', planned: 'a' });
  assert.ok(!did.includes('lock install'));
});

test('without changes there is no question; a change that came up meanwhile is asked about', async () => {
  const nothing = stage([null]);
  await nothing.run();
  assert.ok(!nothing.did.some((one) => one.startsWith('ask')));
  const later = stage([null, 'a']);
  await later.run();
  assert.deepEqual(
    later.did.filter((one) => /^(ask|do)/.test(one)),
    ['ask a', 'do a'],
  );
});

test('without a person there is one look, under the lock', async () => {
  const { did, run } = stage(['a'], { asks: false });
  await run();
  assert.deepEqual(did, ['lock install', 'tidy', 'plan a', 'ask a', 'do a', 'unlock']);
});
