/** The structured journal entries of the agent: documented in vgpu-agent(8), explained in units/vgpu-agent.catalog. */
import type { Verdict } from './verdict.js';

/** These never change: scripts select by them (documented in vgpu-agent(8)). */
export const messageIds = {
  installed: 'f1bbdc2a15da445792da3f79ff42c071',
  uninstalled: 'ac71a9ffd5e94d909627e8a294c7e535',
  rolledBack: 'd02a3245beff4f9483be491858bd2165',
  verdict: '4da52d4e78ff4484b95c2db0a3ab5afa',
  // Of the service:
  serviceStarted: '841ebd9dda6a4ab8951a1319520927af',
  serviceStopped: '4e9bad68244d4f74b443cbfbe6cfee5e',
  drift: '89c46e78561542d4bb0a4255da0e7399',
  repaired: '4de2833d91af4de285d2f203d2adcc3d',
  repairFailed: 'e9762b2bda4741eba4abd3aa63fab619',
  repairLimit: '0c1bc92d7f394427a0d7e6d70c3c0217',
  packageManager: 'c7bf7632b96c49b58c8f56cee4b5d485',
  consumerRestarted: '2a6f17602fbc47acbbb63a273c954fb6',
  restartDeferred: '204914a2982c4dc1a05c1cf752e0ee13',
  hostLost: 'afd5a6ffeee74b16a28492d435a11686',
  hostBack: 'f62d4d9376e342efb15557f9ac2feeb5',
  configLoaded: '9b3f3a4fdd35435db2168dd46efbbbb2',
  configRefused: 'f1f5095b3d6041cc9544cdaa92a72aa2',
  resumed: '70c6102aecc740c3aa78abff2a9da6b9',
} as const;

export type ServiceEventName = Exclude<
  keyof typeof messageIds,
  'installed' | 'uninstalled' | 'rolledBack' | 'verdict'
>;

/** Something that the service noticed or did, in one line. */
export interface ServiceEvent {
  readonly kind: ServiceEventName;
  readonly profile: string | null;
  readonly unit: string | null;
  readonly text: string;
  /** Further fields, names without `VGPU_`. */
  readonly fields?: Readonly<Record<string, string | number | null>>;
}

export type JournalMessage =
  | {
      readonly kind: 'installed' | 'uninstalled' | 'rolledBack';
      readonly profile: string;
      readonly unit: string;
      readonly storeId: string | null;
      readonly changes: number;
    }
  | { readonly kind: 'verdict'; readonly verdict: Verdict }
  | ServiceEvent;
