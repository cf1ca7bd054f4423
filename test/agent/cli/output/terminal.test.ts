import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redraws, type Sink, terminalTalk, type Volume } from '../../../../agent/cli/output/terminal.js';
import type { Event } from '../../../../agent/contracts/events.js';
import { styleFor } from '../../../../agent/lib/text.js';
import { changes, emptyPlan, verdict } from './samples.js';

function talkTo(isTty: boolean, volume: Volume = 'normal') {
  let written = '';
  let time = 0;
  const sink: Sink = { isTty, columns: 80, write: (text) => (written += text), flush: async () => {} };
  const style = styleFor({ isTty, columns: 80, wanted: false, env: {} });
  const talk = terminalTalk(sink, style, volume, () => time);
  return {
    talk,
    text: () => written,
    pass: (milliseconds: number) => {
      time += milliseconds;
    },
  };
}

const waiting = (elapsedMs: number): Event => ({
  kind: 'waiting',
  text: 'ollama.service',
  elapsedMs,
  limitMs: 90_000,
});
const [directory] = changes;
assert.ok(directory !== undefined);
const step: Event = { kind: 'change-done', change: directory, index: 0, of: 7, milliseconds: 3 };

test('without a terminal every step is a line, and nothing moves the cursor', () => {
  const { talk, text } = talkTo(false);
  talk.emit({ kind: 'phase', phase: 'inspect', text: 'looking' });
  talk.emit(step);
  talk.emit({ kind: 'plan', plan: emptyPlan });
  assert.equal(text(), 'looking\n[1/7] directory /etc/vgpu/ (0755)\nnothing to do\n');
});

test('without a terminal the waiting is reported at once and then every ten seconds', () => {
  const { talk, text, pass } = talkTo(false);
  for (let elapsed = 0; elapsed <= 21_000; elapsed += 500) {
    talk.emit(waiting(elapsed));
    pass(500);
  }
  assert.deepEqual(text().trimEnd().split('\n'), [
    'waiting for ollama.service (0.0 s of at most 90 s)',
    'waiting for ollama.service (10 s of at most 90 s)',
    'waiting for ollama.service (20 s of at most 90 s)',
  ]);
});

test('on a terminal one line spins and counts, and is gone before the result', () => {
  const { talk, text, pass } = talkTo(true);
  talk.emit(waiting(1_000));
  pass(2_000);
  talk.emit(waiting(3_000));
  assert.match(text(), /waiting for ollama\.service {2}1\.0 s of at most 90 s/);
  assert.match(text(), /waiting for ollama\.service {2}3\.0 s of at most 90 s$/);
  assert.equal(text().includes('\n'), false);
  talk.emit({ kind: 'verdict', verdict });
  assert.ok(text().endsWith('\r\u001b[2K'), 'the line is taken away');
});

test('no line spins in a maintainer script, for apt in a script and on a dumb terminal', () => {
  assert.equal(redraws({ TERM: 'xterm', DEBIAN_FRONTEND: 'noninteractive' }), true);
  for (const env of [{ TERM: 'xterm', DPKG_MAINTSCRIPT_PACKAGE: 'vgpu-agent' }, { TERM: 'dumb' }])
    assert.equal(redraws(env), false, JSON.stringify(env));
});

test('the spinning line never is wider than the terminal', () => {
  const { talk, text } = talkTo(true);
  talk.emit({ kind: 'waiting', text: 'x'.repeat(300), elapsedMs: 0, limitMs: 90_000 });
  talk.pause();
  assert.ok((text().split('\r')[0] ?? '').length <= 80);
});

test('quiet leaves warnings only', () => {
  const { talk, text } = talkTo(false, 'quiet');
  talk.emit({ kind: 'phase', phase: 'inspect', text: 'looking' });
  talk.emit(step);
  talk.emit(waiting(0));
  const warnings = [{ code: 'z', message: 'beware', remedy: 'do that' }];
  talk.emit({ kind: 'plan', plan: { ...emptyPlan, warnings } });
  talk.emit({ kind: 'note', level: 'info', code: 'x', text: 'by the way', remedy: null });
  talk.emit({ kind: 'note', level: 'warning', code: 'y', text: 'look out', remedy: 'do this' });
  assert.equal(text(), 'warning: beware\n         do that\nwarning: look out\n         do this\n');
});

test('a plan is shown in full when verbose, and a line a change otherwise', () => {
  const shown = { ...emptyPlan, changes: [directory] };
  const [brief, full] = (['normal', 'verbose'] as const).map((volume) => {
    const { talk, text } = talkTo(false, volume);
    talk.emit({ kind: 'plan', plan: shown });
    return text();
  });
  assert.doesNotMatch(brief ?? '', /guest\.conf lives here/);
  assert.match(full ?? '', /guest\.conf lives here/);
});

test('verbose tells how long each step took, and the small notes', () => {
  const { talk, text } = talkTo(false, 'verbose');
  talk.emit(step);
  talk.emit({ kind: 'note', level: 'info', code: 'x', text: 'by the way', remedy: null });
  assert.equal(text(), '[1/7] directory /etc/vgpu/ (0755): done, 0.0 s\nnote: by the way\n');
});
