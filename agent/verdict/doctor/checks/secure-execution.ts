import type { ExecutableFacts } from '../../../guest/look/executables.js';
import { broken, byHand, notApplicable, ok, unknown, warning } from '../finding.js';
import type { Check, DoctorFacts } from '../types.js';

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
