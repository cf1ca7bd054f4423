/** The consumer's loads after discovery, from its log. Pure. */
import type { LoadRule } from '../../profile/types.js';
import type { Quote } from './findings.js';

type LoadOutcome = 'gpu' | 'partly' | 'cpu';

interface Load {
  readonly layers: { readonly gpu: number; readonly all: number } | null;
  readonly gpu: boolean;
  readonly cpu: boolean;
  readonly cacheOnCpu: boolean;
  readonly failed: boolean;
  readonly short: Quote | null;
  readonly error: Quote | null;
  readonly quotes: readonly Quote[];
}

export interface LoadFindings {
  readonly outcome: LoadOutcome;
  readonly layers: { readonly gpu: number; readonly all: number } | null;
  readonly cacheOnCpu: boolean;
  readonly failed: boolean;
  /** The line that says that not all of it fits into the free device memory; null: none. */
  readonly short: Quote | null;
  readonly quotes: readonly Quote[];
  /** With several children: the number that have a model loaded, and the number with all of it on a GPU. */
  readonly children?: { readonly all: number; readonly gpu: number };
}

export interface Loads {
  readonly present: Load | null;
  readonly former: LoadFindings | null;
}

export const noLoads: Loads = { present: null, former: null };

const nothingSaid: Load = {
  layers: null,
  gpu: false,
  cpu: false,
  cacheOnCpu: false,
  failed: false,
  short: null,
  error: null,
  quotes: [],
};
const maxQuotes = 4;

export function afterLine(
  loads: Loads,
  says: LoadRule['says'],
  groups: Readonly<Record<string, string | undefined>>,
  quote: Quote,
): Loads {
  const layers = says === 'layers' ? layersOf(groups) : null;
  if (says === 'layers' && layers === null) return loads;
  const load = begins(loads.present, says) ? nothingSaid : (loads.present ?? nothingSaid);
  const former = load === loads.present ? loads.former : (findingsOfLoad(loads.present) ?? loads.former);
  // These lines do not show a place.
  const quotes =
    says === 'begin' || says === 'short' || says === 'error'
      ? load.quotes
      : [...load.quotes, quote].slice(-maxQuotes);
  return {
    former,
    present: {
      layers: layers ?? load.layers,
      gpu: load.gpu || says === 'gpu',
      cpu: load.cpu || says === 'cpu',
      cacheOnCpu: load.cacheOnCpu || says === 'cache-cpu',
      failed: load.failed || says === 'failed',
      short: says === 'short' ? quote : load.short,
      error: says === 'error' ? quote : load.error,
      quotes,
    },
  };
}

export function newestLoad({ present, former }: Loads): LoadFindings | null {
  return findingsOfLoad(present) ?? former;
}

export function loadError({ present }: Loads): Quote | null {
  return present?.error ?? null;
}

/**
 * Combines the loads of a consumer and its children: `cpu` if no part is on a GPU. The lines are those of loads that
 * are not completely on a GPU.
 */
export function allLoads(all: readonly Loads[]): LoadFindings | null {
  const found = all.map(newestLoad).filter((load) => load !== null);
  const off = found.filter(({ outcome }) => outcome !== 'gpu');
  const [first = found.at(-1) ?? null] = off;
  if (first === null || found.length === 1) return first;
  const onCpu = found.every(({ outcome }) => outcome === 'cpu');
  return {
    ...first,
    outcome: off.length === 0 ? 'gpu' : onCpu ? 'cpu' : 'partly',
    quotes: (off.length === 0 ? found : off).flatMap(({ quotes }) => quotes).slice(-maxQuotes),
    children: { all: found.length, gpu: found.length - off.length },
  };
}

/** Is this line the first of another load? CUDA is started, and memory counted, before the model's parts are named. */
function begins(load: Load | null, says: LoadRule['says']): boolean {
  if (load === null) return true;
  if (load.error !== null || says === 'error') return says !== 'error';
  const placed = load.gpu || load.cpu || load.layers !== null;
  if (says === 'begin') return placed || !(load.failed || load.short !== null);
  if (says === 'failed' || says === 'short') return placed;
  return says === 'layers' && load.layers !== null;
}

function layersOf(groups: Readonly<Record<string, string | undefined>>): Load['layers'] {
  const gpu = Number(groups['gpu'] ?? '');
  const all = Number(groups['all'] ?? '');
  return groups['gpu'] === undefined || !(all > 0) || !(gpu <= all) ? null : { gpu, all };
}

function findingsOfLoad(load: Load | null): LoadFindings | null {
  const outcome = load === null ? null : outcomeOf(load);
  if (load === null || outcome === null) return null;
  const { layers, cacheOnCpu, failed, short, quotes } = load;
  return { outcome, layers, cacheOnCpu, failed, short, quotes };
}

function outcomeOf({ layers, gpu, cpu, cacheOnCpu, failed }: Load): LoadOutcome | null {
  if (layers !== null && layers.gpu < layers.all) return layers.gpu === 0 ? 'cpu' : 'partly';
  // A model on the GPU keeps a part of itself (its first layer) in main memory, too. One whose tensors are all there
  // (--override-tensor, --device none) counts its layers as offloaded all the same.
  if (gpu || (layers !== null && !cpu)) return cacheOnCpu ? 'partly' : 'gpu';
  return cpu || failed ? 'cpu' : null;
}
