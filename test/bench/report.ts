// The results, as one document and as a table of 80 columns.

import type { MachineFacts } from './machine.js';
import {
  type Aim,
  type Comparison,
  type Entry,
  isReached,
  ratio,
  type Series,
  type Spread,
  spread,
} from './measure.js';

export interface Measured {
  readonly entry: Entry;
  readonly runs: number;
  /** The whole of it, preparations included. */
  readonly seconds: number;
  readonly comparisons: readonly Comparison[];
}

export interface SeriesDocument extends Series, Spread {}

export interface BenchDocument {
  readonly schema: 1;
  readonly date: string;
  readonly machine: MachineFacts;
  /** None of these numbers was measured with a GPU. */
  readonly simulated: true;
  readonly host: 'vgpu-hostd --device software';
  readonly entries: readonly {
    readonly name: string;
    readonly what: string;
    readonly runs: number;
    readonly seconds: number;
    readonly comparisons: readonly {
      readonly title: string;
      readonly subject: SeriesDocument;
      readonly beside: readonly (SeriesDocument & {
        readonly ratio: Spread;
        readonly aim?: Aim;
        readonly reached?: boolean;
      })[];
    }[];
  }[];
}

export function benchDocument(
  date: Date,
  machine: MachineFacts,
  measured: readonly Measured[],
): BenchDocument {
  return {
    schema: 1,
    date: date.toISOString(),
    machine,
    simulated: true,
    host: 'vgpu-hostd --device software',
    entries: measured.map(({ entry, runs, seconds, comparisons }) => ({
      name: entry.name,
      what: entry.what,
      runs,
      seconds,
      comparisons: comparisons.map(({ title, subject, beside }) => ({
        title,
        subject: { ...subject, ...spread(subject.samples) },
        beside: beside.map((series) => {
          const measuredRatio = ratio(subject, series);
          return {
            ...series,
            ...spread(series.samples),
            ratio: measuredRatio,
            ...(series.aim === undefined ? {} : { reached: isReached(series.aim, measuredRatio) }),
          };
        }),
      })),
    })),
  };
}

const nameWidth = 31;
const medianWidth = 11;
const rangeWidth = 14;
const gib = 1024 ** 3;

/** The machine that was measured: three lines for the head of the table. */
export function machineText(machine: MachineFacts): string {
  const { cores, processor, memoryBytes, kernel, node, systemd, commit, modified } = machine;
  const version = /^systemd (\d+)/.exec(systemd)?.[1] ?? systemd;
  const state = commit === null ? 'no commit' : `commit ${commit}${modified ? ', modified' : ''}`;
  return [
    `${cores} cores (${processor}), ${Math.round(memoryBytes / gib)} GiB, Linux ${kernel},`,
    `Node ${node}, systemd ${version}; ${state}.`,
    'The GPU is SIMULATED (vgpu-hostd --device software): its memory is RAM.',
    ...(machine.loadBefore > cores / 2
      ? [`This machine was busy before (load ${machine.loadBefore.toFixed(1)}): trust the ratios only.`]
      : []),
  ].join('\n');
}

export function measuredText({ entry, runs, comparisons }: Measured): string {
  const rounds = `  ${runs} round${runs === 1 ? '' : 's'}`.padEnd(nameWidth);
  const heads = `${'median'.padStart(medianWidth)} ${'min .. max'.padStart(rangeWidth)}  ours/this (range)`;
  const head = [entry.name, `  ${entry.what}`, `${rounds}${heads}`].join('\n');
  return [head, ...comparisons.map(comparisonText)].join('\n');
}

function comparisonText({ title, subject, beside }: Comparison): string {
  const rows = beside.flatMap((series) => {
    const measuredRatio = ratio(subject, series);
    const shown = row(series, measuredRatio);
    return series.aim === undefined ? [shown] : [shown, aimText(series.aim, measuredRatio)];
  });
  return [`  ${title}`, row(subject, null), ...rows].join('\n');
}

function aimText(aim: Aim, measured: Spread): string {
  const [words, value] =
    'atMost' in aim
      ? ['at most', aim.atMost]
      : 'below' in aim
        ? ['below', aim.below]
        : ['at least', aim.atLeast];
  const said = isReached(aim, measured) ? 'reached' : 'MISSED';
  return `      aim: ${words} ${value} of it; ${short(measured.median)}: ${said}`;
}

function row({ name, unit, samples }: Series, beside: Spread | null): string {
  const { median, min, max } = spread(samples);
  const shown = `    ${name}`.padEnd(nameWidth).slice(0, nameWidth);
  const range = `${short(min)} .. ${short(max)}`;
  const line = `${shown}${`${short(median)} ${unit}`.padStart(medianWidth)} ${range.padStart(rangeWidth)}`;
  if (beside === null) return line;
  return `${line}  ${short(beside.median)} (${short(beside.min)}..${short(beside.max)})`;
}

/** Three significant digits: more have no meaning on a shared machine. */
function short(value: number): string {
  if (value >= 100) return value.toFixed(0);
  if (value >= 10) return value.toFixed(1);
  return value >= 0.1 ? value.toFixed(2) : value.toFixed(3);
}
