// The checks of the host and of its version, for each way in which it can fail to serve this guest.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostFacts, MachineFacts } from '../../../../agent/contracts/facts.js';
import type { HostWord } from '../../../../agent/contracts/probe.js';
import type { Status } from '../../../../agent/contracts/shim-codes.js';
import { storeCurrent } from '../../../../agent/lib/paths.js';
import { slowHostMs } from '../../../../agent/verdict/diagnosis.js';
import { host, versions } from '../../../../agent/verdict/doctor/checks/host.js';
import type { DoctorFacts } from '../../../../agent/verdict/doctor/finding.js';
import type { Observation } from '../../../../agent/verdict/observation.js';
import { expected } from '../../expected.js';
import { candidate } from '../../install/plan/support.js';
import { hostWord, noDevice, withoutHost } from '../support.js';
import { says } from './findings.js';
import { doctorFacts, elf, troubleOf } from './support.js';

const file = expected('doctor-host');
const endpoint = 'vsock:2:14833';
const answer = { kind: 'answers', device: 'NVIDIA H200', simulated: false, milliseconds: 40 } as const;
const answers: HostFacts = { endpoint, from: 'guest.conf', answer };

/** Asked from outside of the unit, it is not there. */
function away(word: HostWord | null, message = word?.message ?? 'no CUDA-capable device'): HostFacts {
  return { endpoint, from: 'guest.conf', answer: { kind: 'unreachable', message, word } };
}
const outside = (one: HostFacts, observation: Partial<Observation> = {}): DoctorFacts =>
  doctorFacts({ machine: { host: one }, observation });
/** It answers root, and the service's user met this. */
const inUnit = (word: HostWord, machine: Partial<MachineFacts> = {}, seen: Partial<Observation> = {}) =>
  doctorFacts({
    machine: { host: answers, ...machine },
    observation: { probe: withoutHost(word), host: answer, ...seen },
  });
const refusing = (status: Status) => hostWord('refused', { status });
const denied = hostWord('unreachable', { errno: 'EACCES', message: 'cannot connect: Permission denied' });
const unixSocket = { host: { ...answers, endpoint: 'unix:/run/vgpu/hostd.sock' }, serviceUser: null };
const busy = { count: 3, status: 'busy', age: 2 } as const;
const turnedAway: Observation['present'] = {
  loaded: { kind: 'unasked' },
  sessions: {
    kind: 'told',
    own: [],
    processes: 1,
    others: 0,
    turnedAway: busy,
    refusedKernels: null,
    memory: null,
  },
};

says(file, host, {
  'it answers': outside(answers),
  'it was not asked': outside({ endpoint, from: 'default', answer: { kind: 'unasked' } }),
  'nothing listens': outside(away(hostWord('unreachable', { errno: 'ECONNREFUSED' }))),
  'an older shim tells nothing of it': outside(away(null), { probe: null }),
  'an older shim tells nothing, and the message has the address': outside(
    away(null, `${endpoint}: no route`),
    { probe: noDevice },
  ),
  'only the probe in the unit tells why': outside(away(null), { probe: withoutHost(hostWord('timeout')) }),
  'the shim tells it in other words': outside(away(hostWord('lost'), 'it was there a moment ago')),
  'something else listens there': outside(away(hostWord('foreign'))),
  'something closes at once': outside(away(hostWord('closed'))),
  'it is full': outside(away(refusing('busy'))),
  'it has no device': outside(away(refusing('no-device'))),
  'it may not let this guest in': outside(away(refusing('not-allowed'))),
  'it refuses for another reason': outside(away(refusing('invalid'))),
  'it is of another version': outside(away(hostWord('version', { hostWire: 2 }))),
  'it has no more sessions for the service': inUnit(refusing('busy')),
  'it lets root in and not this guest': inUnit(refusing('not-allowed')),
  'it lets root in and refuses the service': inUnit(refusing('invalid')),
  "the socket is shut for the service's user": inUnit(denied, {
    ...unixSocket,
    serviceUser: doctorFacts().machine.serviceUser,
  }),
  'the socket is shut for an unknown user': inUnit(denied, unixSocket),
  'the service may not connect by vsock': inUnit(denied),
  'it answers late': outside({ ...answers, answer: { ...answer, milliseconds: slowHostMs + 1 } }),
  'it answers just in time': outside({ ...answers, answer: { ...answer, milliseconds: slowHostMs } }),
  'it answers now, and the service met a time-out': inUnit(hostWord('timeout')),
});

test('a shut socket is the cause even where another program was refused before', () => {
  const facts = inUnit(denied, {}, { present: turnedAway });
  assert.match(troubleOf(host.examine(facts)).cause, /answers root, but refuses the user/);
});

for (const [endpoint, command] of [
  ['unix:/run/vgpu/hostd.sock', 'ss -xlp | grep /run/vgpu/hostd.sock'],
  ['tcp:127.0.0.1:14833', 'ss -tlnp | grep 14833'],
  ['vsock:2:14833', 'ss --vsock -lp | grep 14833'],
] as const) {
  test(`the program that listens at the host's address is searched for on its machine: ${endpoint}`, () => {
    const facts = outside({ ...away(hostWord('foreign')), endpoint });
    assert.equal(troubleOf(host.examine(facts)).command, command);
  });
}

const tells = (guestWire: number, hostWire: number | null, name: string | null = null) =>
  hostWord('version', { status: 'version', guestWire, hostWire, host: name });
const provenance = { component: 'libcuda', version: '0.2.0', wire: 3 };
const installedAt = (path: string, vendor: 'vgpu' | 'foreign') =>
  candidate(path, { vendor, elf: elf({ provenance }) });
const current = `${storeCurrent}/libcuda.so.1`;

says(file, versions, {
  'nothing is installed': doctorFacts({ machine: { manifest: null } }),
  'the host does not answer': outside(away(hostWord('unreachable'))),
  'it answers, and the shim has a note': doctorFacts({
    machine: {
      host: answers,
      candidates: [installedAt('/usr/lib/libcuda.so.1', 'vgpu'), installedAt(current, 'vgpu')],
    },
  }),
  'it answers, and the file in the store is another library': doctorFacts({
    machine: { host: answers, candidates: [installedAt(current, 'foreign')] },
  }),
  'it answers, and the shim of another place has a note': doctorFacts({
    machine: { host: answers, candidates: [installedAt('/usr/lib/libcuda.so.1', 'vgpu')] },
  }),
  'it answers, and the shim has no note': doctorFacts({
    machine: { host: answers, candidates: [candidate(current, { vendor: 'vgpu', elf: elf() })] },
  }),
  'it answers, and the shim could not be read': doctorFacts({
    machine: { host: answers, candidates: [candidate(current, { vendor: 'vgpu', elf: null })] },
  }),
  'the host is older': doctorFacts({
    machine: {
      host: away(tells(3, 2, 'vgpu-hostd 0.1.0 cuda')),
      candidates: [installedAt(current, 'vgpu')],
    },
  }),
  'the guest is older': outside(away(tells(1, 2))),
  'it is not known which is older': outside(away(tells(1, null))),
  'only the probe in the unit met it': outside(answers, { probe: withoutHost(tells(1, 0)) }),
  'outside it is another trouble': outside(away(hostWord('timeout')), { probe: withoutHost(tells(1, 2)) }),
});

file.nothingElse();
