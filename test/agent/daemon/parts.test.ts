/** The pure parts of the service. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { messageIds } from '../../../agent/contracts/journal-messages.js';
import type { LoadedUnit } from '../../../agent/contracts/unit.js';
import { Board, consumerBoard } from '../../../agent/daemon/board.js';
import { busName, busPath, serveBusObject } from '../../../agent/daemon/bus/object.js';
import { unitPath } from '../../../agent/daemon/bus/watch.js';
import { lostVerdict, staleVerdict } from '../../../agent/daemon/judge/lost-verdict.js';
import { metricsText } from '../../../agent/daemon/metrics.js';
import { overview } from '../../../agent/daemon/overview.js';
import { pacer } from '../../../agent/daemon/pacer.js';
import { runElsewhere } from '../../../agent/daemon/run-elsewhere.js';
import { isLibrary, isTemporary, watchPlaces } from '../../../agent/daemon/watch-places.js';
import { packageRoot } from '../../../agent/paths.js';
import { connections, servingNow } from '../../../agent/pipeline/serving.js';
import { loadProfile } from '../../../agent/profile/load.js';
import type { BusAnswer, BusConnection } from '../../../agent/systemd/connection.js';
import { cpuVerdict, verdict } from '../output/samples.js';

test('a GPU verdict is degraded the moment the host is lost, and stays simulated', () => {
  const lost = lostVerdict(verdict, 'it closed the connection');
  assert.deepEqual([lost.mode, lost.reason, lost.simulated], ['degraded', 'host-unreachable', true]);
  assert.equal(lost.evidence[0]?.weight, 'against');
  assert.equal(staleVerdict(verdict).mode, 'degraded');
});

test('a CPU verdict is never made better or worse by the host', () => {
  assert.equal(lostVerdict(cpuVerdict, 'x').mode, 'cpu');
  assert.equal(staleVerdict(cpuVerdict), cpuVerdict);
});

test('the catalog explains every entry that is written, once', () => {
  const catalog = readFileSync(path.join(packageRoot(), 'units/vgpu-agent.catalog'), 'utf8');
  const ids = [...catalog.matchAll(/^-- ([0-9a-f]{32})$/gm)].map((one) => one[1]);
  assert.deepEqual(ids.toSorted(), Object.values(messageIds).toSorted());
});

/** The object on a bus that only notes who serves. */
async function servedObject(): Promise<
  (member: string, name: string, body?: readonly unknown[]) => Promise<BusAnswer | null>
> {
  let handler: Parameters<BusConnection['serve']>[0] | null = null;
  const bus: BusConnection = {
    // Who calls is root.
    call: async () => [0],
    onSignal: () => () => {},
    serve: (given) => {
      handler = given;
    },
    emit: () => {},
    variant: (_signature, value) => value,
    closed: new Promise(() => {}),
    close: () => {},
  };
  serveBusObject({
    bus,
    board: new Board(),
    version: '0',
    profiles: () => [],
    xml: '',
    status: () => '',
    metrics: async () => '',
    verify: async () => '',
    repair: async () => ({ state: '', problem: '' }),
    reload: async () => {},
  });
  return async (member, name, body = []) =>
    (await handler?.({ sender: ':1', path: busPath, interface: name, member, body, interactive: false })) ??
    null;
}

test('every property, method and signal of the object is in the introspection document, and none else', async () => {
  const xml = readFileSync(path.join(packageRoot(), 'units/org.vgpu.Agent1.xml'), 'utf8');
  const own = xml.split('<interface name="org.freedesktop')[0] ?? '';
  const described = (kind: string): readonly string[] =>
    [...own.matchAll(new RegExp(`<${kind} name="(\\w+)"`, 'g'))].map(([, name = '']) => name).toSorted();
  const call = await servedObject();

  const all = await call('GetAll', 'org.freedesktop.DBus.Properties', [busName]);
  const bag: unknown = all?.kind === 'reply' ? all.body[0] : null;
  assert.deepEqual(Object.keys(Object(bag)).toSorted(), described('property'));

  for (const method of described('method'))
    assert.equal((await call(method, busName))?.kind, 'reply', method);
  const unknown = await call('Anything', busName);
  assert.equal(unknown?.kind === 'error' && unknown.type, 'org.freedesktop.DBus.Error.UnknownMethod');

  const source = readFileSync(path.join(packageRoot(), 'agent/daemon/bus/object.ts'), 'utf8');
  const sent = [...source.matchAll(/\bsignal\('(\w+)'/g)].map(([, name = '']) => name);
  assert.deepEqual(sent.toSorted(), described('signal'));
});

test('a unit has the object path that systemd gives it', () => {
  assert.equal(unitPath('ollama.service'), '/org/freedesktop/systemd1/unit/ollama_2eservice');
  assert.equal(unitPath('9p-x@1.service'), '/org/freedesktop/systemd1/unit/_39p_2dx_401_2eservice');
});

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

const unit = { kind: 'loaded', activeState: 'active', mainPid: 7, environment: {} } as unknown as LoadedUnit;
const clients = `head\n   1: 0100007F:2CAA 0100007F:A000 01`;
for (const [what, body, sockets, serves] of [
  ['a model and a client', '{"models":[{"name":"m"}]}', clients, true],
  ['a model and nobody connected', '{"models":[{"name":"m"}]}', '', false],
  ['a client and no model', '{"models":[]}', clients, false],
  ['an answer that is no JSON', 'busy', clients, false],
] as const) {
  test(`${what}: ${serves ? 'it serves' : 'it does not serve'}`, async () => {
    const effects = {
      get: async () => ({ kind: 'answered', status: 200, body }) as const,
      sockets: () => [sockets],
    };
    const said = await servingNow(loadProfile('ollama'), unit, effects, new AbortController().signal);
    assert.equal(said !== null, serves);
  });
}

test('every directory that a plan looks at is watched, and no more of /etc than names', () => {
  const places = watchPlaces(loadProfile('ollama'), null, {
    schema: 2,
    agent: '0',
    consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
    storeId: '0123456789abcdef',
    endpoint: 'unix:/x',
    items: [
      {
        kind: 'link',
        path: '/usr/lib/x86_64-linux-gnu/libcuda.so.1',
        target: '/opt/vgpu/current/libcuda.so.1',
        before: { kind: 'absent' },
        backup: null,
        ownerPackage: null,
      },
      { kind: 'directory', path: '/opt/vgpu/versions/0123456789abcdef', mode: 0o755 },
    ],
  });
  assert.ok(places.get('/usr/lib/x86_64-linux-gnu')?.has('libcuda.so.1'));
  assert.deepEqual([...(places.get('/etc') ?? [])], ['ld.so.cache']);
  assert.equal(places.get('/opt/vgpu/versions/0123456789abcdef'), null);
  assert.ok(places.get('/etc/vgpu-agent')?.has('agent.json'));
  assert.ok(places.has('/etc/systemd/system/ollama.service.d'));
  assert.ok(isLibrary('libcuda.so.550.163.01') && !isLibrary('libc.so.6'));
  assert.ok(isTemporary('.libcuda.so.1.vgpu-new') && isTemporary('ld.so.cache~'));
});

test('a pacer runs once for many requests, again for one that comes meanwhile, and never twice at a time', async () => {
  const stop = new AbortController();
  let running = 0;
  let runs = 0;
  let most = 0;
  const pace = pacer(async () => {
    running += 1;
    most = Math.max(most, running);
    runs += 1;
    if (runs === 1) for (let request = 0; request < 50; request += 1) pace.now();
    await new Promise((resolve) => setTimeout(resolve, 5));
    running -= 1;
  }, stop.signal);
  for (let request = 0; request < 50; request += 1) pace.soon();
  await pace.quiet();
  assert.deepEqual([runs, most], [2, 1]);
  stop.abort();
});

test('the board tells listeners what was and what is', () => {
  const board = new Board();
  const seen: string[] = [];
  board.setConsumers([{ profile: 'ollama', unit: 'ollama.service' }]);
  board.listen((now, before) => {
    const { phase, counters } = overview(now);
    seen.push(`${overview(before).phase}>${phase} ${counters.drifts}`);
  });
  const mine = consumerBoard(board, 'ollama', 'ollama.service');
  mine.update({ phase: 'settled' });
  mine.count('drifts');
  assert.deepEqual(seen, ['starting>settled 0', 'settled>settled 1']);
});

test('metrics call a simulated GPU simulated, and have a type and a help for each', async () => {
  const board = new Board();
  board.setConsumers([{ profile: 'ollama', unit: 'ollama.service' }]);
  consumerBoard(board, 'ollama', 'ollama.service').update({ verdict });
  const text = await metricsText({ snapshot: board.now, version: '0.1.0', roundTrip: 0.00003 });
  assert.match(
    text,
    /^vgpu_verdict\{profile="ollama",unit="ollama.service",mode="gpu",simulated="1",reason=""\} 1$/m,
  );
  assert.match(text, /^vgpu_host_round_trip_seconds 0\.00003$/m);
  const names = new Set([...text.matchAll(/^(vgpu_\w+)/gm)].map((one) => one[1]));
  for (const name of names)
    assert.match(text, new RegExp(`^# HELP ${name} .+\\n# TYPE ${name} (gauge|counter)$`, 'm'));
});

test("what must run as the consumer's user is started by systemd, since the service may not change its own", async () => {
  const ran: string[] = [];
  const runner = runElsewhere({
    run: async (file, args) => {
      ran.push([file, ...args].join(' '));
      return { code: 0, signal: null, stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), timedOut: false };
    },
  });
  await runner.run('setpriv', [
    '--reuid=995',
    '--regid=994',
    '--groups=44,994',
    '--inh-caps=-all',
    '--',
    'test',
    '-r',
    '/x',
  ]);
  await runner.run('ldconfig', ['-X']);
  assert.deepEqual(ran, [
    'systemd-run --quiet --collect --wait --pipe -- setpriv --reuid=995 --regid=994 --groups=44,994 --inh-caps=-all -- test -r /x',
    'ldconfig -X',
  ]);
});
