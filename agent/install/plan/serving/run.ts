/** The commands that start, restart or notify the daemon once the files of the host are there. Pure. */
import type { Change, Warning } from '../../../contracts/plan.js';
import type { ServingFacts, ServingRequest } from '../../../contracts/serving.js';
import { hostConf, hostDefaults, hostd, hostSocketUnit, hostUnit } from '../../../lib/paths.js';
import { plural } from '../../../lib/text.js';
import { sessionsOf } from './common.js';

interface Running {
  readonly changes: readonly Change[];
  readonly warnings: readonly Warning[];
}

export function runChanges(
  facts: ServingFacts,
  { endSessions }: Pick<ServingRequest, 'endSessions'>,
  written: ReadonlySet<string>,
): Running {
  const unit = (name: string): string => `/etc/systemd/system/${name}`;
  const act = (of: string, action: 'start' | 'restart' | 'stop', reason: string): Change => ({
    kind: 'service',
    unit: of,
    action,
    reason,
  });
  const socketActive = facts.socket.activeState === 'active';
  if (facts.service.activeState !== 'active') {
    const moved = socketActive && written.has(unit(hostSocketUnit));
    const socket = moved
      ? [act(hostSocketUnit, 'restart', 'its addresses have changed')]
      : socketActive
        ? []
        : [act(hostSocketUnit, 'start', 'guests can connect from now on')];
    return { changes: [...socket, act(hostUnit, 'start', 'it serves them')], warnings: [] };
  }
  const why = [
    ...(written.has(unit(hostSocketUnit)) ? ['the addresses'] : []),
    ...(written.has(unit(hostUnit)) ? ['its unit'] : []),
    ...(written.has(hostDefaults) ? ['the device'] : []),
  ];
  const replaced = written.has(hostd) || facts.outdated;
  const busy = sessionsOf(facts);
  if (why.length > 0 && (busy === 0 || endSessions)) {
    const reason = `${why.join(' and ')} changed`;
    // A socket cannot be restarted while its service runs.
    const changes = written.has(unit(hostSocketUnit))
      ? [
          act(hostUnit, 'stop', reason),
          act(hostSocketUnit, 'restart', reason),
          act(hostUnit, 'start', reason),
        ]
      : [act(hostUnit, 'restart', reason)];
    return { changes, warnings: [] };
  }
  const restart = written.has(unit(hostSocketUnit))
    ? `systemctl stop ${hostUnit} && systemctl restart ${hostSocketUnit} && systemctl start ${hostUnit}`
    : `systemctl restart ${hostUnit}`;
  const warnings: readonly Warning[] =
    why.length === 0
      ? []
      : [
          {
            code: 'restart-due',
            message: `${why.join(' and ')} changed; that applies from its next start, which ends ${busy === null ? 'the sessions of guests, and the daemon does not say how many there are' : plural(busy, 'session')}`,
            remedy: `when the guests do not need it: ${restart}; or now, with --end-sessions`,
          },
        ];
  const word = (action: 'hand-over' | 'reload', reason: string): Change => ({
    kind: 'service',
    unit: hostUnit,
    action,
    reason,
  });
  const changes = replaced
    ? [word('hand-over', 'the new program takes new sessions; the old one ends after its last session')]
    : written.has(hostConf)
      ? [word('reload', 'the limits apply to new sessions')]
      : [];
  return { changes, warnings };
}
