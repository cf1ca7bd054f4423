/** Of several hosts: which one counts, and what is told where none answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostAnswer } from '../../../../agent/contracts/facts.js';
import { severalHosts } from '../../../../agent/guest/vgpu-host/probe.js';

const yes: HostAnswer = { kind: 'answers', device: 'GPU', simulated: true, milliseconds: 1 };
const no = (message: string): HostAnswer => ({ kind: 'unreachable', message, word: null });
const unasked: HostAnswer = { kind: 'unasked' };

function chosen(answers: readonly HostAnswer[], preferred: string) {
  const named = answers.map((answer, index) => ({ endpoint: `unix:/${index}`, answer }));
  const { answer, hosts } = severalHosts(named, preferred);
  return [
    hosts?.find(({ inUse }) => inUse)?.endpoint,
    answer.kind === 'unreachable' ? answer.message : answer.kind,
  ];
}

test('the host in use counts as long as it answers, else the first that does', () => {
  assert.deepEqual(chosen([yes, yes], 'unix:/1'), ['unix:/1', 'answers']);
  assert.deepEqual(chosen([no('gone'), no('gone'), yes], 'unix:/0'), ['unix:/2', 'answers']);
  assert.deepEqual(chosen([unasked, unasked], 'unix:/1'), ['unix:/1', 'unasked']);
});

test('where none answers each is named, once', () => {
  assert.deepEqual(chosen([no('gone'), no('cannot connect to unix:/1: no')], 'unix:/0'), [
    'unix:/0',
    'unix:/0: gone; cannot connect to unix:/1: no',
  ]);
});
