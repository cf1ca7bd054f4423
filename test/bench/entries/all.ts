import type { Entry } from '../measure.js';
import { besideWaiter } from './beside.js';
import { commandStart } from './command-start.js';
import { compute } from './compute.js';
import { fromBare } from './from-bare.js';
import { instructions } from './instructions.js';
import { llm } from './llm.js';
import { loopback } from './loopback.js';
import { nothingToDo } from './nothing-to-do.js';
import { peer } from './peer.js';
import { repair } from './repair.js';
import { shimCalls, shimCopies, shimLaunches, shimStart, shimTokens } from './shim.js';
import { simulated } from './simulated.js';
import { verdict } from './verdict.js';
import { vm } from './vm.js';

/** In the order in which they run. */
export const entries: readonly Entry[] = [
  commandStart,
  nothingToDo,
  fromBare,
  verdict,
  repair,
  shimStart,
  shimCalls,
  shimCopies,
  shimLaunches,
  shimTokens,
  besideWaiter,
  compute,
  simulated,
  peer,
  instructions,
  llm,
  vm,
  loopback,
];
