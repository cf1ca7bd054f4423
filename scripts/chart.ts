/**
 * Draws the ratios of a run as bars in SVG: the charts of docs/reference/benchmarks.md.
 *
 *   node dist/scripts/chart.js docs/reports/2026-11-27-gpu.json >docs/reference/benchmarks-gpu.svg
 *   npm run --silent bench -- --json >run.json && node dist/scripts/chart.js run.json >benchmarks.svg
 *
 * Exit 0; 1 with a message if the file is neither a report of scripts/gpu-check nor one of the benchmark.
 */
import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';

/** One bar: the time of the measured side divided by the time of the other side. */
interface Bar {
  readonly label: string;
  readonly ratio: number;
}

interface Chart {
  readonly title: string;
  readonly bars: readonly Bar[];
}

interface GpuReport {
  readonly date: string;
  readonly card: string;
  readonly driver: string;
  readonly run: {
    readonly parts: readonly { readonly name: string; readonly ratio?: Readonly<Record<string, number>> }[];
  };
}

interface BenchReport {
  readonly date: string;
  readonly entries: readonly {
    readonly comparisons: readonly {
      readonly title: string;
      readonly subject: { readonly name: string };
      readonly beside: readonly { readonly name: string; readonly ratio: { readonly median: number } }[];
    }[];
  }[];
}

const number = { type: 'number', exclusiveMinimum: 0 } as const;
const string = { type: 'string' } as const;
const arrayOf = (items: object): object => ({ type: 'array', items });
const object = (properties: Readonly<Record<string, object>>, optional: readonly string[] = []): object => ({
  type: 'object',
  properties,
  required: Object.keys(properties).filter((name) => !optional.includes(name)),
});
const ajv = new Ajv();
const isGpuReport = ajv.compile<GpuReport>(
  object({
    date: string,
    card: string,
    driver: string,
    run: object({
      parts: arrayOf(
        object({ name: string, ratio: { type: 'object', additionalProperties: number } }, ['ratio']),
      ),
    }),
  }),
);
const isBenchReport = ajv.compile<BenchReport>(
  object({
    date: string,
    entries: arrayOf(
      object({
        comparisons: arrayOf(
          object({
            title: string,
            subject: object({ name: string }),
            beside: arrayOf(object({ name: string, ratio: object({ median: number }) })),
          }),
        ),
      }),
    ),
  }),
);

/** The names of the calls part are those of its program (test/shim/programs/gpu_check.c). */
const callNames: Readonly<Record<string, string>> = {
  launchAndSynchronize: 'a launch and a wait for it',
  waitingCall: 'a call that waits for its answer',
  launchThroughput: 'launches one after the other',
  graph: 'a graph of 100 kernels and a wait for it',
  'pinnedCopies toDeviceMBs': '256 MiB of pinned memory to the device',
  'pinnedCopies toHostMBs': '256 MiB of pinned memory from the device',
  'pageableCopies toDeviceMBs': '256 MiB of ordinary memory to the device',
  'pageableCopies toHostMBs': '256 MiB of ordinary memory from the device',
};

function gpuChart({ date, card, driver, run }: GpuReport): Chart {
  const bars = run.parts.flatMap(({ name, ratio = {} }) =>
    Object.entries(ratio).map(([what, value]) => ({
      label: what === 'time' ? name : (callNames[what] ?? what),
      // Copies are rates: more is faster.
      ratio: what.endsWith('MBs') ? 1 / value : value,
    })),
  );
  return { title: `Time through the shim, native = 1: ${card}, driver ${driver}, ${date}`, bars };
}

function benchChart({ date, entries }: BenchReport): Chart {
  const bars = entries.flatMap(({ comparisons }) =>
    comparisons.flatMap(({ subject, beside }) =>
      beside.map(({ name, ratio }) => ({ label: `${subject.name} / ${name}`, ratio: ratio.median })),
    ),
  );
  return { title: `Ratios of a run without a GPU, ${date.slice(0, 10)}`, bars };
}

const size = { width: 780, label: 330, bar: 14, line: 24, margin: 16, head: 44 } as const;

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

/** Nice ends for a logarithmic axis that contains 1 and all values. */
function axis(bars: readonly Bar[]): {
  readonly from: number;
  readonly to: number;
  readonly ticks: readonly number[];
} {
  const steps = [0.001, 0.01, 0.1, 0.25, 0.5, 1, 2, 4, 10, 100, 1000];
  const values = [1, ...bars.map(({ ratio }) => ratio)];
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const from = steps.findLast((step) => step < least) ?? least;
  const to = steps.find((step) => step > most) ?? most;
  return { from, to, ticks: steps.filter((step) => step >= from && step <= to) };
}

function drawn({ title, bars }: Chart): string {
  const { from, to, ticks } = axis(bars);
  const [left, right] = [size.margin + size.label, size.width - size.margin - 50];
  const x = (value: number): number =>
    Math.round(
      left + ((Math.log(value) - Math.log(from)) / (Math.log(to) - Math.log(from))) * (right - left),
    );
  const height = size.head + bars.length * size.line + 2 * size.margin;
  const bottom = height - size.margin;
  const text = (at: number, y: number, content: string, rest = ''): string =>
    `<text x="${at}" y="${y}"${rest}>${escaped(content)}</text>`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.width} ${height}" width="${size.width}" height="${height}"`,
    '  font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="13" fill="#24292f">',
    `<title>${escaped(title)}</title>`,
    `<rect width="${size.width}" height="${height}" rx="8" fill="#ffffff"/>`,
    text(size.margin, 22, title, ' font-weight="600"'),
    ...ticks.flatMap((tick) => [
      `<line x1="${x(tick)}" y1="${size.head}" x2="${x(tick)}" y2="${bottom}" stroke="${tick === 1 ? '#24292f' : '#d0d7de'}"/>`,
      text(x(tick), size.head - 5, `${tick}`, ' text-anchor="middle" font-size="11" fill="#57606a"'),
    ]),
    ...bars.flatMap(({ label, ratio }, index) => {
      const y = size.head + 8 + index * size.line;
      const [one, value] = [x(1), x(ratio)];
      const colour = ratio > 1.05 ? '#bf8700' : '#2da44e';
      return [
        text(left - 10, y + 12, label, ' text-anchor="end"'),
        `<rect x="${Math.min(one, value)}" y="${y}" width="${Math.max(1, Math.abs(value - one))}" height="${size.bar}" fill="${colour}"/>`,
        text(
          Math.max(one, value) + 6,
          y + 12,
          ratio < 0.1 ? ratio.toPrecision(2) : ratio.toFixed(2),
          ' font-size="12"',
        ),
      ];
    }),
    '</svg>',
    '',
  ].join('\n');
}

function chartOf(report: unknown): Chart | null {
  if (isGpuReport(report)) return gpuChart(report);
  return isBenchReport(report) ? benchChart(report) : null;
}

const [file = ''] = process.argv.slice(2);
const chart = chartOf(JSON.parse(readFileSync(file === '' ? 0 : file, 'utf8')));
if (chart === null || chart.bars.length === 0) {
  process.stderr.write(`${file}: no report with ratios of scripts/gpu-check or npm run bench -- --json\n`);
  process.exitCode = 1;
} else {
  process.stdout.write(drawn(chart));
}
