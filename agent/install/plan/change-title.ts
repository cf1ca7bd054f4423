import type { PathState } from '../../contracts/manifest.js';
import type { Change } from '../../contracts/plan.js';
import { bytes, octal, oneLine, plural } from '../../lib/text.js';

export function changeTitle(change: Change): string {
  return oneLine(changeSummary(change).what);
}

export interface ChangeSummary {
  readonly sign: '+' | '-' | '~' | '>';
  readonly what: string;
}

export function changeSummary(change: Change): ChangeSummary {
  switch (change.kind) {
    case 'make-directory':
      return { sign: '+', what: `directory ${change.path}/ (${octal(change.mode)})` };
    case 'store': {
      const size = change.shim.files.reduce((sum, file) => sum + file.size, 0);
      const files = plural(change.shim.files.length, 'file');
      return {
        sign: '+',
        what: `shim ${change.shim.version} as ${change.shim.id} (${files}, ${bytes(size)})`,
      };
    }
    case 'adopt':
      return { sign: '>', what: `record ${change.path}` };
    case 'write-file':
      return { sign: made(change.before), what: `file ${change.path} (${octal(change.mode)})` };
    case 'copy-file':
      return {
        sign: made(change.before),
        what: `file ${change.path} (${octal(change.mode)}, ${bytes(change.size)})`,
      };
    case 'write-link':
      return { sign: made(change.before), what: `link ${change.path}` };
    case 'alternative':
      return { sign: '+', what: `alternative ${change.group}: ${change.path} (priority ${change.priority})` };
    case 'remove-owned':
      return { sign: change.restores.kind === 'absent' ? '-' : '~', what: change.path };
    case 'note-consumer':
      return { sign: '>', what: `record ${change.unit} as a consumer` };
    case 'remove-store':
      return { sign: '-', what: `shim ${change.id}` };
    case 'remove-alternative':
      return { sign: '-', what: `alternative ${change.group}: ${change.path}` };
    case 'remove-directory':
      return { sign: '-', what: `directory ${change.path}/` };
    case 'ldconfig':
      return { sign: '>', what: 'ldconfig' };
    case 'daemon-reload':
      return { sign: '>', what: 'systemctl daemon-reload' };
    case 'restart':
      return { sign: '>', what: `systemctl restart ${change.unit}` };
    case 'service':
      return { sign: '>', what: actionTitle(change) };
  }
}

function actionTitle({ action, unit }: Extract<Change, { kind: 'service' }>): string {
  if (action === 'daemon-reload') return 'systemctl daemon-reload';
  return action === 'hand-over' || action === 'reload'
    ? `vgpu-hostd ${action}`
    : `systemctl ${action} ${unit}`;
}

function made(before: PathState): '+' | '~' {
  return before.kind === 'absent' ? '+' : '~';
}
