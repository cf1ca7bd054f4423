/** The changes that remove the host from this machine and restore the former state. Pure. */
import type { OwnedItem } from '../../../contracts/manifest.js';
import type { Change, Plan, Warning } from '../../../contracts/plan.js';
import type { ServingFacts, ServingRequest } from '../../../contracts/serving.js';
import { hostSocketUnit, hostUnit } from '../../../lib/paths.js';
import { plural } from '../../../lib/text.js';
import { isOurs, staysEdited } from '../owned.js';
import { hostProfile, interrupted, sessionsOf } from './common.js';

export function planServingAway(facts: ServingFacts, request: Pick<ServingRequest, 'endSessions'>): Plan {
  const items = [...(facts.manifest?.items ?? [])].reverse();
  const busy = sessionsOf(facts);
  if (items.length > 0 && busy !== 0 && !request.endSessions) {
    return {
      kind: 'refused',
      refusals: [
        busy === null
          ? {
              code: 'in-use',
              message: `${hostUnit} runs and does not say whether it serves guests; their sessions would end`,
              remedy: `systemctl status ${hostUnit} shows its state; vgpu-agent host uninstall --end-sessions removes it in any case`,
            }
          : {
              code: 'in-use',
              message: `${plural(busy, 'session')} of guests ${busy === 1 ? 'is' : 'are'} open and would end`,
              remedy:
                'vgpu-hostd sessions shows them; vgpu-agent host uninstall --end-sessions ends them; or vgpu-agent uninstall in each guest first',
            },
      ],
      warnings: interrupted(facts),
    };
  }
  const placed = items.filter((item) => item.kind === 'file' || item.kind === 'link');
  const inSystemd = placed.filter((item) => item.path.startsWith('/etc/systemd/'));
  const others = placed.filter((item) => !inSystemd.includes(item));
  const back = (item: (typeof placed)[number]): Change => ({
    kind: 'remove-owned',
    path: item.path,
    restores: item.before,
    reason: item.before.kind === 'absent' ? 'nothing was here before' : 'what was here before comes back',
  });
  return {
    kind: 'ready',
    side: 'host',
    intent: 'uninstall',
    profile: hostProfile,
    unit: hostUnit,
    storeId: facts.manifest?.storeId ?? '',
    endpoint: facts.manifest?.endpoint ?? '',
    consumers: [],
    changes: [
      ...inSystemd.map(back),
      ...others.map(back),
      ...directories(items),
      ...(items.length > 0 || isLeftRunning(facts) ? stopChanges(facts) : []),
    ],
    warnings: [...interrupted(facts), ...edited(facts, items)],
  };
}

/** An uninstall that was cut short at its very end: the units run, and their files are gone. */
function isLeftRunning({ files, service, socket }: ServingFacts): boolean {
  const unit = files.find((file) => file.path === `/etc/systemd/system/${hostUnit}`);
  return (
    unit?.state.kind === 'absent' && (service.activeState === 'active' || socket.activeState === 'active')
  );
}

/** systemd still knows the units as they were: RemoveOnStop= of the socket counts. Then it forgets them. */
function stopChanges(facts: ServingFacts): readonly Change[] {
  const stops = [hostSocketUnit, hostUnit].flatMap((unit): readonly Change[] => {
    const { activeState } = unit === hostUnit ? facts.service : facts.socket;
    if (activeState === 'inactive' || activeState === 'failed') return [];
    return [{ kind: 'service', unit, action: 'stop', reason: 'this machine stops serving guests' }];
  });
  const reason = 'systemd unloads the units';
  return [...stops, { kind: 'service', unit: hostUnit, action: 'daemon-reload', reason }];
}

function directories(items: readonly OwnedItem[]): readonly Change[] {
  return items.flatMap((item): readonly Change[] =>
    item.kind === 'directory'
      ? [
          {
            kind: 'remove-directory',
            path: item.path,
            reason: 'vgpu-agent made it; it is removed if it is empty',
          },
        ]
      : [],
  );
}

function edited({ files }: ServingFacts, items: readonly OwnedItem[]): readonly Warning[] {
  return items.flatMap((item): readonly Warning[] => {
    if (item.kind !== 'file') return [];
    const state = files.find((file) => file.path === item.path)?.state;
    if (state?.kind !== 'file' || isOurs(item, state)) return [];
    const kept = staysEdited(item, state) ? 'it stays' : `the edited text is kept as ${item.path}.vgpu-save`;
    const message = `${item.path} was edited since vgpu-agent wrote it; ${kept}`;
    return [{ code: 'edited-file', message, remedy: null }];
  });
}
