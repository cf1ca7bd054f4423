// The doctor's finding for one traced start: the owner of each library that is called, and the limits of the trace.
import { tracedBindings } from '../../../../../agent/verdict/doctor/checks/traced-bindings.js';
import type { DoctorFacts } from '../../../../../agent/verdict/doctor/finding.js';
import type { LiveProcess, TracedStart } from '../../../../../agent/verdict/doctor/trace.js';
import { expected } from '../../../expected.js';
import { candidate } from '../../../install/plan/support.js';
import { unit } from '../../support.js';
import { says } from '../findings.js';
import { doctorFacts, toNamespace } from '../support.js';
import { line, ours, program, strangers, theirs, toOurs, traced } from './lines.js';

const file = expected('doctor-trace');
const started = (pid: number, name = 'llama-server') =>
  line(pid, `event=process program=/usr/local/lib/ollama/${name}`);
const looksUp = (pid: number, library: string, symbol = 'cuInit') =>
  line(pid, `event=dlsym caller=/l/libcudart.so of=default symbol=${symbol} library=${library}`);
const opens = (pid: number, name: string) =>
  line(pid, `event=dlopen caller=/l/libcudart.so file=${name} flags=2 deepbind=no`);
const bypasses = (pid: number) =>
  line(pid, 'event=bypassed object=/l/deep.so symbol=dlsym library=/lib/libc.so.6');
const toTheirs = looksUp(7, theirs);

/** A trace of a service that is on the GPU. */
function onGpu(text: string, changes: Partial<TracedStart> = {}): DoctorFacts {
  return doctorFacts({ trace: traced(text, changes) });
}
function onCpu(text: string, changes: Partial<TracedStart> = {}): DoctorFacts {
  return doctorFacts({ trace: traced(text, changes), verdict: { mode: 'cpu' } });
}
const living = (pid: number, isTraced: boolean | null): LiveProcess => ({
  pid,
  program: '/usr/bin/x',
  traced: isTraced,
});
const packaged = {
  machine: { candidates: [candidate(ours), candidate(theirs, { ownerOfPath: 'libcuda1' })] },
};
const thirteen = Array.from({ length: 13 }, (_, at) =>
  looksUp(7, ours).replace('libcudart', `lib${at}`),
).join('');

says(file, tracedBindings, {
  'no trace was requested': doctorFacts(),
  'a person did not want it': doctorFacts({
    trace: { kind: 'not-traced', why: 'nothing was restarted', declined: true },
  }),
  'it could not be done': doctorFacts({
    trace: { kind: 'not-traced', why: 'the tracer is not installed', declined: false },
  }),
  'all is ours, by every way, and one library goes its own': onGpu(
    program +
      toOurs +
      line(7, `event=binds object=program symbol=cuInit how=direct library=${ours}`) +
      looksUp(7, ours) +
      looksUp(7, ours, 'cuMemAlloc') +
      line(7, `event=dlsym caller=- of=default symbol=nvmlInit library=${ours}`) +
      line(7, `event=cuGetProcAddress of=${ours} symbol=cuMemAlloc library=${ours}`) +
      bypasses(7),
  ),
  'four processes did the same, and one of another program too': onGpu(
    [1, 2, 3, 4].map((pid) => started(pid) + looksUp(pid, ours)).join('') +
      started(5, 'ollama') +
      looksUp(5, ours),
  ),
  'five processes did the same, and one of them more': onGpu(
    [1, 2, 3, 4, 5].map((pid) => started(pid) + looksUp(pid, ours)).join('') +
      opens(5, theirs) +
      looksUp(5, ours).replace('libcudart', 'libmore'),
  ),
  'a process that never named its program': onGpu(looksUp(7, ours)),
  'twelve kinds of bindings are shown': onGpu(program + thirteen.slice(0, thirteen.lastIndexOf('time='))),
  'of more than twelve the rest is counted': onGpu(program + thirteen),
  'a library that cannot be read is no alarm': onGpu(program + looksUp(7, '/gone/libcuda.so.1')),
  "one symbol of NVIDIA's among ours": doctorFacts({
    trace: traced(
      started(6) + looksUp(6, ours) + program + toOurs + opens(7, theirs) + opens(7, ours) + toTheirs,
    ),
  }),
  "NVIDIA's belongs to a package": doctorFacts({ ...packaged, trace: traced(program + toTheirs) }),
  "it calls a foreign one, and another process only opened NVIDIA's": onCpu(
    program +
      opens(7, strangers) +
      looksUp(7, strangers) +
      started(8, 'ollama') +
      opens(8, theirs) +
      opens(9, theirs),
  ),
  'the trace has its limits': onGpu(program + toOurs, { cut: true, strange: 3, complete: false, more: 2 }),
  'it is not on the GPU, and what was seen is whole': onCpu(program + toOurs, { live: [living(7, true)] }),
  'it is not on the GPU, and one library goes its own way': onCpu(
    started(6) + looksUp(6, ours) + program + toOurs + bypasses(7),
  ),
  "it is not on the GPU, and NVIDIA's was opened among others": onCpu(
    started(6) + looksUp(6, ours) + program + toOurs + opens(7, ours) + opens(7, theirs),
  ),
  'it is not on the GPU, and one process has no tracer': onCpu(program + toOurs, {
    live: [living(7, true), living(8, null), living(9, false)],
  }),
  'it is on the GPU, and one process has no tracer': onGpu(program + toOurs, {
    live: [living(7, true), living(9, false)],
  }),
  'nothing was seen, and the tracer was not loaded': onCpu('', {
    live: [living(8, true), living(9, false)],
  }),
  'no process was seen': onCpu(''),
  'no symbol was seen, and it is on the GPU': onGpu(program),
  'no symbol was seen of a start that was not over': onCpu(program, { complete: false }),
  'no process opened libcuda': onCpu(program + started(8) + started(9, 'ollama')),
  'no process was seen to open libcuda, and one bypasses the tracer': onCpu(
    program + started(8) + bypasses(8),
  ),
  'no process of a service that logs to a namespace opened libcuda': doctorFacts({
    trace: traced(program),
    verdict: { mode: 'cpu' },
    observation: { unit: unit(toNamespace) },
  }),
  'one asked for it and called nothing': onCpu(program + opens(7, 'libcuda.so.1') + started(8) + started(9)),
});

file.nothingElse();
