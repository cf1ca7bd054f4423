/** Evidence that the tests of verdicts are made of: logs, mapped libraries, the host as the agent met it. */

import type { ProcessFacts } from '../../../agent/contracts/facts.js';
import type { HostWord, ProbeResult } from '../../../agent/contracts/probe.js';
import type { Observation } from '../../../agent/verdict/observation.js';
import { findingsOf, judgeLog, libraries, type MappedVendor, ollama, processFacts } from './support.js';

export const gpu = findingsOf('0.32.9_gpu-mode_debug0');
export const cpu = findingsOf('0.32.9_count0_debug0');
export const silent = judgeLog(ollama, []);
export const notRun: ProbeResult = { kind: 'not-run', message: 'systemd-run is missing' };

export function unreachable(word: HostWord | null = null): NonNullable<Observation['host']> {
  return { kind: 'unreachable', message: 'connect ENOENT', word };
}
export function answers(milliseconds = 40): NonNullable<Observation['host']> {
  return { kind: 'answers', device: 'NVIDIA H100 80GB HBM3', simulated: false, milliseconds };
}
export function main(...vendors: readonly MappedVendor[]): Observation['processes'] {
  return [{ role: 'main', facts: processFacts({ libraries: libraries(...vendors) }) }];
}
export function child(
  vendors: readonly MappedVendor[],
  changes: Partial<ProcessFacts> = {},
): Observation['processes'] {
  const facts = { pid: 120, parent: 100, name: 'llama-server', libraries: libraries(...vendors), ...changes };
  return [{ role: 'child', facts: processFacts(facts) }];
}
