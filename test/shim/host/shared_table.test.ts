/** The table that the daemon shares with its workers: turns to compute, and numbers that must not be trusted. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { buildProgram, runProgram } from '../cuda/private_programs.js';

describe('the table that workers share', () => {
  let program = '';
  before(async () => {
    program = await buildProgram({
      name: 'shared_table',
      sources: [
        'test/shim/programs/shared_table.c',
        'shim-src/host/session/accounts.c',
        'shim-src/host/policy/peers.c',
        'shim-src/host/daemon/sessions.c',
        'shim-src/host/session/share.c',
        'shim-src/wire/shared.c',
      ],
    });
  });
  const run = async (what: string): Promise<string> => {
    const ended = await runProgram(program, [what]);
    assert.equal(ended.code, 0, `${ended.stdout}${ended.stderr}`);
    return ended.stdout.trim();
  };

  it('lets a guest that computed for long compute again soon, while another never pauses', async () => {
    const turns = Number(await run('comeback'));
    assert.ok(turns <= 10, `${turns} turns of 2 ms`);
  });

  it('charges a guest nothing for processors that no other guest needed', async () => {
    const turns = Number(await run('idle'));
    assert.ok(turns <= 10, `${turns} turns of 2 ms`);
  });

  it('gives the turn of a worker that has ended to others', async () => {
    assert.equal(await run('dead'), '0 1');
  });

  it('gives a peer a turn after twice the time of its share, although another one keeps its own', async () => {
    const waited = Number(await run('kept'));
    assert.ok(waited >= 7 && waited < 1000, `${waited} ms`);
  });

  it('gives peers their percent of the device, and a third the rest; two share what it leaves', async () => {
    const [quarter, half, rest, one, other] = (await run('shares')).split(' ').map(Number);
    const near = (had = 0, wanted = 0) => Math.abs(had - wanted) <= wanted * 0.1;
    assert.ok(near(quarter, 250) && near(half, 500) && near(rest, 250), `${quarter} ${half} ${rest}`);
    assert.ok(near(one, 250) && near(other, 750), `${one} ${other}`);
  });

  it('lets a worker that was taken over and lies about its turns delay other peers little', async () => {
    const waited = Number(await run('liar'));
    assert.ok(waited < 2000, `${waited} ms for 20 turns of 2 ms`);
  });

  it('gives a peer its share beside a worker that lies about its turns', async () => {
    const turns = Number(await run('share'));
    assert.ok(turns >= 15, `${turns} of 20 turns at once`);
  });

  it('cannot be written by a worker, but for its own slot', async () => {
    assert.equal(await run('writes'), '1 1');
  });

  it('lets a peer that has used less go first at once, but never twice as many as there are processors', async () => {
    assert.equal(await run('first'), '1 1 0 0');
  });

  it('gives the place of a peer that has a session to no other peer', async () => {
    assert.equal(await run('evicted'), '1 70');
  });

  it('is read within its bounds, whatever a worker that was taken over wrote', async () => {
    assert.equal(await run('scribbled'), '1');
  });
});
