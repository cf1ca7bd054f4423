/** Refuses a command line that says two things at once, or an option in the place of a value. */
import type { Command } from 'commander';

/** The code of the CommanderError, whose message is complete. */
const contradiction = 'vgpu.contradiction';

interface Given {
  readonly flag: string;
  /** As typed; null: an option without a value. */
  readonly typed: string | null;
  /** As parsed. */
  readonly value: unknown;
}

/**
 * Makes it an error to give `--x` with `--no-x`, and an option twice with two values. An option whose values are
 * collected in a list may be repeated. To be called when the command has all of its options.
 */
export function refuseContradictions(command: Command): void {
  const given = new Map<string, Given>();
  for (const option of command.options) {
    const name = option.attributeName();
    const flag = option.long ?? option.flags;
    command.on(`option:${option.name()}`, (typed: string | null | undefined) => {
      if (isOption(typed, command))
        command.error(`${flag} needs a value, and ${typed} is an option`, { code: contradiction });
      const value: unknown = command.getOptionValue(name);
      const now = { flag, typed: typed ?? null, value };
      const before = given.get(name);
      given.set(name, now);
      if (before === undefined || before.value === value || Array.isArray(value)) return;
      command.error(told(before, now), { code: contradiction });
    });
  }
}

/** Commander takes the word behind an option as its value, whatever it is. */
function isOption(word: string | null | undefined, command: Command): boolean {
  if (word === null || word === undefined) return false;
  for (let one: Command | null = command; one !== null; one = one.parent) {
    if (one.options.some(({ short, long }) => word === short || word === long)) return true;
  }
  return false;
}

function told(before: Given, now: Given): string {
  if (before.flag !== now.flag)
    return `${before.flag} and ${now.flag} contradict each other: give one of them`;
  const [first, second] = [before, now].map(({ typed }) => JSON.stringify(typed));
  return `${now.flag} was given twice, with ${first} and with ${second}: give it once`;
}
