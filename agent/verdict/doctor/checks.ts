/**
 * All checks, causes before what follows from them: the machine and what is installed on it, then what leads the
 * loader there, the unit, the host, and last what the consumer did with it. The first broken one is the reason.
 */
import { agentService } from './checks/agent-service.js';
import { backendLibrary } from './checks/backend-library.js';
import { device } from './checks/device.js';
import { deviceMemory } from './checks/device-memory.js';
import { directLinking } from './checks/direct-linking.js';
import { discoveryTime } from './checks/discovery-time.js';
import { driverVersion } from './checks/driver-version.js';
import { dropIn } from './checks/drop-in.js';
import { environment } from './checks/environment.js';
import { foreignLibrary } from './checks/foreign-library.js';
import { guestConf } from './checks/guest-conf.js';
import { host } from './checks/host.js';
import { installed } from './checks/installed.js';
import { interrupted } from './checks/interrupted.js';
import { libraryFormat } from './checks/library-format.js';
import { loadedLibrary } from './checks/loaded-library.js';
import { loadedModels } from './checks/loaded-models.js';
import { loaderChoice } from './checks/loader-choice.js';
import { nvml } from './checks/nvml.js';
import { opensByPath } from './checks/opens-by-path.js';
import { output } from './checks/output.js';
import { overrides } from './checks/overrides.js';
import { preloadReadable } from './checks/preload-readable.js';
import { publicLinks } from './checks/public-links.js';
import { readiness } from './checks/readiness.js';
import { realGpu } from './checks/real-gpu.js';
import { refused } from './checks/refused.js';
import { refusedKernels } from './checks/refused-kernels.js';
import { restarted } from './checks/restarted.js';
import { sandbox } from './checks/sandbox.js';
import { secureExecution } from './checks/secure-execution.js';
import { sharedMemory } from './checks/shared-memory.js';
import { startOrder } from './checks/start-order.js';
import { store } from './checks/store.js';
import { symbols } from './checks/symbols.js';
import { tracedBindings } from './checks/traced-bindings.js';
import { unitRuns } from './checks/unit-runs.js';
import { versions } from './checks/versions.js';
import type { Check } from './types.js';

export const checks: readonly Check[] = [
  // the service, and what is installed on this machine
  interrupted,
  installed,
  // before the service: a library that is cut short ends every program that preloads it
  store,
  unitRuns,
  refused,
  realGpu,
  // what leads the loader to it
  libraryFormat,
  foreignLibrary,
  publicLinks,
  // the unit
  dropIn,
  environment,
  preloadReadable,
  secureExecution,
  sandbox,
  overrides,
  loaderChoice,
  // the host
  guestConf,
  versions,
  host,
  sharedMemory,
  // what the consumer did with it
  restarted,
  discoveryTime,
  driverVersion,
  backendLibrary,
  symbols,
  directLinking,
  opensByPath,
  loadedLibrary,
  device,
  readiness,
  deviceMemory,
  loadedModels,
  refusedKernels,
  tracedBindings,
  startOrder,
  nvml,
  // what keeps it so, and what is told
  output,
  agentService,
];
