import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../../agent/lib/paths.js';
import { Board } from '../../../../agent/service/board.js';
import { busName, busPath, serveBusObject } from '../../../../agent/service/bus/object.js';
import type { BusAnswer, BusConnection } from '../../../../agent/systemd/connection.js';

/** The object on a bus that only notes who serves. */
async function servedObject(): Promise<
  (member: string, name: string, body?: readonly unknown[]) => Promise<BusAnswer | null>
> {
  let handler: Parameters<BusConnection['serve']>[0] | null = null;
  const bus: BusConnection = {
    // The caller is root.
    call: async () => [0],
    onSignal: () => () => {},
    serve: (given) => {
      handler = given;
    },
    emit: () => {},
    variant: (_signature, value) => value,
    direct: false,
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
    restart: () => [],
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

  const source = readFileSync(path.join(packageRoot(), 'agent/service/bus/object.ts'), 'utf8');
  const sent = [...source.matchAll(/\bsignal\('(\w+)'/g)].map(([, name = '']) => name);
  assert.deepEqual(sent.toSorted(), described('signal'));
});

test('an unknown property is refused, also one that JavaScript objects inherit', async () => {
  const call = await servedObject();
  for (const property of ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'Nothing', '']) {
    const answer = await call('Get', 'org.freedesktop.DBus.Properties', [busName, property]);
    assert.equal(
      answer?.kind === 'error' && answer.type,
      'org.freedesktop.DBus.Error.UnknownProperty',
      property,
    );
  }
  // Get of another interface may send something else than a name.
  const odd = await call('Get', 'org.freedesktop.DBus.Properties', [busName, { toString: null }]);
  assert.equal(odd?.kind, 'error');
});
