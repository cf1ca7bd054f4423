/** The log's account of what a consumer loaded after it looked for devices. Pure. */
import type { LoadRule } from '../../profile/types.js';
import type { Quote } from './findings.js';

/** Where the last thing that it loaded lies. */
export type LoadOutcome = 'gpu' | 'partly' | 'cpu';

/** One thing being loaded, as far as the log has told. */
interface Load {
  /** How many of its layers are on a GPU; null: no line says it. */
  readonly layers: { readonly gpu: number; readonly all: number } | null;
  readonly gpu: boolean;
  readonly cpu: boolean;
  readonly failed: boolean;
  readonly short: Quote | null;
  readonly quotes: readonly Quote[];
}

export interface LoadFindings {
  readonly outcome: LoadOutcome;
  readonly layers: { readonly gpu: number; readonly all: number } | null;
  /** CUDA could not be started for it. */
  readonly failed: boolean;
  /** The line that says that not all of it fits into the free device memory; null: none. */
  readonly short: Quote | null;
  /** The lines that say so. */
  readonly quotes: readonly Quote[];
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
  failed: false,
  short: null,
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
  // These two say nothing of where it goes.
  const quotes =
    says === 'begin' || says === 'short' ? load.quotes : [...load.quotes, quote].slice(-maxQuotes);
  return {
    former,
    present: {
      layers: layers ?? load.layers,
      gpu: load.gpu || says === 'gpu',
      cpu: load.cpu || says === 'cpu',
      failed: load.failed || says === 'failed',
      short: says === 'short' ? quote : load.short,
      quotes,
    },
  };
}

/** Where the newest thing lies of which that is known; null: of none. */
export function newestLoad({ present, former }: Loads): LoadFindings | null {
  return findingsOfLoad(present) ?? former;
}

/** Is this line the first of another load? CUDA is started, and memory counted, before the model's parts are named. */
function begins(load: Load | null, says: LoadRule['says']): boolean {
  if (load === null) return true;
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
  const { layers, failed, short, quotes } = load;
  return { outcome, layers, failed, short, quotes };
}

function outcomeOf({ layers, gpu, cpu, failed }: Load): LoadOutcome | null {
  if (layers !== null) return layers.gpu === 0 ? 'cpu' : layers.gpu < layers.all ? 'partly' : 'gpu';
  // A model on the GPU keeps a part of itself (its first layer) in main memory, too.
  if (gpu) return 'gpu';
  return cpu || failed ? 'cpu' : null;
}
