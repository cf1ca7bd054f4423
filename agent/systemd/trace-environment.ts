/** The variables that a trace adds to a service: plan/trace.ts sets them, and facts about the service omit them. */
import { storeCurrent, tracerName } from '../lib/paths.js';

export const tracer = `${storeCurrent}/${tracerName}`;

/** Names of the variables that tell the tracer what to do. */
export const tracerVariables = { file: 'VGPU_TRACE', limit: 'VGPU_TRACE_LIMIT' } as const;

/** The environment as it is without a trace. */
export function withoutTracer(environment: Readonly<Record<string, string>>): Record<string, string> {
  const ours: ReadonlySet<string> = new Set(Object.values(tracerVariables));
  return Object.fromEntries(
    Object.entries(environment).flatMap(([name, value]) => {
      if (ours.has(name)) return [];
      if (name !== 'LD_PRELOAD') return [[name, value]];
      if (value === tracer) return [];
      return [[name, value.startsWith(`${tracer}:`) ? value.slice(tracer.length + 1) : value]];
    }),
  );
}
