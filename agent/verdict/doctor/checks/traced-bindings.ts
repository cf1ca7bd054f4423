/** The check of a traced start: which library each CUDA symbol was bound to. */
import { plural } from '../../../lib/text.js';
import { journalctl } from '../../advice.js';
import {
  broken,
  byHand,
  type Check,
  type DoctorFacts,
  type Finding,
  notApplicable,
  ok,
  repairPlace,
  unknown,
  warning,
} from '../finding.js';
import { groupsOf, isForeign, libraryText, processNames, type TracedStart } from '../trace.js';

const shown = 12;

export const tracedBindings: Check = {
  id: 'traced-bindings',
  title: 'its processes call the shim (--trace)',
  looksAt:
    'with --trace: one start with libvgpu-trace.so, which shows the library of every CUDA and NVML symbol',
  explains: ['foreign-library-loaded', 'shim-not-loaded', 'preload-ignored'],
  examine(facts) {
    const { trace, verdict } = facts;
    if (trace === null) {
      return notApplicable('a trace restarts the service twice: sudo vgpu-agent doctor --trace');
    }
    if (trace.kind === 'not-traced') {
      return trace.declined ? notApplicable(trace.why) : unknown(`not traced: ${trace.why}`);
    }
    return (
      foreign(trace, facts) ??
      nothing(trace, facts) ??
      (verdict.mode !== 'gpu' && isPartial(trace)
        ? warning({
            cause:
              'All symbols that were traced are bound to the shim, but parts of the service bypass preloaded libraries.',
            evidence: evidenceOf(trace),
            remedy: byHand('see which libraries its processes have loaded', 'sudo vgpu-agent doctor --json'),
          })
        : ok(...evidenceOf(trace)))
    );
  },
};

function foreign(trace: TracedStart, facts: DoctorFacts): Finding | null {
  const [first] = trace.processes.flatMap((process) =>
    process.bindings.filter(isForeign).map((binding) => ({ process, binding })),
  );
  if (first === undefined) return null;
  const { process, binding } = first;
  const { library } = binding;
  return broken({
    cause: `${processNames([process])} calls ${libraryText(binding)}, which does not use the host.`,
    evidence: evidenceOf(trace, true),
    remedy: repairPlace(facts, {
      path: library,
      ownerOfPath: facts.machine.candidates.find((one) => one.path === library)?.ownerOfPath ?? null,
    }),
  });
}

function nothing(trace: TracedStart, facts: DoctorFacts): Finding | null {
  const { processes, live } = trace;
  if (processes.some(({ bindings }) => bindings.length > 0)) return null;
  const evidence = evidenceOf(trace);
  if (live.some(({ traced }) => traced === false)) return unknown('the tracer was not loaded', ...evidence);
  if (processes.length === 0) return unknown('no process was seen with the tracer', ...evidence);
  // An object that bypasses the tracer may have found a driver.
  const past = processes.some(({ bypassed }) => bypassed.length > 0);
  if (facts.verdict.mode === 'gpu' || !trace.complete || past) {
    return unknown('the trace shows no symbol of CUDA or NVML', ...evidence);
  }
  return broken({
    cause: processes.some((one) => one.asked)
      ? 'Its processes looked for a CUDA driver and called no function of it: it was not found, or could not be loaded.'
      : 'None of its processes opened libcuda: the service does not look for CUDA at all.',
    evidence,
    remedy: byHand(
      'read what it logs about its own search',
      `${journalctl(facts.observation.unit)} --unit=${facts.profile.unit} --lines=100`,
    ),
  });
}

function isPartial({ processes, live }: TracedStart): boolean {
  const past = processes.some(({ bypassed, opened }) => bypassed.length > 0 || opened.some(isForeign));
  return past || live.some(({ traced }) => traced === false);
}

function evidenceOf(trace: TracedStart, foreignOnly = false): readonly string[] {
  const { strange, cut, complete, more } = trace;
  const lines = groupsOf(trace).flatMap(({ who, lines: all }) =>
    all.filter((line) => line.foreign || !foreignOnly).map(({ text }) => `${who}: ${text}`),
  );
  return [
    ...lines.slice(0, shown),
    ...(lines.length > shown ? [`and ${lines.length - shown} more (--json has all)`] : []),
    ...(complete ? [] : ['the service had not said which device it uses when the trace ended']),
    ...(cut ? ['the trace reached its limit: later entries are missing'] : []),
    ...(more > 0 ? [`it started so many processes that ${more} of them were only counted`] : []),
    ...(strange > 0 ? [`${plural(strange, 'line')} of the trace could not be read`] : []),
  ];
}
