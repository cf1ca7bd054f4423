/** Checks of the running processes: may they be preloaded, and what did they load. */

import path from 'node:path';
import { isContainer } from '../../../containers/container-unit.js';
import type { LoaderChoice, ProcessChoices } from '../../../guest/look/loader.js';
import type { ExecutableFacts, PreloadEntry } from '../../../guest/look/process.js';
import { isInStore } from '../../../lib/paths.js';
import { vendorText } from '../../../lib/text.js';
import type { SeenProcess } from '../../observation.js';
import { isLibcuda, isOurLibrary, libcudaPaths, mappedBy } from '../../watch-processes.js';
import {
  broken,
  byHand,
  type Check,
  type DoctorFacts,
  editUnit,
  type Finding,
  fixes,
  notApplicable,
  ok,
  ownerQuery,
  type Remedy,
  shimFirst,
  unknown,
  warning,
} from '../finding.js';

/** LD_PRELOAD names it, but the service's user cannot load it: the loader prints a line and goes on without. */
export const preloadReadable: Check = {
  id: 'preload-readable',
  title: "the service's user can load preloaded libraries",
  looksAt: "every entry of the unit's LD_PRELOAD, opened as the service's user",
  explains: ['preload-ignored', 'library-not-found'],
  examine(facts) {
    const { preload } = facts.look;
    if (preload.length === 0) return notApplicable('the unit preloads nothing');
    const bad = preload.filter(({ check }) => check.kind !== 'loadable');
    const [first] = bad;
    if (first === undefined) return ok(...preload.map(({ text }) => text));
    return broken({
      cause: `The loader ignores libraries that it cannot open, and ${facts.profile.unit} starts without them.`,
      evidence: bad.map(({ text }) => text),
      remedy: preloadRemedy(first, facts),
    });
  },
};

function preloadRemedy({ entry, check }: PreloadEntry, facts: DoctorFacts): Remedy {
  const restart = `sudo systemctl restart ${facts.profile.unit}`;
  if (check.kind === 'unreadable')
    return byHand(
      'let every user read it, and restart the service',
      `sudo chmod a+rX ${check.blockedAt} && ${restart}`,
    );
  if (check.kind === 'noexec')
    return byHand(
      'mount it without noexec, and restart the service',
      `sudo mount -o remount,exec ${check.mount} && ${restart}`,
    );
  return isInStore(entry)
    ? fixes(facts, 'write it again from the package')
    : editUnit(facts, `take ${entry} out of LD_PRELOAD`);
}

/** For a program that gains rights when it is started, the loader ignores what its environment says. */
export const secureExecution: Check = {
  id: 'secure-execution',
  title: 'the loader uses the environment of the service',
  looksAt:
    'AT_SECURE of its processes as the kernel set it, file capabilities and set-ID bits of their programs',
  explains: ['preload-ignored'],
  examine(facts) {
    const { security, executables } = facts.look;
    if (security.length === 0) return notApplicable('no process of the service runs');
    const secure = security.filter((one) => one.secure === true);
    const [first] = secure;
    if (first === undefined) {
      return security.every((one) => one.secure === null)
        ? unknown('no auxiliary vector of its processes could be read')
        : ok(...security.map(({ pid, name }) => `process ${pid} (${name}): AT_SECURE is not set`));
    }
    const programs = executables.filter(({ path }) => secure.some(({ executable }) => executable === path));
    const trouble = {
      cause:
        'The program gains privileges when it is started, so the loader ignores LD_PRELOAD and LD_LIBRARY_PATH for it (ld.so(8), secure-execution mode).',
      evidence: [
        ...secure.map(({ pid, name }) => `process ${pid} (${name}): AT_SECURE=1 in /proc/${pid}/auxv`),
        ...programs.flatMap(rightsOf),
      ],
      remedy: remedyFor(programs, facts),
    };
    return facts.verdict.mode === 'gpu' ? warning(trouble) : broken(trouble);
  },
};

function rightsOf({ path, setId, capabilities }: ExecutableFacts): readonly string[] {
  return [
    ...(setId ? [`${path} has a set-user-ID or set-group-ID bit`] : []),
    ...(capabilities ? [`${path} has file capabilities: ${capabilities}`] : []),
  ];
}

function remedyFor(
  programs: readonly ExecutableFacts[],
  { profile }: DoctorFacts,
): ReturnType<typeof byHand> {
  const restart = `sudo systemctl restart ${profile.unit}`;
  const [program] = programs.filter((one) => rightsOf(one).length > 0);
  if (program === undefined) {
    return byHand('find out what gives it privileges (a security module?)', `systemctl show ${profile.unit}`);
  }
  const take = [
    ...(program.setId ? [`sudo chmod ug-s ${program.path}`] : []),
    ...(program.capabilities ? [`sudo setcap -r ${program.path}`] : []),
  ];
  return byHand(
    'remove them from the file (AmbientCapabilities= of the unit gives the same privileges without this effect)',
    [...take, restart].join(' && '),
  );
}

export const loadedLibrary: Check = {
  id: 'loaded-library',
  title: 'its processes have loaded only the shim',
  looksAt: 'every libcuda in /proc/PID/maps of its processes, and its vendor by content',
  explains: ['foreign-library-loaded', 'consumer-not-restarted', 'shim-not-loaded', 'no-session'],
  examine(facts) {
    const { processes } = facts.observation;
    if (facts.machine.manifest === null) return notApplicable('nothing is installed');
    if (processes.length === 0) return notApplicable('no process of the service was found');
    const other = processes.filter(hasOther);
    const stale = processes.filter((one) => mappedBy(one.facts) === 'stale');
    if (other.length > 0) {
      return broken({
        cause: 'It computes through a driver that does not use the host.',
        evidence: other.map(lineOf),
        remedy: isContainer(facts.machine.unit)
          ? shimFirst(facts)
          : fixes(facts, 'put the shim before it and restart the service'),
      });
    }
    if (stale.length > 0) {
      return broken({
        cause: 'It still runs with a shim that has been replaced or removed since it started.',
        evidence: stale.map(lineOf),
        remedy: fixes(facts, 'start it again'),
      });
    }
    if (processes.every((one) => mappedBy(one.facts) === 'unknown'))
      return unknown('the maps of its processes could not be read');
    const lines = processes.filter((one) => one.facts.libraries.length > 0).map(lineOf);
    // None at all is no fault by itself: children are gone soon after they have looked.
    return ok(...(lines.length > 0 ? lines : ['none of them has a libcuda loaded now']));
  },
};

function hasOther({ facts }: SeenProcess): boolean {
  return facts.libraries.some(
    ({ path, vendor }) =>
      isLibcuda(path) && (vendor === 'nvidia' || vendor === 'foreign') && !isOurLibrary(path, false),
  );
}

function lineOf({ facts }: SeenProcess): string {
  const vendors = facts.libraries.filter(({ path }) => isLibcuda(path)).map(({ vendor }) => vendor);
  const whose = vendors.map(vendorText);
  return `process ${facts.pid} (${facts.name}): ${libcudaPaths(facts)}, ${[...new Set(whose)].join(' and ')}`;
}

// The check of what the loader chooses for the consumer.

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
      return ok(...lines.map(({ one, choice }) => choiceLine(one, choice) + didLoad(facts, one, choice)));
    }
    const evidence = wrong.flatMap(({ one, choice }) => [
      choiceLine(one, choice) + didLoad(facts, one, choice),
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

function choiceLine({ pid, name }: ProcessChoices, { library, neededBy, outcome }: LoaderChoice): string {
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
