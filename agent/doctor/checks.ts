/**
 * All checks, causes before what follows from them: the machine and what of ours stands on it, then what leads the
 * loader there, the unit, the host, and last what the consumer made of it. The first broken one is the reason.
 */
import { dropIn } from './checks/drop-in.js';
import { installed } from './checks/installed.js';
import { interrupted } from './checks/interrupted.js';
import { publicLinks } from './checks/public-links.js';
import { restarted } from './checks/restarted.js';
import { store } from './checks/store.js';
import type { Check } from './types.js';

export const checks: readonly Check[] = [
  // what of ours is on this machine
  interrupted,
  installed,
  store,
  // what leads the loader to it
  publicLinks,
  // the unit
  dropIn,
  // the host
  // what the consumer made of it
  restarted,
];
