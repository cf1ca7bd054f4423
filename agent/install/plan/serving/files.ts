/** One file of the host: is it written, and why? Pure. */
import type { Change } from '../../../contracts/plan.js';
import type { ServingFile } from '../../../contracts/serving.js';
import { hostConf, hostDefaults, hostd } from '../../../lib/paths.js';

export function fileChange(file: ServingFile): readonly Change[] {
  const { wanted, state, mode, ownerPackage } = file;
  if (file.editable && !file.asked && state.kind !== 'absent') return [];
  const place = { path: file.path, mode, before: state, ownerPackage, reason: reasonOf(file.path) };
  if (wanted.kind === 'text') {
    const { content } = wanted;
    if (file.content === content && state.kind === 'file' && state.mode === mode) return [];
    return [{ kind: 'write-file', content, previousContent: file.content, ...place }];
  }
  const { source, sha256, size } = wanted;
  if (state.kind === 'file' && state.sha256 === sha256 && state.mode === mode) return [];
  return [{ kind: 'copy-file', source, sha256, size, ...place }];
}

function reasonOf(file: string): string {
  switch (file) {
    case hostd:
      return 'the daemon, and the command that asks it';
    case hostDefaults:
      return 'the device that it serves; you may edit it';
    case hostConf:
      return 'the limits of each guest; you may edit it';
    default:
      if (file.endsWith('.socket')) return 'the addresses at which it serves';
      if (file.endsWith('.service')) return 'how systemd starts it';
      if (file.endsWith('.json')) return 'a GPU that --profile can simulate';
      return 'man page';
  }
}
