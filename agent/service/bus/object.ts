/**
 * org.vgpu.Agent1 on the system bus, as units/org.vgpu.Agent1.xml describes it. The bus's policy lets every user read
 * and call; polkit decides who may act (`mayNot`).
 */
import { own } from '../../lib/json.js';
import {
  type BusAnswer,
  type BusConnection,
  BusError,
  busDaemon,
  type IncomingCall,
} from '../../systemd/connection.js';
import type { Board, Snapshot } from '../board.js';
import { type Overview, overview, phaseOf } from '../overview.js';

export const busName = 'org.vgpu.Agent1';
export const busPath = '/org/vgpu/Agent1';
const invalidArguments = 'org.freedesktop.DBus.Error.InvalidArgs';
const propertiesInterface = 'org.freedesktop.DBus.Properties';

interface BusObjectEffects {
  readonly bus: BusConnection;
  readonly board: Board;
  readonly version: string;
  readonly profiles: () => readonly string[];
  readonly xml: string;
  readonly status: () => string;
  readonly metrics: () => Promise<string>;
  readonly verify: () => Promise<string>;
  readonly repair: () => Promise<{ readonly state: string; readonly problem: string }>;
  readonly restart: () => readonly { readonly unit: string; readonly reason: string }[];
  readonly reload: () => Promise<void>;
}

type Told = Snapshot & Overview;

function told(now: Snapshot): Told {
  return { ...now, ...overview(now) };
}

type Property = readonly [signature: string, value: (now: Told) => unknown];

const deviceNames = (now: Told): readonly string[] => now.verdict?.devices.map((device) => device.name) ?? [];

/** All properties except constant ones and Status, which is too long to be sent with every change. */
const properties: Readonly<Record<string, Property>> = {
  Profile: ['s', (now) => now.profile],
  Unit: ['s', (now) => now.unit],
  Consumers: [
    'a(sssssbs)',
    ({ consumers }) =>
      consumers.map((one) => [
        one.unit,
        one.profile,
        phaseOf(one),
        one.problem ?? '',
        one.verdict?.mode ?? '',
        one.verdict?.simulated ?? false,
        one.verdict?.reason ?? '',
      ]),
  ],
  State: ['s', (now) => now.phase],
  Problem: ['s', (now) => now.problem ?? ''],
  ConfigProblem: ['s', (now) => now.configProblem ?? ''],
  Verdict: ['s', (now) => now.verdict?.mode ?? ''],
  Simulated: ['b', (now) => now.verdict?.simulated ?? false],
  Reason: ['s', (now) => now.verdict?.reason ?? ''],
  Summary: ['s', (now) => now.verdict?.summary ?? ''],
  Look: ['(xs)', (now) => [BigInt(now.verdict?.look?.id ?? 0), now.verdict?.look?.at ?? '']],
  Devices: ['as', deviceNames],
  Evidence: [
    'a(sss)',
    (now) => now.verdict?.evidence.map(({ kind, weight, text }) => [kind, weight, text]) ?? [],
  ],
  Drift: ['a(ss)', (now) => now.drift.map(({ change, reason }) => [change, reason])],
  Host: ['(sbbs)', ({ host }) => [host.endpoint, host.answers === true, host.simulated, host.detail]],
  Hosts: [
    'a(sbbbs)',
    ({ hosts }) =>
      hosts.map((one) => [one.endpoint, one.inUse, one.answers === true, one.simulated, one.detail]),
  ],
  PendingRestart: ['(ss)', (now) => [now.pendingRestart?.reason ?? '', now.pendingRestart?.waitsFor ?? '']],
  Checks: ['u', (now) => now.counters.checks],
  Drifts: ['u', (now) => now.counters.drifts],
  Repairs: ['u', (now) => now.counters.repairs],
  FailedRepairs: ['u', (now) => now.counters.failedRepairs],
  Restarts: ['u', (now) => now.counters.restarts],
  HostLosses: ['u', (now) => now.hostLosses],
  HostMoves: ['u', (now) => now.hostMoves],
};
/** These change with every inspection or look, so they cause no signal. */
const quiet: ReadonlySet<string> = new Set(['Checks', 'Look']);

/** Serves the object on the connection, and signals every change of the board. Does not request the name. */
export function serveBusObject(effects: BusObjectEffects): void {
  const { bus, board } = effects;

  const bag = (now: Told): Record<string, unknown> => ({
    Version: bus.variant('s', effects.version),
    Profiles: bus.variant('as', effects.profiles()),
    Status: bus.variant('s', effects.status()),
    ...variants(bus, Object.entries(properties), now),
  });

  const readProperty = (name: unknown): BusAnswer => {
    if (typeof name !== 'string') return failed(invalidArguments, 'the name of a property is a string');
    const value = own(bag(told(board.now)), name);
    return value === undefined
      ? failed('org.freedesktop.DBus.Error.UnknownProperty', `there is no property ${name}`)
      : reply('v', value);
  };

  const standard = ({ interface: name, member, body }: IncomingCall): BusAnswer | null => {
    switch (`${name}.${member}`) {
      case 'org.freedesktop.DBus.Introspectable.Introspect':
        return reply('s', effects.xml);
      case 'org.freedesktop.DBus.Peer.Ping':
        return { kind: 'reply', signature: '', body: [] };
      case `${propertiesInterface}.GetAll`:
        return reply('a{sv}', body[0] === busName || body[0] === '' ? bag(told(board.now)) : {});
      case `${propertiesInterface}.Get`:
        return readProperty(body[1]);
      case `${propertiesInterface}.Set`:
        return failed('org.freedesktop.DBus.Error.PropertyReadOnly', 'every property is read only');
      default:
        return null;
    }
  };

  const act = async (call: IncomingCall): Promise<BusAnswer> => {
    if (call.member === 'Metrics') return reply('s', await effects.metrics());
    if (!['Verify', 'Repair', 'Restart', 'Reload'].includes(call.member)) {
      return failed('org.freedesktop.DBus.Error.UnknownMethod', `there is no method ${call.member}`);
    }
    const refusal = await mayNot(bus, call, `${busName}.${call.member.toLowerCase()}`);
    if (refusal !== null) return failed('org.freedesktop.DBus.Error.AccessDenied', refusal);
    switch (call.member) {
      case 'Verify':
        return reply('s', await effects.verify());
      case 'Repair': {
        const { state, problem } = await effects.repair();
        return { kind: 'reply', signature: 'ss', body: [state, problem] };
      }
      case 'Restart':
        return reply('s', JSON.stringify(effects.restart()));
      default:
        await effects.reload();
        return { kind: 'reply', signature: '', body: [] };
    }
  };

  bus.serve((call) => {
    if (call.path !== busPath) return null;
    const answer = standard(call);
    if (answer !== null) return Promise.resolve(answer);
    // A call may leave the interface out (D-Bus specification).
    return call.interface === busName || call.interface === '' ? act(call) : null;
  });
  board.listen((now, before) => announce(effects, told(now), told(before)));
}

function variants(
  bus: Pick<BusConnection, 'variant'>,
  entries: readonly (readonly [name: string, Property])[],
  now: Told,
): Record<string, unknown> {
  return Object.fromEntries(
    entries.map(([name, [signature, value]]) => [name, bus.variant(signature, value(now))]),
  );
}

function announce({ bus }: BusObjectEffects, now: Told, before: Told): void {
  const changed = Object.entries(properties).filter(
    ([name, [, value]]) => !quiet.has(name) && JSON.stringify(value(now)) !== JSON.stringify(value(before)),
  );
  if (changed.length === 0) return;
  bus.emit({
    path: busPath,
    interface: propertiesInterface,
    member: 'PropertiesChanged',
    signature: 'sa{sv}as',
    body: [busName, variants(bus, changed, now), ['Status']],
  });
  const names = new Set(changed.map(([name]) => name));
  const signal = (member: string, signature: string, body: readonly unknown[]): void =>
    bus.emit({ path: busPath, interface: busName, member, signature, body });
  if (names.has('Verdict') || names.has('Reason') || names.has('Simulated')) {
    const { mode = '', simulated = false, reason, summary = '' } = now.verdict ?? {};
    signal('VerdictChanged', 'sbss', [mode, simulated, reason ?? '', summary]);
  }
  if (names.has('Drifts')) {
    signal('DriftFound', 'a(ss)', [now.drift.map(({ change, reason }) => [change, reason])]);
  }
  if (names.has('Repairs')) signal('Repaired', 'u', [Math.round(now.repairMilliseconds ?? 0)]);
  if (names.has('Host')) signal('HostChanged', 'bs', [now.host.answers === true, now.host.detail]);
  if (names.has('State') || names.has('Problem')) {
    signal('StateChanged', 'ss', [now.phase, now.problem ?? '']);
  }
}

function reply(signature: string, value: unknown): BusAnswer {
  return { kind: 'reply', signature, body: [value] };
}

function failed(type: string, message: string): BusAnswer {
  return { kind: 'error', type, message };
}

// Decides which users may call methods that change something: root, and users that polkit allows.

const polkit = {
  destination: 'org.freedesktop.PolicyKit1',
  path: '/org/freedesktop/PolicyKit1/Authority',
  interface: 'org.freedesktop.PolicyKit1.Authority',
} as const;
const allowInteraction = 1;

/** Null: the caller may. Else the reason, for the caller. `action` is one of units/org.vgpu.Agent1.policy. */
async function mayNot(
  bus: Pick<BusConnection, 'call' | 'variant'>,
  call: Pick<IncomingCall, 'sender' | 'member' | 'interactive'>,
  action: string,
): Promise<string | null> {
  const user = { ...busDaemon, member: 'GetConnectionUnixUser', signature: 's', body: [call.sender] };
  if ((await bus.call(user))[0] === 0) return null;
  try {
    const [result] = await bus.call({
      ...polkit,
      member: 'CheckAuthorization',
      signature: '(sa{sv})sa{ss}us',
      body: [
        ['system-bus-name', { name: bus.variant('s', call.sender) }],
        action,
        {},
        // polkit's dialogue opens only for a caller that allows interaction; a script gets an answer immediately.
        call.interactive ? allowInteraction : 0,
        '',
      ],
    });
    if (!Array.isArray(result)) return `only root may call ${call.member}: polkit gave no valid answer`;
    if (result[0] === true) return null;
    return `you may not call ${call.member}: polkit does not allow you ${action}`;
  } catch (error) {
    // Fail closed: polkit is missing, does not know the action, or does not answer.
    const why = error instanceof BusError ? error.type : String(error);
    return `only root may call ${call.member} (polkit did not answer: ${why})`;
  }
}

// The service's name on the bus. The service works without it.

const doNotQueue = 4;
const owner = 1;
const tries = 5;

/** Null on success. The policy file may be new, so the bus reloads its configuration first. */
export async function takeName(
  connection: BusConnection,
  name: string,
  sleep: (milliseconds: number) => Promise<void>,
): Promise<string | null> {
  let why = '';
  for (let attempt = 0; attempt < tries; attempt += 1) {
    try {
      const request = { ...busDaemon, member: 'RequestName', signature: 'su', body: [name, doNotQueue] };
      const [result] = await connection.call(request);
      // 4: it was ours already.
      if (result === owner || result === 4) return null;
      return `${name} is taken by another process`;
    } catch (error) {
      if (!(error instanceof BusError)) throw error;
      why = error.message;
      await connection.call({ ...busDaemon, member: 'ReloadConfig' }).catch(() => {});
      await sleep(100 * 2 ** attempt);
    }
  }
  return why;
}
