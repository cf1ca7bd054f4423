/** The first step of a command, before it plans: it undoes or finishes what a former run left, and says so. */
import type { Emit } from '../../contracts/events.js';
import type { Workplace } from './workplace.js';

export async function recoverFirst(work: Pick<Workplace, 'recover'>, emit: Emit): Promise<void> {
  const recovery = await work.recover(emit);
  if (recovery.kind === 'nothing') return;
  const text =
    recovery.kind === 'rolled-back'
      ? `an earlier ${recovery.intent} was interrupted; it was undone`
      : `an earlier ${recovery.intent} was interrupted at its end; it was finished`;
  emit({ kind: 'note', level: 'warning', code: `recovered-${recovery.kind}`, text, remedy: null });
}
