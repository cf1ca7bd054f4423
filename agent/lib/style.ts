/** Colour and width of a stream. */

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
