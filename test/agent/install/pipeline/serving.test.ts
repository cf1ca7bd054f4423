// Does a consumer serve requests now?
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadProfile } from '../../../../agent/profile/load.js';
import { connections, servingNow } from '../../../../agent/verdict/watch-present.js';
import { unit } from '../../verdict/support.js';

test('only connections to the port that are established count', () => {
  const table = [
    '  sl  local_address rem_address   st',
    '   0: 0100007F:2CAA 00000000:0000 0A',
    '   1: 0100007F:2CAA 0100007F:A000 01',
    '   2: 0100007F:A000 0100007F:2CAA 01',
    '   3: 0100007F:2CAA 0100007F:A001 06',
  ].join('\n');
  assert.equal(connections([table, ''], 11434), 1);
});

const clients = `head\n   1: 0100007F:2CAA 0100007F:A000 01`;
for (const [what, body, sockets, serves] of [
  ['a model and a client', '{"models":[{"name":"m"}]}', clients, true],
  ['a model and no client', '{"models":[{"name":"m"}]}', '', false],
  ['a client and no model', '{"models":[]}', clients, false],
  ['an answer that is no JSON', 'busy', clients, false],
] as const) {
  test(`${what}: ${serves ? 'it serves' : 'it does not serve'}`, async () => {
    const effects = {
      get: async () => ({ kind: 'answered', status: 200, body }) as const,
      sockets: () => [sockets],
    };
    const said = await servingNow(loadProfile('ollama'), unit(), new AbortController().signal, effects);
    assert.equal(said !== null, serves);
  });
}
