/** Which host of several is in use: the state machine, the file that the library reads, and the board. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { readHostInUse } from '../../../agent/guest/vgpu-host/endpoint.js';
import type { HostEvent } from '../../../agent/service/helper.js';
import {
  beginHosts,
  type HostsEffect,
  type HostsEvent,
  type HostsRules,
  type HostsState,
  hostsNext,
  shownHosts,
  writeHostInUse,
} from '../../../agent/service/hosts.js';

const rules: HostsRules = { preferFirst: false, leaveMs: 10_000, returnMs: 60_000 };
const prefer: HostsRules = { ...rules, preferFirst: true };
const up: HostEvent = { kind: 'up', device: 'GPU', simulated: true };
const down: HostEvent = { kind: 'down', reason: 'refused' };

/** Hosts A, B and C; what each event led to, in words. */
class Played {
  state: HostsState;
  now = 0;
  readonly #rules: HostsRules;

  constructor(
    settings: HostsRules = rules,
    used: string | null = null,
    names: readonly string[] = ['A', 'B', 'C'],
  ) {
    this.#rules = settings;
    this.state = beginHosts(names, used, 0);
  }

  told(name: string, host: HostEvent): readonly string[] {
    const number = this.state.hosts.findIndex(({ endpoint }) => endpoint === name);
    return this.#step({ kind: 'told', number, host, now: this.now });
  }

  after(milliseconds: number): readonly string[] {
    this.now += milliseconds;
    return this.#step({ kind: 'time', now: this.now });
  }

  take(): readonly string[] {
    return this.#step({ kind: 'taken', now: this.now });
  }

  #step(event: HostsEvent): readonly string[] {
    const next = hostsNext(this.state, event, this.#rules);
    this.state = next.state;
    return next.effects.map(wordsOf);
  }
}

function wordsOf(effect: HostsEffect): string {
  switch (effect.kind) {
    case 'tell':
      return `${effect.endpoint} ${effect.event.kind}${effect.moved ? ', moved' : ''}`;
    case 'offer':
      return `offer ${effect.endpoint ?? 'nothing'}`;
    case 'look':
      return `look at ${effect.at}`;
    default:
      return `use ${effect.endpoint}`;
  }
}

test('at first the earliest host that answers is used, without a wait', () => {
  const played = new Played();
  assert.deepEqual(played.told('B', up), [], 'A may answer yet');
  assert.deepEqual(played.told('A', down), ['use B', 'B up']);
  assert.deepEqual(played.told('A', up), [], 'its return moves nobody');
  assert.deepEqual(new Played().told('A', up), ['use A', 'A up']);
});

test('reports each reason while no host answers, then uses the first that does', () => {
  const played = new Played(rules, null, ['A', 'B']);
  played.told('A', down);
  assert.deepEqual(played.told('B', down), ['A down']);
  const [effect] = hostsNext(played.state, { kind: 'time', now: 1 }, rules).effects;
  assert.deepEqual(effect?.kind === 'tell' ? effect.event : null, {
    kind: 'down',
    reason: 'A: refused; B: refused',
  });
  assert.deepEqual(played.told('B', up), ['use B', 'B up']);
});

test('the host in use is left once it has not answered for the limit, and only then', () => {
  const played = new Played();
  for (const name of ['A', 'B', 'C']) played.told(name, up);
  assert.deepEqual(played.told('A', down), ['A down', 'look at 10000']);
  assert.deepEqual(played.after(9_999), ['look at 10000']);
  assert.deepEqual(played.told('A', up), ['A up'], 'back in time: nothing moves');
  played.now = 50_000;
  played.told('A', down);
  assert.deepEqual(played.after(10_000), ['use B', 'B up, moved']);
  assert.deepEqual(played.told('A', up), [], 'not moved back');
  assert.deepEqual(played.after(1_000_000), []);
  assert.deepEqual(played.told('C', down), [], 'a host that is not in use is not told of');
});

test('a reason that changes does not begin the limit again', () => {
  const played = new Played();
  for (const name of ['A', 'B']) played.told(name, up);
  played.told('A', down);
  played.now = 6_000;
  assert.deepEqual(played.told('A', { kind: 'down', reason: 'no answer within the limit' }), [
    'A down',
    'look at 10000',
  ]);
});

test('without another host that answers it waits, and moves as soon as one does', () => {
  const played = new Played();
  played.told('A', up);
  played.told('B', down);
  played.told('A', down);
  assert.deepEqual(played.after(60_000), []);
  assert.deepEqual(played.told('C', up), ['use C', 'C up, moved']);
});

test('with prefer an earlier host is offered once it has lasted, and taken by a consumer', () => {
  const played = new Played(prefer);
  played.told('A', down);
  played.told('B', up);
  assert.deepEqual(played.told('A', up), ['look at 60000']);
  played.now = 30_000;
  assert.deepEqual(played.told('A', down), []);
  assert.deepEqual(played.told('A', up), ['look at 90000'], 'a host that flaps begins again');
  assert.deepEqual(played.after(60_000), ['offer A']);
  assert.deepEqual(played.after(1_000), [], 'offered once');
  assert.deepEqual(played.take(), ['use A', 'A up, moved']);
  assert.deepEqual(played.take(), [], 'nothing is left to be taken');
});

test('withdraws an offer when its host or the host in use fails', () => {
  const offered = (): Played => {
    const played = new Played(prefer);
    played.told('A', down);
    played.told('B', up);
    played.told('A', up);
    assert.deepEqual(played.after(60_000), ['offer A']);
    return played;
  };
  const first = offered();
  assert.deepEqual(first.told('A', down), ['offer nothing']);
  assert.deepEqual(first.take(), []);
  assert.deepEqual(offered().told('B', down), ['B down', 'offer nothing', 'look at 70000']);
});

test('a service that begins again goes on with the host in use', () => {
  const played = new Played(rules, 'B');
  assert.deepEqual(played.told('A', up), []);
  assert.deepEqual(played.told('B', up), ['B up']);
  assert.deepEqual(new Played(rules, 'Z').told('A', up), ['use A', 'A up'], 'one that is not in the list');
});

test('reports the events of a single host unchanged', () => {
  const played = new Played(rules, null, ['A']);
  assert.deepEqual(played.told('A', down), ['A down']);
  assert.deepEqual(played.told('A', up), ['use A', 'A up']);
  assert.deepEqual(played.told('A', down), ['A down']);
  assert.deepEqual(shownHosts(played.state), [], 'and the board lists no hosts');
});

test('the board has each of several hosts', () => {
  const played = new Played(rules, null, ['A', 'B']);
  played.told('A', down);
  played.told('B', up);
  assert.deepEqual(shownHosts(played.state), [
    { endpoint: 'A', answers: false, simulated: false, detail: 'refused', inUse: false },
    { endpoint: 'B', answers: true, simulated: true, detail: 'GPU', inUse: true },
  ]);
});

test('writes, replaces and removes the file of the host in use, and returns a message when that fails', () => {
  const scratch = mkdtempSync(path.join(tmpdir(), 'hosts-'));
  try {
    const file = path.join(scratch, 'host');
    assert.equal(readHostInUse(file), null);
    assert.equal(writeHostInUse('vsock:2:1', file), null);
    assert.equal(writeHostInUse('tcp:[::1]:2', file), null);
    assert.equal(readFileSync(file, 'utf8'), 'tcp:[::1]:2\n');
    assert.equal(statSync(file).mode & 0o777, 0o644);
    assert.equal(readHostInUse(file), 'tcp:[::1]:2');
    assert.equal(writeHostInUse(null, file), null);
    assert.equal(readHostInUse(file), null);
    assert.match(
      writeHostInUse('vsock:2:1', path.join(scratch, 'none', 'host')) ?? '',
      /^cannot write .*ENOENT/,
    );
  } finally {
    rmSync(scratch, { recursive: true });
  }
});
