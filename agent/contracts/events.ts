/** One stream of events; output/ renders it for a terminal (talk on stderr, results on stdout) or as JSON. */

import type { MachineFacts } from './facts.js';
import type { Change, Plan } from './plan.js';
import type { Verdict } from './verdict.js';

export type Event =
  | {
      readonly kind: 'phase';
      readonly phase: 'inspect' | 'recover' | 'apply' | 'restart' | 'confirm' | 'rollback' | 'service';
      readonly text: string;
    }
  | { readonly kind: 'plan'; readonly plan: Plan }
  | { readonly kind: 'change-started'; readonly change: Change; readonly index: number; readonly of: number }
  | {
      readonly kind: 'change-done';
      readonly change: Change;
      readonly index: number;
      readonly of: number;
      readonly milliseconds: number;
    }
  | { readonly kind: 'change-undone'; readonly change: Change }
  | { readonly kind: 'waiting'; readonly text: string; readonly elapsedMs: number; readonly limitMs: number }
  | {
      readonly kind: 'note';
      readonly level: 'info' | 'warning';
      readonly code: string;
      readonly text: string;
      readonly remedy: string | null;
    }
  | { readonly kind: 'facts'; readonly facts: MachineFacts }
  | { readonly kind: 'verdict'; readonly verdict: Verdict };

export type Emit = (event: Event) => void;

type Note = Extract<Event, { kind: 'note' }>;

export function note(
  emit: Emit,
  level: Note['level'],
  code: string,
  text: string,
  remedy: string | null = null,
): void {
  emit({ kind: 'note', level, code, text, remedy });
}
