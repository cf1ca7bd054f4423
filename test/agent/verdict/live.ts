/** Common parts of the tests of the live confirmation. */
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { confirm, type Stage } from './stage.js';
import { fixtureText, processFacts, searched } from './support.js';

export const lines = (name: string): readonly string[] => fixtureText(name).split('\n');
export const gpuLog = lines('0.32.9_gpu-mode_debug0');
export const cpuLog = lines('0.32.9_count0_debug0');
export const child = processFacts({ pid: 140, parent: 100, name: 'llama-server', startTicks: '5050' });
/** Where nothing is preloaded, a process has itself loaded what it has mapped. */
export const plainMain = processFacts({ libraries: [], loaderEnvironment: searched });
export const plainChild = { ...child, loaderEnvironment: searched };

export function run(stage: Stage, changes: Parameters<Stage['options']>[0] = {}): Promise<Verdict> {
  return stage.clock.run(confirm(stage.options(changes), stage.effects));
}
