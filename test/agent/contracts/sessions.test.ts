/** The document of `vgpu-probe --sessions` as the agent reads it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseSessions } from '../../../agent/contracts/sessions.js';

const session = {
  session: 3,
  age: 1_200,
  memory: 4_096,
  launches: 9,
  calls: 99,
  refused: 1,
  lastRefusal: 801,
  carrier: 'vsock',
  claimed: { library: 'libcuda', pid: 42, pidNamespace: 4_026_531_836, program: 'llama-server' },
};
const told = {
  schema: 1,
  ok: true,
  error: null,
  host: 'vgpu-hostd 0.1.0 software',
  simulated: true,
  turnedAway: { count: 0, status: 0, age: 0 },
  refusedKernels: { count: 0, age: 0, program: '', kernel: '' },
  memory: null,
  sessions: [session],
};

function read(changes: object): ReturnType<typeof parseSessions> {
  return parseSessions(JSON.stringify({ ...told, ...changes }));
}

function report(changes: object) {
  const document = read(changes);
  return document.kind === 'told' ? document.report : assert.fail(JSON.stringify(document));
}

test('a kernel that the host could not run is read', () => {
  const refused = { count: 2, age: 7, program: 'llama-server', kernel: 'gemm' };
  assert.deepEqual(report({ refusedKernels: refused }).refusedKernels, refused);
  assert.equal(report({ refusedKernels: { ...refused, count: 0 } }).refusedKernels, null);
});

test('the limit of device memory and its last refusal are read', () => {
  const refused = {
    count: 2,
    age: 7,
    program: 'llama-server',
    bytes: 2 ** 63,
    limit: 8,
    free: 7,
    by: 'guest',
  };
  const memory = { limit: 8, by: 'guest', line: 3, refused };
  assert.deepEqual(report({ memory }).memory, memory);
  const none = { ...memory, refused: { ...refused, count: 0 } };
  assert.deepEqual(report({ memory: none }).memory, { ...memory, refused: null });
  assert.equal(report({ memory: null }).memory, null);
});

test("the host's report is read", () => {
  assert.deepEqual(read({}), {
    kind: 'told',
    report: {
      host: told.host,
      simulated: true,
      sessions: [session],
      turnedAway: { count: 0, status: null, age: 0 },
      refusedKernels: null,
      memory: null,
    },
  });
});

test('why it turned a greeting away is a code; a number that only a newer host knows is none', () => {
  const away = (status: number, count = 2): unknown => {
    const document = read({ turnedAway: { count, status, age: 5 } });
    return document.kind === 'told' ? document.report.turnedAway : document;
  };
  assert.deepEqual(away(7), { count: 2, status: 'busy', age: 5 });
  assert.deepEqual(away(6), { count: 2, status: 'not-allowed', age: 5 });
  assert.deepEqual(away(99), { count: 2, status: null, age: 5 });
  assert.deepEqual(away(0, 0), { count: 0, status: null, age: 5 });
});

test('why it did not tell is a code, too', () => {
  const failed = (error: unknown): unknown => parseSessions(JSON.stringify({ schema: 1, ok: false, error }));
  assert.deepEqual(failed({ code: 'too-old', status: 2, message: 'upgrade' }), {
    kind: 'failed',
    code: 'too-old',
    message: 'upgrade',
  });
  for (const error of [null, 7, {}, { code: 'new', message: 'x' }, { code: 'timeout' }])
    assert.equal((failed(error) as { kind: string }).kind, 'bad', JSON.stringify(error));
});

test('any other document is refused, and the mistake is named', () => {
  const { claimed } = session;
  const problem = (document: ReturnType<typeof parseSessions>): string =>
    document.kind === 'bad' ? document.problem : 'none';
  assert.equal(problem(parseSessions('')), 'it is not JSON: ""');
  for (const text of ['null', '[]', '7', '{}', '{"schema":2}'])
    assert.notEqual(problem(parseSessions(text)), 'none', text);
  for (const [changes, where] of [
    [{ ok: 1 }, '/ok'],
    [{ host: 7 }, '/host'],
    [{ simulated: 'yes' }, '/simulated'],
    [{ sessions: {} }, '/sessions'],
    [{ turnedAway: null }, '/turnedAway'],
    [{ turnedAway: { count: 1, status: 7 } }, '/turnedAway'],
    [{ refusedKernels: null }, '/refusedKernels'],
    [{ memory: { limit: 8 } }, '/memory'],
    ...['session', 'age', 'memory', 'launches', 'calls', 'refused', 'lastRefusal'].flatMap((name) =>
      [null, -1, 1.5, '1', Number.MAX_SAFE_INTEGER + 1].map((value) => [
        { sessions: [session, { ...session, [name]: value }] },
        `/sessions/1/${name}`,
      ]),
    ),
    [{ sessions: [{ ...session, carrier: 'pigeon' }] }, '/sessions/0/carrier'],
    [{ sessions: [{ ...session, claimed: null }] }, '/sessions/0/claimed'],
    [
      { sessions: [{ ...session, claimed: { ...claimed, library: 'libfoo' } }] },
      '/sessions/0/claimed/library',
    ],
    [
      { sessions: [{ ...session, claimed: { ...claimed, pidNamespace: -1 } }] },
      '/sessions/0/claimed/pidNamespace',
    ],
    [{ sessions: [{ ...session, claimed: { ...claimed, program: null } }] }, '/sessions/0/claimed/program'],
  ] as readonly (readonly [object, string])[])
    assert.ok(problem(read(changes)).startsWith(`${where} `), `${where}: ${problem(read(changes))}`);
});
