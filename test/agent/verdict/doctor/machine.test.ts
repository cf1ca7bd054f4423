// The checks of the machine, the store and the links.
import type { LibraryCandidate } from '../../../../agent/contracts/facts.js';
import type { Change, Refusal } from '../../../../agent/contracts/plan.js';
import {
  foreignLibrary,
  libraryFormat,
  publicLinks,
  realGpu,
} from '../../../../agent/verdict/doctor/checks/libraries.js';
import { installed, interrupted, refused, store } from '../../../../agent/verdict/doctor/checks/machine.js';
import { expected } from '../../expected.js';
import { absent, candidate, linkTo, multiarch, owner, regular } from '../../install/plan/support.js';
import { llamaServer } from '../support.js';
import { says } from './findings.js';
import { doctorFacts, elf, look, manifest, ready } from './support.js';

const file = expected('doctor-machine');
const bare = { machine: { manifest: null } };
const onCpu = { verdict: { mode: 'cpu' } } as const;
const distribution = doctorFacts().machine.distribution;

says(file, interrupted, {
  'nothing is half done': doctorFacts(),
  'an install was cut short': doctorFacts({ machine: { interrupted: true } }),
  'the first install was cut short': doctorFacts({ machine: { interrupted: true, manifest: null } }),
});

const another = { profile: 'llama-server', unit: 'llama-server.service', links: [] };
says(file, installed, {
  'for this service': doctorFacts(),
  nowhere: doctorFacts(bare),
  'for another one': doctorFacts({ machine: { manifest: { ...manifest, consumers: [another] } } }),
  'for two others': doctorFacts({
    machine: {
      manifest: { ...manifest, consumers: [another, { ...another, unit: 'embedder.service' }] },
    },
  }),
  'for this one among several': doctorFacts({
    machine: { manifest: { ...manifest, consumers: [another, ...manifest.consumers] } },
  }),
  'for a service whose profile has another name': doctorFacts({ ...bare, profile: llamaServer }),
});

const refusal = (code: string, remedy: string): Refusal => ({ code, message: `there is ${code}`, remedy });
says(file, refused, {
  'nothing is in the way': doctorFacts({ plan: ready() }),
  'two things are': doctorFacts({
    plan: {
      kind: 'refused',
      refusals: [refusal('a', 'take a away'), refusal('b', 'take b away')],
      warnings: [],
    },
  }),
  'for an unknown reason': doctorFacts({ plan: { kind: 'refused', refusals: [], warnings: [] } }),
});

const gpu = (works: boolean) => ({ kind: 'present', works, evidence: '/dev/nvidia0 is there' }) as const;
says(file, realGpu, {
  'there is none': doctorFacts(),
  'it works': doctorFacts({ machine: { realGpu: gpu(true) } }),
  'it does not': doctorFacts({ machine: { realGpu: gpu(false) } }),
  'it works, and nothing stands before it': doctorFacts({ machine: { realGpu: gpu(true), manifest: null } }),
});

const id = '0123456789abcdef';
const version = (intact: boolean, of = id) => ({ id: of, intact });
const current = (target: string) => linkTo(`versions/${target}`);
const storeWith = (changes: object) => ({
  store: { root: absent, current: current(id), versions: [version(true)], ...changes },
});
const damaged = ['libcuda.so.1: 17 bytes, and 99 were installed'];
const write: Change = {
  kind: 'write-link',
  path: '/opt/vgpu/current',
  target: `versions/${id}`,
  before: absent,
  reason: 'it is missing',
};
const restore: Change = {
  kind: 'store',
  shim: doctorFacts().machine.shim,
  reason: 'files of it were changed',
};
const elsewhere: Change = {
  ...write,
  path: `${multiarch}/libcuda.so.1`,
  target: '/opt/vgpu/current/libcuda.so.1',
};
says(file, store, {
  'nothing is installed': doctorFacts(bare),
  'all is there': doctorFacts({ machine: storeWith({}) }),
  'the link is gone': doctorFacts({
    machine: storeWith({ current: absent }),
    plan: ready(write, restore, elsewhere),
  }),
  'a directory is in its place': doctorFacts({
    machine: storeWith({ current: { kind: 'directory', empty: true, mode: 0o755, ...owner } }),
    plan: ready(),
  }),
  'it leads to a version that is gone': doctorFacts({
    machine: storeWith({ versions: [version(true, 'ffff')] }),
    plan: ready(),
  }),
  'files were changed': doctorFacts({
    machine: storeWith({ versions: [version(true, 'ffff'), version(false)] }),
    look: { storeDamage: damaged },
    plan: ready(restore),
  }),
  'files of a former version were changed': doctorFacts({
    machine: storeWith({ current: current('ffff'), versions: [version(false, 'ffff')] }),
    look: { storeDamage: damaged },
    plan: ready(),
  }),
  'files were changed, and it is not known which': doctorFacts({
    machine: storeWith({ versions: [version(false)] }),
    plan: ready(),
  }),
});

const cuda = `${multiarch}/libcuda.so.1`;
const own = '/usr/local/lib/ollama/cuda_v12';
const at = (path: string, changes: Partial<LibraryCandidate> = {}, realPath = path): LibraryCandidate =>
  candidate(path, { state: regular(), resolution: { kind: 'file', realPath, steps: [] }, ...changes });
const good = elf({ soname: 'libcuda.so.1' });
const ours = at(cuda, { vendor: 'vgpu', elf: good }, `/opt/vgpu/versions/${id}/libcuda.so.1`);
const consumer = { look: { consumer: { ...look.consumer, directories: [own] } } };
const only = (...candidates: readonly LibraryCandidate[]) => ({ machine: { candidates }, plan: ready() });
const planned = (path: string): Change => ({ ...elsewhere, path });

const unnamed = { distribution: { ...distribution, architecture: 'm68k' } };
const one = (changes: Partial<LibraryCandidate>, machine = {}) =>
  doctorFacts({ machine: { candidates: [at(cuda, changes)], ...machine }, plan: ready() });
says(file, libraryFormat, {
  'only the shim is there': doctorFacts(only(ours)),
  'another that can be loaded': doctorFacts(only(ours, at(`${multiarch}/libcuda.so`, { elf: good }))),
  'files elsewhere, and names of other libraries, are not looked at': doctorFacts(
    only(at('/srv/libcuda.so.1'), at(`${multiarch}/libcuda.so.550.1`), at(`${own}/libcuda.so.1`)),
  ),
  'one that is cut short, which install replaces': doctorFacts({
    ...only(at(cuda, { elfProblem: '0 bytes: file too short' })),
    plan: ready(planned(cuda)),
  }),
  'several of them, in a directory of the service': doctorFacts({
    ...only(
      at(`${own}/libcuda.so.1`, { elf: elf({ soname: null }) }),
      at(cuda, { elf: elf({ type: 'exec' }) }, '/x/real'),
    ),
    ...consumer,
  }),
  'nothing but a link that leads nowhere': doctorFacts({
    ...only(
      candidate(`${own}/libcuda.so.1`, {
        state: linkTo('/gone'),
        resolution: { kind: 'dangling', missing: '/gone', steps: [] },
      }),
    ),
    ...consumer,
  }),
  'a file that was not read': one({ elfProblem: null }),
  'an object file': one({ elf: elf({ type: 'rel', soname: 'libcuda.so.1' }) }),
  'one for 32 bits of another machine': one({
    elf: elf({ class: 32, machine: 'i386', soname: 'libcuda.so.1' }),
  }),
  'one for another machine': one({ elf: elf({ machine: 'aarch64', soname: 'libcuda.so.1' }) }),
  'one for 32 bits': one({ elf: elf({ class: 32, soname: 'libcuda.so.1' }) }),
  'any on a machine with unknown libraries': one(
    { elf: elf({ class: 32, soname: 'libcuda.so.1' }) },
    unnamed,
  ),
  'one without a SONAME': one({ elf: elf({ soname: null }) }),
  'one with the SONAME of another': one({ elf: elf({ soname: 'libcudart.so.12' }) }),
});

const alternative: Change = {
  kind: 'alternative',
  group: 'nvidia',
  path: '/opt/vgpu/alternative',
  priority: 1,
  link: '/usr/lib/nvidia/nvidia',
  slaves: [{ link: cuda, name: 'libcuda.so.1', path: '/opt/vgpu/current/libcuda.so.1' }],
  before: { status: 'auto', value: '/usr/lib/nvidia/current' },
  reason: 'update-alternatives owns the link',
};
const nvidia = { vendor: 'nvidia' } as const;
says(file, foreignLibrary, {
  'nothing is installed': doctorFacts(bare),
  'none is there': doctorFacts(only(ours, at(`${own}/libcuda.so.1`, nvidia))),
  "NVIDIA's in a public directory": doctorFacts(
    only(
      at(
        cuda,
        { ...nvidia, ownerOfPath: 'libcuda1', ownerOfFile: 'libnvidia-compute-550' },
        `${multiarch}/libcuda.so.550`,
      ),
    ),
  ),
  "NVIDIA's beside a real GPU": doctorFacts({
    machine: { candidates: [at(cuda, nvidia)], realGpu: gpu(true) },
    plan: ready(planned(cuda)),
  }),
  "a foreign one in the service's own directory, with GPU mode confirmed": doctorFacts({
    ...only(at(`${own}/libcuda.so.1`, { vendor: 'foreign' })),
    ...consumer,
  }),
  'one in its own directory, and the service is on the CPU': doctorFacts({
    ...only(at(`${own}/libcuda.so.1`, { vendor: 'foreign' })),
    ...consumer,
    ...onCpu,
  }),
  'in both': doctorFacts({
    ...only(at(`${own}/libcuda.so.1`, { vendor: 'foreign' }), at(cuda, nvidia)),
    ...consumer,
  }),
  'a file of the store that was changed is for another check': doctorFacts(
    only(at(cuda, { vendor: 'foreign' }, `/opt/vgpu/versions/${id}/libcuda.so.1`)),
  ),
  'a directory whose name begins like the store': doctorFacts(
    only(at(cuda, { vendor: 'foreign' }, '/opt/vgpu-old/libcuda.so.1')),
  ),
  'a group of alternatives will set it': doctorFacts({ ...only(at(cuda, nvidia)), plan: ready(alternative) }),
  'it is the link of a group': doctorFacts({
    ...only(at(cuda, nvidia)),
    plan: ready({ ...alternative, link: cuda, slaves: [] }),
  }),
  'what will be changed is something else': doctorFacts({
    ...only(at(cuda, nvidia)),
    plan: ready({ ...alternative, slaves: [] }, planned(`${multiarch}/libcuda.so`), {
      kind: 'daemon-reload',
      reason: 'x',
    }),
  }),
});

says(file, publicLinks, {
  'nothing is installed': doctorFacts(bare),
  'all are right': doctorFacts(
    only(ours, at('/srv/libcuda.so.1', { vendor: 'vgpu' }), at(`${multiarch}/libcuda.so`)),
  ),
  'links and a group of alternatives are to be set': doctorFacts({
    plan: ready(planned(cuda), alternative, restore, write),
  }),
});

file.nothingElse();
