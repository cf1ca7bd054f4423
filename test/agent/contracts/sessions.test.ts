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
  claimed: { library: 'libcuda', pid: 42, pidNamespace: 4_026_531_836, program: 'llama-server' },
};
const told = {
  schema: 1,
  ok: true,
  error: null,
  host: 'vgpu-hostd 0.1.0 software',
  simulated: true,
  turnedAway: { count: 0, status: 0, age: 0 },
  sessions: [session],
};

function read(changes: object): ReturnType<typeof parseSessions> {
  return parseSessions(JSON.stringify({ ...told, ...changes }));
}

function sessionsOf(changes: object): ReturnType<typeof parseSessions> {
  return read({ sessions: [session, { ...session, ...changes }] });
}

test('the transport of a session is read; an older host does not report it', () => {
  const of = (carrier: unknown): unknown => {
    const document = sessionsOf({ carrier });
    return document.kind === 'told' ? document.report.sessions.map((one) => one.carrier) : document;
  };
  for (const known of ['rings', 'vm-memory', 'vsock']) assert.deepEqual(of(known), ['none', known]);
  for (const other of [undefined, null, 2, 'pigeon']) assert.deepEqual(of(other), ['none', 'none']);
});

test('a kernel that the host could not run is read; an older host tells of none', () => {
  const refused = { count: 2, age: 7, program: 'llama-server', kernel: 'gemm' };
  const of = (value: unknown): unknown => {
    const document = read({ refusedKernels: value });
    return document.kind === 'told' ? document.report.refusedKernels : document;
  };
  assert.deepEqual(of(refused), refused);
  for (const none of [undefined, null, { ...refused, count: 0 }, { ...refused, kernel: 7 }])
    assert.equal(of(none), null);
});

test('the limit of device memory and its last refusal are read; an older host tells neither', () => {
  const refused = { count: 2, age: 7, program: 'llama-server', bytes: 9, limit: 8, free: 7, by: 'guest' };
  const memory = { limit: 8, by: 'guest', line: 3, refused };
  const of = (value: unknown): unknown => {
    const document = read({ memory: value });
    return document.kind === 'told' ? document.report.memory : document;
  };
  assert.deepEqual(of(memory), memory);
  const huge = { ...refused, bytes: 2 ** 63 };
  assert.deepEqual(of({ ...memory, refused: huge }), { ...memory, refused: huge });
  for (const none of [undefined, null, 7, { ...memory, by: 'new' }, { ...memory, limit: -1 }, { limit: 8 }])
    assert.equal(of(none), null, JSON.stringify(none));
  for (const other of [null, { ...refused, count: 0 }, { ...refused, by: '?' }, { ...refused, free: '7' }])
    assert.deepEqual(of({ ...memory, refused: other }), { ...memory, refused: null }, JSON.stringify(other));
});

test("the host's report is read", () => {
  assert.deepEqual(read({}), {
    kind: 'told',
    report: {
      host: told.host,
      simulated: true,
      sessions: [{ ...session, carrier: 'none' }],
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
  const problem = (document: ReturnType<typeof parseSessions>): string =>
    document.kind === 'bad' ? document.problem : '';
  assert.equal(problem(parseSessions('')), 'it is not a JSON document');
  for (const text of ['null', '[]', '7', '{}', '{"schema":2}'])
    assert.equal(problem(parseSessions(text)), 'it has no "schema": 1', text);
  for (const changes of [{ ok: 1 }, { host: 7 }, { simulated: 'yes' }])
    assert.equal(problem(read(changes)), '"ok", "host" or "simulated" is missing');
  for (const changes of [{ sessions: {} }, { turnedAway: null }, { turnedAway: { count: 1, status: 7 } }])
    assert.equal(problem(read(changes)), '"sessions" or "turnedAway" is missing');
});

test('a session with a member that is missing, negative or of another type is refused by its place', () => {
  const { claimed } = session;
  const bad: readonly object[] = [
    ...['session', 'age', 'memory', 'launches', 'calls', 'refused', 'lastRefusal'].flatMap((name) =>
      [null, -1, 1.5, '1', Number.MAX_SAFE_INTEGER + 1].map((value) => ({ [name]: value })),
    ),
    { claimed: null },
    { claimed: { ...claimed, library: 'libfoo' } },
    { claimed: { ...claimed, pid: '42' } },
    { claimed: { ...claimed, pidNamespace: -1 } },
    { claimed: { ...claimed, program: null } },
  ];
  for (const changes of bad)
    assert.deepEqual(
      sessionsOf(changes),
      { kind: 'bad', problem: 'sessions[1] is not a session' },
      JSON.stringify(changes),
    );
  assert.equal(sessionsOf({ claimed: { ...claimed, library: '?' } }).kind, 'told');
});
