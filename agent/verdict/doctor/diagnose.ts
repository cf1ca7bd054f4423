/** Facts to findings, in the order of causes. Pure. */
import { messageOf } from '../../lib/errors.js';
import { device, deviceMemory, loadedModels, readiness, refusedKernels } from './checks/device.js';
import { driverVersion, guestConf, host, sharedMemory, versions } from './checks/host.js';
import {
  backendLibrary,
  directLinking,
  foreignLibrary,
  libraryFormat,
  nvml,
  publicLinks,
  realGpu,
  symbols,
} from './checks/libraries.js';
import { agentService, installed, interrupted, refused, store } from './checks/machine.js';
import { discoveryTime, output } from './checks/output.js';
import { loadedLibrary, loaderChoice, preloadReadable, secureExecution } from './checks/process.js';
import { tracedBindings } from './checks/traced-bindings.js';
import { dropIn, environment, overrides, restarted, sandbox, startOrder, unitRuns } from './checks/unit.js';
import type { Check, CheckResult, Diagnosis, DoctorFacts } from './finding.js';

export function diagnose(facts: DoctorFacts, all: readonly Check[] = checks): Diagnosis {
  const results = all.map((check): CheckResult => ({ check, finding: examine(check, facts) }));
  const { reason } = facts.verdict;
  const explains = ({ check }: CheckResult): number =>
    reason !== null && check.explains.includes(reason) ? 0 : 1;
  const broken = results
    .filter(({ finding }) => finding.kind === 'broken')
    .toSorted((a, b) => explains(a) - explains(b));
  return { results, broken, verdict: facts.verdict };
}

/** A fault in one check must not hide the findings of the others. */
function examine(check: Check, facts: DoctorFacts): CheckResult['finding'] {
  try {
    return check.examine(facts);
  } catch (error) {
    const said = messageOf(error);
    return {
      kind: 'unknown',
      why: 'the check itself failed, which is a bug in vgpu-agent',
      evidence: [said],
    };
  }
}

export function isHealthy({ broken, verdict }: Diagnosis): boolean {
  return verdict.mode === 'gpu' && broken.length === 0;
}

// All checks, causes before effects. The first broken check is the reason.

export const checks: readonly Check[] = [
  // the installation
  interrupted,
  installed,
  // before the service, because a truncated library ends every program that preloads it
  store,
  unitRuns,
  refused,
  realGpu,
  // the loader's search
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
  // the consumer's use of the device
  restarted,
  discoveryTime,
  driverVersion,
  backendLibrary,
  symbols,
  directLinking,
  loadedLibrary,
  device,
  readiness,
  deviceMemory,
  loadedModels,
  refusedKernels,
  tracedBindings,
  startOrder,
  nvml,
  // the agent's service and the consumer's output
  output,
  agentService,
];
