/**
 * Regular expressions of profiles. They run on every line of a consumer's log,
 * in a service that runs as root, so one that backtracks without end must not
 * get in. The guard is by form, not by timing: what it lets through is at worst
 * polynomial in a line of at most `maxMatchLength` characters.
 */

export const maxPatternLength = 400;
/** Patterns see this many characters of a line at most. */
export const maxMatchLength = 2048;
const maxUnbounded = 5;
/** `{n,m}` with m up to this counts as bounded. */
const smallRepeat = 32;

type PatternResult =
  | { readonly kind: 'ok'; readonly pattern: RegExp; readonly groups: readonly string[] }
  | { readonly kind: 'bad'; readonly message: string };

/** Compiles `source` (flag `u`), or says what is wrong with it. */
export function compilePattern(source: string): PatternResult {
  if (source.length > maxPatternLength) {
    return { kind: 'bad', message: `${source.length} characters; at most ${maxPatternLength} are allowed` };
  }
  let pattern: RegExp;
  try {
    pattern = new RegExp(source, 'u');
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    // V8 repeats the whole expression before the reason.
    return { kind: 'bad', message: `not a regular expression: ${said.replace(/^.*: (?=[^:]+$)/s, '')}` };
  }
  const danger = findDanger(source);
  if (danger !== null) return { kind: 'bad', message: danger };
  // With an empty alternative it matches the empty text, and has all its groups.
  const groups = Object.keys(new RegExp(`${source}|`, 'u').exec('')?.groups ?? {});
  return { kind: 'ok', pattern, groups };
}

/** An escape, a class, the beginning of a group, a quantifier, or one character. */
const token =
  /\\(?:u\{[^}]*\}|.)|\[(?:\\.|[^\]\\])*\]|\((?:\?(?:<?[=!]|:|<[^>]*>))?|(?:[*+?]|\{\d+(?:,\d*)?\})\??|./gsu;

/** Why an expression (already known to compile) could be slow, or null. */
function findDanger(source: string): string | null {
  /** For each open group, the innermost last: does it have a repetition or a choice? Then repeating it can be slow. */
  const risky = [false];
  let unbounded = 0;
  /** A quantifier at this place repeats such a group. */
  let repeatsRisky = false;
  for (const [part] of source.matchAll(token)) {
    const inRisky = repeatsRisky;
    repeatsRisky = false;
    if (/^\\[1-9k]/.test(part)) return 'back references are not allowed';
    if (/^\(\?<?[=!]/.test(part)) return 'looking ahead or behind is not allowed';
    if (part.startsWith('(')) risky.push(false);
    else if (part === ')') {
      repeatsRisky = risky.pop() === true;
      if (repeatsRisky) risky[risky.length - 1] = true;
    } else if (part === '|') risky[risky.length - 1] = true;
    else if (isUnbounded(part)) {
      if (inRisky) {
        return 'a repeated group that itself holds a repetition or a choice can take forever; write it without nesting';
      }
      unbounded += 1;
      if (unbounded > maxUnbounded) return `more than ${maxUnbounded} unbounded repetitions`;
      risky[risky.length - 1] = true;
    }
  }
  return null;
}

function isUnbounded(part: string): boolean {
  if (/^[*+]/.test(part)) return true;
  const limits = /^\{(\d+)(,?)(\d*)\}/.exec(part);
  if (limits === null) return false;
  const [, least = '', comma, most = ''] = limits;
  const upper = comma === '' ? least : most;
  return upper === '' || Number(upper) > smallRepeat;
}
