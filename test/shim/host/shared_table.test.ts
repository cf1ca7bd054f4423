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
        'shim-src/host/session/shared_lock.c',
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
    assert.ok(turns >= 1 && turns <= 10, `${turns} turns of 2 ms`);
  });

  it('charges a guest nothing for processors that no other guest needed', async () => {
    const turns = Number(await run('idle'));
    assert.ok(turns <= 10, `${turns} turns of 2 ms`);
  });

  it('frees the locks of a worker that ended with them', async () => {
    const [waited, done] = (await run('dead')).split(' ').map(Number);
    assert.equal(done, 1);
    assert.ok((waited ?? 1000) < 500, `${waited} ms`);
  });

  it('lets no session wait longer than some seconds for a turn, whichever session keeps it', async () => {
    const waited = Number(await run('kept'));
    assert.ok(waited >= 4000 && waited < 9000, `${waited} ms`);
  });

  it("does not make other threads wait for one that stopped waiting for a stopped worker's lock", async () => {
    assert.equal(await run('stopped'), '0 0');
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
