/**
 * Regular expressions of profiles. They run on every line of a consumer's log,
 * in a service that runs as root, so one that backtracks without end must not
 * get in. The guard is by form, not by timing: what it lets through is at worst
 * polynomial in a line of at most `maxMatchLength` characters.
 */

/** Longest regular expression that a profile may hold, in characters. */
export const maxPatternLength = 400;
/** Patterns see this many characters of a line at most. */
export const maxMatchLength = 2048;
const maxUnbounded = 5;
/** `{n,m}` with m up to this counts as bounded. */
const smallRepeat = 32;

export type PatternResult =
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
    return { kind: 'bad', message: `no regular expression: ${said.replace(/^.*: (?=[^:]+$)/s, '')}` };
  }
  const danger = findDanger(source);
  if (danger !== null) return { kind: 'bad', message: danger };
  const groups = [...source.matchAll(/\(\?<([A-Za-z_]\w*)>/g)].map((match) => match[1] ?? '');
  return { kind: 'ok', pattern, groups };
}

interface Level {
  /** Holds something repeated, or a choice: repeating it as a whole may backtrack without end. */
  risky: boolean;
}

/** Why an expression (already known to compile) could be slow, or null. */
function findDanger(source: string): string | null {
  const open: Level[] = [{ risky: false }];
  let unbounded = 0;
  /** What a quantifier at this place would repeat. */
  let previous: Level | null = null;
  for (let at = 0; at < source.length; ) {
    const rest = source.slice(at);
    const top = open[open.length - 1];
    if (top === undefined) return null;
    const quantifier = /^(?:[*+?]|\{\d+(?:,\d*)?\})\??/.exec(rest)?.[0];
    if (rest.startsWith('\\')) {
      if (/^\\(?:[1-9]|k<)/.test(rest)) return 'back references are not allowed';
      at +=
        /^\\(?:[pP]\{[^}]*\}|u\{[^}]*\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Za-z]|.)/s.exec(rest)?.[0]
          .length ?? 2;
      previous = { risky: false };
    } else if (rest.startsWith('[')) {
      at += /^\[(?:\\.|[^\]\\])*\]/s.exec(rest)?.[0].length ?? 1;
      previous = { risky: false };
    } else if (rest.startsWith('(')) {
      if (/^\(\?(?:[=!]|<[=!])/.test(rest)) return 'looking ahead or behind is not allowed';
      open.push({ risky: false });
      at += /^\((?:\?:|\?<[^>]*>)?/.exec(rest)?.[0].length ?? 1;
      previous = null;
    } else if (rest.startsWith(')')) {
      previous = open.pop() ?? null;
      const outer = open[open.length - 1];
      if (outer !== undefined && previous?.risky === true) outer.risky = true;
      at += 1;
    } else if (rest.startsWith('|')) {
      top.risky = true;
      previous = null;
      at += 1;
    } else if (quantifier !== undefined) {
      if (isUnbounded(quantifier)) {
        unbounded += 1;
        if (previous?.risky === true) {
          return 'a repeated group that itself holds a repetition or a choice can take for ever; write it flat';
        }
        if (unbounded > maxUnbounded) return `more than ${maxUnbounded} unbounded repetitions`;
        top.risky = true;
      }
      at += quantifier.length;
      previous = null;
    } else {
      previous = { risky: false };
      at += 1;
    }
  }
  return null;
}

function isUnbounded(quantifier: string): boolean {
  if (quantifier.startsWith('?')) return false;
  const limits = /^\{(\d+)(,(\d*))?\}/.exec(quantifier);
  if (limits === null) return true;
  const upper = limits[2] === undefined ? limits[1] : limits[3];
  return upper === undefined || upper === '' || Number(upper) > smallRepeat;
}
