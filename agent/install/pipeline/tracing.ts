/** The steps of a trace on the running system. */

import type { ContentCache } from '../../guest/files/content.js';
import { readProcesses } from '../../guest/unit/processes.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { readLiveProcesses, readTraceFile, whoseLibraries } from '../../verdict/doctor/trace/traced.js';
import type { ApplyEffects } from '../apply/effects.js';
import { beginTrace, disarmTrace, forgetTrace, restartForTrace } from '../apply/trace.js';
import { traceLimitBytes } from '../plan/trace.js';
import type { Tracing } from './workplace.js';

export function tracing(
  effects: () => Promise<ApplyEffects>,
  pids: (unit: string) => Promise<readonly number[]>,
  runner: CommandRunner,
  contents: ContentCache,
): Tracing {
  return {
    begin: async (plan) => beginTrace(plan, await effects()),
    restart: async (unit) => restartForTrace(unit, await effects()),
    live: async (unit) =>
      readLiveProcesses(await readProcesses(await pids(unit), contents), runner, contents),
    read: () => readTraceFile(traceLimitBytes),
    vendors: (files) => whoseLibraries(files, contents),
    disarm: async (unit) => disarmTrace(unit, await effects()),
    forget: async () => forgetTrace(await effects()),
  };
}
