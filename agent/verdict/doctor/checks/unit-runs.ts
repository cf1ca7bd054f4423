import { unusedQuadlet } from '../../../install/plan/container.js';
import { broken, byHand, ok } from '../finding.js';
import type { Check, DoctorFacts } from '../types.js';

/** The service itself: there, wanted, and running. */
export const unitRuns: Check = {
  id: 'unit-runs',
  title: 'the service runs',
  looksAt: 'the state of the unit as systemd has it, and whether it was started again during the check',
  explains: ['unit-failed', 'unit-restarting'],
  examine(facts) {
    const { unit } = facts.observation;
    const { name } = unit;
    switch (unit.kind) {
      case 'absent': {
        const unused = unusedQuadlet(name, facts.machine.containers);
        if (unused !== null) {
          return broken({
            cause: `There is no ${name}, but a quadlet of that name.`,
            evidence: [unused.message],
            remedy: byHand(unused.remedy ?? '', 'man podman-systemd.unit'),
          });
        }
        return broken({
          cause: `There is no ${name} on this machine, so no service can use the GPU.`,
          evidence: [`systemd knows no unit ${name}`],
          remedy: byHand(
            'install the consumer, or name another one: --profile NAME or --unit NAME.service',
            'systemctl list-unit-files --type=service',
          ),
        });
      }
      case 'masked':
        return broken({
          cause: `${name} is masked, so systemd does not start it.`,
          evidence: [`${unit.path === '' ? name : unit.path} leads to /dev/null`],
          remedy: byHand('to allow it to run', `sudo systemctl unmask ${name}`),
        });
      case 'bad':
        return broken({
          cause: `systemd cannot load ${name}.`,
          evidence: [`${unit.loadState}: ${unit.message}`],
          remedy: byHand('see what is wrong with its file', `systemd-analyze verify ${name}`),
        });
      case 'loaded':
        return running(facts);
    }
  },
};

function running({ observation }: DoctorFacts): ReturnType<Check['examine']> {
  const { unit, end, restarts, lastWords } = observation;
  if (unit.kind !== 'loaded') return ok();
  const { name, activeState, subState, result } = unit;
  const state = `${name}: ${activeState} (${subState}), result ${result === '' ? 'none' : result}`;
  if (end === 'unit-restarting' || restarts > 0) {
    return broken({
      cause: `${name} keeps ending and being started again.`,
      evidence: [state, ...lastWords.slice(-3).map(({ text }) => text)],
      remedy: byHand('read what it logs before it ends', `sudo journalctl --unit=${name} --lines=100`),
    });
  }
  if (activeState === 'active' || activeState === 'activating' || activeState === 'reloading') {
    return ok(state);
  }
  const [text, command] =
    activeState === 'inactive'
      ? ['start it', `sudo systemctl start ${name}`]
      : ['see why it ended', `systemctl status ${name}`];
  return broken({
    cause: `${name} does not run.`,
    evidence: [state, ...lastWords.slice(-3).map((line) => line.text)],
    remedy: byHand(text, command),
  });
}
