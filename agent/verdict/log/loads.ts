/** The log's account of what a consumer loaded after it looked for devices. Pure. */
import type { LoadRule } from '../../profile/types.js';
import type { Quote } from './findings.js';

/** Where the last thing that it loaded lies. */
type LoadOutcome = 'gpu' | 'partly' | 'cpu';

/** One thing being loaded, as far as the log has told. */
interface Load {
  /** How many of its layers are on a GPU; null: no line says it. */
  readonly layers: { readonly gpu: number; readonly all: number } | null;
  readonly gpu: boolean;
  readonly cpu: boolean;
  /** Its KV cache, or a part of it, lies in main memory. */
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
  /** CUDA could not be started for it. */
  readonly failed: boolean;
  /** The line that says that not all of it fits into the free device memory; null: none. */
  readonly short: Quote | null;
  /** The lines that say so. */
  readonly quotes: readonly Quote[];
  /** Of several children that have something loaded: how many there are, and how many have all of it on a GPU. */
  readonly children?: { readonly all: number; readonly gpu: number };
}

/** The thing being loaded now, and the one before it: nothing else is needed of a log of any length. */
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

/** The state after one more line. `groups` are those of the rule's expression. */
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
  // These say nothing of where it goes.
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

/** Where the newest thing lies of which that is known; null: of none. */
export function newestLoad({ present, former }: Loads): LoadFindings | null {
  return findingsOfLoad(present) ?? former;
}

/** The line that says that the newest load failed; null: it did not. */
export function loadError({ present }: Loads): Quote | null {
  return present?.error ?? null;
}

/**
 * The loads of a consumer and of its children, taken together: `cpu` if nothing of them is on a GPU. The lines are
 * of those that are not wholly on one.
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
