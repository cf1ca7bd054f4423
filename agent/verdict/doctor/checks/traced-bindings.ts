/** The check of a traced start: which library each CUDA symbol was bound to. */
import { plural } from '../../../lib/text.js';
import { choiceOf } from '../../../profile/instance.js';
import {
  broken,
  byHand,
  type Check,
  type DoctorFacts,
  type Finding,
  notApplicable,
  ok,
  unknown,
  warning,
} from '../finding.js';
import { repairPlace } from '../places.js';
import {
  type Binding,
  bindingText,
  deafText,
  libraryText,
  processNames,
  silence,
  type TracedStart,
  together,
} from '../trace/bindings.js';

/** Evidence lines of one kind; the JSON has all. */
const shown = 8;

/** The library that provided each function of the driver in one real start. No other check sees it. */
export const tracedBindings: Check = {
  id: 'traced-bindings',
  title: 'its processes call the shim (--trace)',
  looksAt:
    'with --trace: one start with libvgpu-trace.so, which shows the library of every CUDA and NVML symbol',
  explains: ['foreign-library-loaded', 'shim-not-loaded', 'preload-ignored'],
  examine(facts) {
    const { trace } = facts;
    if (trace === null) {
      return notApplicable('it needs two restarts of the service: sudo vgpu-agent doctor --trace');
    }
    if (trace.kind === 'not-traced') {
      return trace.declined ? notApplicable(trace.why) : unknown(`not traced: ${trace.why}`);
    }
    return (
      foreign(trace, facts) ??
      nothing(trace, facts) ??
      partly(trace, facts) ??
      ok(...limited(bindingLines(trace)), ...asides(trace))
    );
  },
};

/** A driver other than the shim was called: that is the reason, whatever else was seen. */
function foreign(trace: TracedStart, facts: DoctorFacts): Finding | null {
  const [first] = trace.processes.flatMap((process) =>
    process.bindings.filter(isForeign).map((binding) => ({ process, binding })),
  );
  if (first === undefined) return null;
  const { process, binding } = first;
  const { library } = binding;
  return broken({
    cause: `${processNames([process])} calls ${libraryText(binding)}, which does not use the host.`,
    evidence: [...limited(bindingLines(trace, isForeign)), ...asides(trace)],
    remedy: repairPlace(facts, {
      path: library,
      ownerOfPath: facts.machine.candidates.find((one) => one.path === library)?.ownerOfPath ?? null,
    }),
  });
}

/** No symbol at all: because no process looked one up, or because the tracer was not loaded? */
function nothing(trace: TracedStart, facts: DoctorFacts): Finding | null {
  const { processes, live } = trace;
  if (processes.some(({ bindings }) => bindings.length > 0)) return null;
  const deaf = live.find(({ traced }) => traced === false);
  if (deaf !== undefined) {
    return unknown(`the tracer was not loaded: ${deaf.deaf ?? 'the reason is not known'}`, ...asides(trace));
  }
  if (processes.length === 0) return unknown('no process was seen with the tracer', ...asides(trace));
  // An object that bypasses the tracer may have found a driver.
  const past = processes.some(({ bypassed }) => bypassed.length > 0);
  if (facts.verdict.mode === 'gpu' || !trace.complete || past) {
    return unknown('the trace shows no symbol of CUDA or NVML', ...asides(trace));
  }
  return broken({
    cause: processes.some((one) => one.asked)
      ? 'Its processes looked for a CUDA driver and called no function of it: it was not found, or could not be loaded.'
      : 'None of its processes opened libcuda: the service does not look for CUDA at all.',
    evidence: [
      ...limited(
        together(processes, (one) => silence(one, processes)).map(
          (group) => `${processNames(group)} ${silence(group[0], processes)}`,
        ),
      ),
      ...asides(trace),
    ],
    remedy: byHand(
      'read what it logs about its own search',
      `sudo vgpu-agent logs ${choiceOf(facts.profile)}`,
    ),
  });
}

/** All that was seen is ours, but not all was seen, and it is not on the GPU. */
function partly(trace: TracedStart, facts: DoctorFacts): Finding | null {
  if (facts.verdict.mode === 'gpu') return null;
  const past = trace.processes.some(({ bypassed, opened }) => bypassed.length > 0 || opened.some(isForeign));
  if (!past && trace.live.every(({ traced }) => traced !== false)) return null;
  return warning({
    cause:
      'All symbols that were traced are bound to the shim, but parts of the service bypass preloaded libraries.',
    evidence: [...asides(trace), ...limited(bindingLines(trace))],
    remedy: byHand('see which libraries its processes have loaded', 'sudo vgpu-agent doctor --json'),
  });
}

/** One entry for each program and binding: processes with the same result are counted together. */
function bindingLines({ processes }: TracedStart, wanted = (_: Binding): boolean => true): readonly string[] {
  const texts = processes.flatMap(({ bindings }) => bindings.filter(wanted).map(lineOf));
  return [...new Set(texts)].flatMap((text) =>
    together(
      processes.filter(({ bindings }) => bindings.some((one) => wanted(one) && lineOf(one) === text)),
      () => text,
    ).map((group) => `${processNames(group)}: ${text}`),
  );
}

function lineOf(binding: Binding): string {
  return `${bindingText(binding)}${binding.symbols > 1 ? ` (${binding.example}, ...)` : ''}`;
}

/** The rest of what was seen, and the limits of the trace. */
function asides({ processes, live, strange, cut, complete, more }: TracedStart): readonly string[] {
  const opened = new Map(
    processes.flatMap((one) => one.opened.filter(isForeign)).map(({ file, vendor }) => [file, vendor]),
  );
  const bypassed = processes.flatMap((one) => one.bypassed);
  return [
    ...limited(
      [...opened].flatMap(([file, vendor]) =>
        together(
          processes.filter((one) => one.opened.some((each) => each.file === file)),
          () => file,
        ).map((group) => `${processNames(group)} opened ${libraryText({ library: file, vendor })}`),
      ),
    ),
    ...limited(
      [...new Set(bypassed)].map(
        (object) => `lookups of ${object} are not traced: RTLD_DEEPBIND, or it is bound to itself`,
      ),
    ),
    ...live.filter(({ traced }) => traced === false).map(deafText),
    ...(complete ? [] : ['the service had not said which device it uses when the trace ended']),
    ...(cut ? ['the trace reached its limit: later entries are missing'] : []),
    ...(more > 0 ? [`it started so many processes that ${more} of them were only counted`] : []),
    ...(strange > 0 ? [`${plural(strange, 'line')} of the trace could not be read`] : []),
  ];
}

function isForeign({ vendor }: { readonly vendor: Binding['vendor'] }): boolean {
  return vendor === 'nvidia' || vendor === 'foreign';
}

function limited(lines: readonly string[]): readonly string[] {
  if (lines.length <= shown) return lines;
  return [...lines.slice(0, shown), `and ${lines.length - shown} more of that kind (--json has all)`];
}
