/** The check of what the loader chooses for the consumer. */
import path from 'node:path';
import { isContainer } from '../../../containers/container-unit.js';
import type { LoaderChoice, ProcessChoices } from '../../../guest/look/loader.js';
import { isOurLibrary } from '../../watch-processes.js';
import {
  broken,
  byHand,
  type Check,
  type DoctorFacts,
  type Finding,
  fixes,
  notApplicable,
  ok,
  ownerQuery,
  shimFirst,
  unknown,
} from '../finding.js';

export const loaderChoice: Check = {
  id: 'loader-choice',
  title: 'the loader chooses the shim for every process',
  looksAt:
    "the output of the loader itself (LD_DEBUG=libs, no code of the program runs): as the unit's user, in its " +
    "sandbox, with each process's environment",
  explains: ['library-not-found', 'foreign-library-loaded', 'shim-not-loaded', 'no-session'],
  examine(facts) {
    const { machine, look } = facts;
    if (machine.manifest === null) return notApplicable('nothing is installed');
    if (isContainer(machine.unit)) return inContainer(facts);
    const { processes, problem } = look.loader;
    if (processes.length === 0) {
      return problem === null
        ? notApplicable(`${machine.unit.name} starts no program`)
        : unknown('the loader could not be asked', problem);
    }
    // Only libraries that the profile puts there; others may be missing as before.
    const ours = new Set(Object.values(facts.profile.publicLinks.names));
    const all = processes.flatMap((one) =>
      one.choices.filter(({ library }) => ours.has(library)).map((choice) => ({ one, choice })),
    );
    const wrong = all.filter(({ choice }) => isWrong(choice));
    const [first] = wrong;
    if (first === undefined) {
      const lines = all.filter(({ choice }) => choice.library === 'libcuda.so.1');
      return ok(...lines.map(({ one, choice }) => lineOf(one, choice) + didLoad(facts, one, choice)));
    }
    const evidence = wrong.flatMap(({ one, choice }) => [
      lineOf(one, choice) + didLoad(facts, one, choice),
      ...choice.passedOver,
    ]);
    const file = culprit(first.choice);
    return broken({
      cause: causeOf(wrong.map(({ choice }) => choice)),
      evidence: [...new Set(evidence)],
      remedy:
        file === null
          ? fixes(facts, 'put the shim where the loader looks')
          : byHand(
              'find out where it comes from, remove or rename it, and restart the service',
              `ls -l ${file}; ${ownerQuery(facts, file)}`,
            ),
    });
  },
};

/** No loader of an image is run from outside; the engine started our probe in there, which tells what it got. */
function inContainer(facts: DoctorFacts): Finding {
  const { probe } = facts.observation;
  const library = probe?.kind === 'answered' ? probe.report.library : null;
  if (library === null) return notApplicable("the choice of the container's loader is not known");
  const told = `vgpu-probe, in the container: ${library}`;
  if (isOurLibrary(library, true)) return ok(told);
  return broken({
    cause: 'The loader of the container chooses a driver that does not use the host.',
    evidence: [told],
    remedy: shimFirst(facts),
  });
}

function didLoad(
  { machine }: DoctorFacts,
  { pid }: ProcessChoices,
  { library, outcome }: LoaderChoice,
): string {
  const live = machine.processes.find((one) => one.pid === pid);
  if (live === undefined || live.unreadable?.includes('maps') === true) return '';
  const stem = library.replace(/\.1$/, '');
  const mapped = live.libraries.filter((one) => path.basename(one.path).startsWith(stem));
  if (mapped.length === 0) return '; none is loaded now';
  const real = outcome.kind === 'found' ? outcome.realPath : null;
  if (mapped.length === 1 && mapped[0]?.path === real && !mapped[0].deleted) return '; it is loaded';
  const named = mapped.map((one) => `${one.path}${one.deleted ? ' (deleted)' : ''}`);
  return `; loaded is ${named.join(' and ')}`;
}

function isWrong({ outcome }: LoaderChoice): boolean {
  return outcome.kind !== 'found' || (outcome.vendor !== 'vgpu' && outcome.vendor !== null);
}

function culprit({ outcome }: LoaderChoice): string | null {
  return outcome.kind === 'not-found' ? null : outcome.path;
}

function causeOf(choices: readonly LoaderChoice[]): string {
  const named = [...new Set(choices.map(({ library }) => library))].join(' and ');
  if (choices.some(({ outcome }) => outcome.kind === 'refused')) {
    return `The loader finds a file named ${named} that is not a library, and stops there.`;
  }
  if (choices.some(({ outcome }) => outcome.kind === 'not-found')) {
    return `The loader does not find ${named} in the environment of the service.`;
  }
  return `The loader finds another ${named} before the shim.`;
}

function lineOf({ pid, name }: ProcessChoices, { library, neededBy, outcome }: LoaderChoice): string {
  const who = pid === null ? `the next start (${name})` : `process ${pid} (${name})`;
  const asked = neededBy === null ? library : `${library}, needed by ${neededBy}`;
  switch (outcome.kind) {
    case 'not-found':
      return `${who}: ${asked}: not found`;
    case 'refused':
      return `${who}: ${asked}: ${outcome.path} is found first: ${outcome.reason}`;
    case 'found': {
      const real = outcome.realPath === outcome.path ? '' : ` -> ${outcome.realPath}`;
      const whose = { vgpu: 'the shim', nvidia: "NVIDIA's", foreign: 'a foreign library' } as const;
      const vendor = outcome.vendor === null ? 'unread' : whose[outcome.vendor];
      return `${who}: ${asked}: ${outcome.path}${real}, by ${outcome.by} (${vendor})`;
    }
  }
}
