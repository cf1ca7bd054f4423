/** The pure parts of the service. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Board } from '../../../agent/daemon/board.js';
import { unitPath } from '../../../agent/daemon/bus-watch.js';
import { lostVerdict, staleVerdict } from '../../../agent/daemon/lost-verdict.js';
import { metricsText } from '../../../agent/daemon/metrics.js';
import { pacer } from '../../../agent/daemon/pacer.js';
import { runElsewhere } from '../../../agent/daemon/run-elsewhere.js';
import { connections, servingNow } from '../../../agent/daemon/serving.js';
import { isLibrary, isTemporary, watchPlaces } from '../../../agent/daemon/watch-places.js';
import type { LoadedUnit } from '../../../agent/machine/types.js';
import { packageRoot } from '../../../agent/paths.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
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

test('every property, method and signal of the object is in the introspection document, and none else', () => {
  const xml = readFileSync(path.join(packageRoot(), 'units/org.vgpu.Agent1.xml'), 'utf8');
  const source = readFileSync(path.join(packageRoot(), 'agent/daemon/bus-object.ts'), 'utf8');
  const own = xml.split('<interface name="org.freedesktop')[0] ?? '';
  for (const [, name = ''] of own.matchAll(/<(?:property|method|signal) name="(\w+)"/g)) {
    assert.match(source, new RegExp(`\\b${name}\\b`), name);
  }
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
    schema: 1,
    agent: '0',
    profile: 'ollama',
    unit: 'ollama.service',
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
  board.listen((now, before) => seen.push(`${before.phase}>${now.phase} ${now.counters.drifts}`));
  board.update({ phase: 'settled' });
  board.count('drifts');
  assert.deepEqual(seen, ['starting>settled 0', 'settled>settled 1']);
});

test('metrics call a simulated GPU simulated, and have a type and a help for each', async () => {
  const board = new Board();
  board.update({ verdict, profile: 'ollama', unit: 'ollama.service' });
  const text = await metricsText({ snapshot: board.now, version: '0.1.0', roundTrip: 0.00003 });
  assert.match(text, /^vgpu_verdict\{profile="ollama",mode="gpu",simulated="1",reason=""\} 1$/m);
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
    'systemd-run --quiet --collect --wait --pipe --property User=995 --property Group=994 --property SupplementaryGroups=44 994 -- test -r /x',
    'ldconfig -X',
  ]);
});
