/**
 * All checks, causes before what follows from them: the machine and what of ours stands on it, then what leads the
 * loader there, the unit, the host, and last what the consumer made of it. The first broken one is the reason.
 */
import { backendLibrary } from './checks/backend-library.js';
import { directLinking } from './checks/direct-linking.js';
import { dropIn } from './checks/drop-in.js';
import { environment } from './checks/environment.js';
import { foreignLibrary } from './checks/foreign-library.js';
import { installed } from './checks/installed.js';
import { interrupted } from './checks/interrupted.js';
import { libraryFormat } from './checks/library-format.js';
import { loadedLibrary } from './checks/loaded-library.js';
import { opensByPath } from './checks/opens-by-path.js';
import { preloadReadable } from './checks/preload-readable.js';
import { publicLinks } from './checks/public-links.js';
import { refused } from './checks/refused.js';
import { restarted } from './checks/restarted.js';
import { secureExecution } from './checks/secure-execution.js';
import { store } from './checks/store.js';
import { unitRuns } from './checks/unit-runs.js';
import type { Check } from './types.js';

export const checks: readonly Check[] = [
  // the service, and what of ours is on this machine
  interrupted,
  installed,
  unitRuns,
  refused,
  store,
  // what leads the loader to it
  libraryFormat,
  foreignLibrary,
  publicLinks,
  // the unit
  dropIn,
  environment,
  preloadReadable,
  secureExecution,
  // the host
  // what the consumer made of it
  restarted,
  backendLibrary,
  directLinking,
  opensByPath,
  loadedLibrary,
];
