/** The wizard's facts, questions and decisions: data, so that any kind of terminal can ask it. */
import type { HostFacts, LibraryCandidate } from '../../contracts/facts.js';
import type { Profile } from '../../profile/types.js';

/** A service here that one of the profiles describes. */
export interface Consumer {
  readonly profile: Profile;
  /** Driver libraries here other than the shim. */
  readonly libraries: readonly Pick<LibraryCandidate, 'path' | 'vendor' | 'ownerOfFile'>[];
}

/** A place where the host may be, and what was heard from there. */
export interface HostSeen {
  readonly endpoint: string;
  /** Why it was tried: `VGPU_HOST`, `/etc/vgpu/guest.conf`, `the usual socket`, ... */
  readonly from: string;
  readonly answer: HostFacts['answer'];
}

/** The facts from before the first question. */
export interface Found {
  /** At least one. */
  readonly consumers: readonly Consumer[];
  readonly hosts: readonly HostSeen[];
  /** The present installation; null: nothing is installed. */
  readonly installed: {
    readonly profiles: readonly string[];
    readonly endpoint: string;
    readonly service: boolean;
  } | null;
}

/** The answers so far. */
export interface Answers {
  readonly profile?: string;
  readonly host?: string;
  readonly service?: boolean;
  /** The address is about to be typed. */
  readonly typing?: true;
}

/** All that an install needs to know. */
export interface Decision {
  readonly profile: Profile;
  readonly host: string;
  readonly service: boolean;
}

export interface Choice {
  readonly value: string;
  /** A word or two. */
  readonly label: string;
  /** The meaning, on one line with the label. */
  readonly explanation: string;
}

export type Question =
  | {
      readonly kind: 'choice';
      readonly id: 'consumer' | 'host' | 'service' | 'go' | 'device';
      readonly message: string;
      readonly choices: readonly Choice[];
      /** Value of the choice that Enter alone takes. */
      readonly preselected: string;
    }
  | {
      readonly kind: 'text';
      readonly id: 'address';
      readonly message: string;
      /** The fault of this text; null: none. */
      readonly problem: (text: string) => string | null;
    };

export type Answer = { readonly kind: 'answer'; readonly value: string } | { readonly kind: 'back' };

/**
 * Asks one question. Throws a VgpuError (`interrupted`) when the person stops. `back`: there is a question
 * before this one to go back to.
 */
export type Ask = (question: Question, options: { readonly back: boolean }) => Promise<Answer>;
