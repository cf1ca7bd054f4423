import type { Refusal, Warning } from '../../contracts/plan.js';

export function told(code: string, message: string, remedy: string): readonly Refusal[];
export function told(code: string, message: string, remedy: string | null): readonly Warning[];
export function told(code: string, message: string, remedy: string | null): readonly Warning[] {
  return [{ code, message, remedy }];
}
