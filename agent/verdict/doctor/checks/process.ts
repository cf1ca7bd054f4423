/** Checks of the running processes: may they be preloaded, and what did they load. */
import { isContainer } from '../../../containers/container-unit.js';
import type { PreloadEntry } from '../../../guest/look/preload.js';
import type { ExecutableFacts } from '../../../guest/look/process.js';
import { isInStore } from '../../../lib/paths.js';
import type { SeenProcess } from '../../observation.js';
import { isLibcuda, isOurLibrary, libcudaPaths, mappedBy } from '../../watch-processes.js';
import {
  broken,
  byHand,
  type Check,
  type DoctorFacts,
  editUnit,
  fixes,
  notApplicable,
  ok,
  type Remedy,
  shimFirst,
  unknown,
  vendorNames,
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
    'AT_SECURE of its processes as the kernel told them, file capabilities and set-ID bits of their programs',
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
  title: 'its processes have loaded the shim, and no other',
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
  const whose = vendors.map((vendor) => (vendor === null ? 'unreadable' : vendorNames[vendor]));
  return `process ${facts.pid} (${facts.name}): ${libcudaPaths(facts)}, ${[...new Set(whose)].join(' and ')}`;
}
