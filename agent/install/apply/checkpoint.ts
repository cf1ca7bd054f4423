/**
 * Marks where a run may be cut short. Nothing subscribes in production, and then it costs one property read.
 * A test preloads a module that subscribes to `vgpu.checkpoint` and kills its own process at the n-th.
 */
import { channel } from 'node:diagnostics_channel';

export interface Checkpoint {
  /** The fact that has just become true: `rename /etc/vgpu/guest.conf`. */
  readonly name: string;
}

const checkpoints = channel('vgpu.checkpoint');

export function checkpoint(name: string): void {
  if (checkpoints.hasSubscribers) checkpoints.publish({ name } satisfies Checkpoint);
}
