/** Text as it may go to a terminal: wrapped, and with nothing in it that a terminal would obey. */

/** A control character that is not a newline or tab; C1 and the line separators too. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the purpose
const control = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]/g;

/** Text from elsewhere: control characters, which would move the cursor, become `\xNN`. */
export function printable(text: string): string {
  return text.replace(control, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/** On one line: newlines and tabs too are shown, not obeyed. */
export function oneLine(text: string): string {
  return printable(text).replace(/\n/g, '\\n').replace(/\t/g, ' ');
}

/** Later lines begin with `indent`. Runs of spaces stay; a word that is too long stands alone. */
export function wrap(text: string, width: number, indent = ''): string {
  const lines: string[] = [];
  let line: string | null = null;
  for (const word of text.split(' ')) {
    const room = lines.length === 0 ? width : width - indent.length;
    if (line === null) line = word;
    else if (line.length + 1 + word.length <= room) line = `${line} ${word}`;
    else {
      lines.push(line.trimEnd());
      line = word;
    }
  }
  lines.push(line ?? '');
  return lines.join(`\n${indent}`);
}

export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

export function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, '0');
}

/** `text` with the last `NAME=` set to the value, or with such a line at its end. Everything else is kept. */
export function withAssignment(text: string, name: string, value: string): string {
  const lines = text.split('\n');
  const at = lines.findLastIndex((line) => line.split('=')[0]?.trim() === name && line.includes('='));
  if (at >= 0) return lines.with(at, `${name}=${value}`).join('\n');
  return `${text}${text === '' || text.endsWith('\n') ? '' : '\n'}${name}=${value}\n`;
}

/** Bytes in decimal units: `512 B`, `1.2 MB`. */
export function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit] ?? 'B'}`;
}

/** Milliseconds as a person says it: `0.4 s`, `12 s`, `2 min 5 s`. */
export function duration(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** `GPU`, `GPU (simulated)`, `CPU`, `DEGRADED`, `UNDETERMINED`: the words of every first line. */
export function modeText(verdict: { readonly mode: string; readonly simulated: boolean }): string {
  const word = verdict.mode.toUpperCase();
  return verdict.simulated ? `${word} (simulated)` : word;
}

/** The vendor of a library, after its path in a sentence: `/x/libcuda.so.1 is NVIDIA's`. */
export function vendorText(vendor: 'vgpu' | 'nvidia' | 'foreign' | null): string {
  const texts = { vgpu: 'the shim', nvidia: "NVIDIA's", foreign: 'from neither vgpu-agent nor NVIDIA' };
  return vendor === null ? 'unreadable' : texts[vendor];
}

export function shellWord(word: string): string {
  return /^[\w:/.@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export interface Style {
  /** Columns to wrap prose at; without limit where no terminal is, so that a line stays one for grep. */
  readonly width: number;
  bold(text: string): string;
  dim(text: string): string;
  good(text: string): string;
  bad(text: string): string;
  caution(text: string): string;
}

interface StyleOptions {
  readonly isTty: boolean;
  /** Read whenever it counts: a terminal may get another size. */
  readonly columns: number | undefined;
  readonly wanted: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Wider text is hard to read, narrower terminals are wrapped by themselves. */
const widest = 100;
const narrowest = 40;
const usual = 80;

/** Colour only on a terminal that has it, and never when NO_COLOR is set (https://no-color.org). */
export function styleFor(options: StyleOptions): Style {
  const { env } = options;
  const colour = options.isTty && options.wanted && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
  const paint =
    (open: number, close: number) =>
    (text: string): string =>
      colour && text !== '' ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return {
    get width() {
      return options.isTty
        ? Math.min(widest, Math.max(narrowest, options.columns ?? usual))
        : Number.POSITIVE_INFINITY;
    },
    bold: paint(1, 22),
    dim: paint(2, 22),
    good: paint(32, 39),
    bad: paint(31, 39),
    caution: paint(33, 39),
  };
}

// The one layout of labelled text.

/**
 * The label, then the text on one line or wrapped below its beginning. `width`: columns of the label, if it has colours.
 */
export function hanging(label: string, text: string, style: Style, width = label.length): string {
  const indent = ' '.repeat(width);
  return label + wrap(oneLine(text), style.width - width).replaceAll('\n', `\n${indent}`);
}
