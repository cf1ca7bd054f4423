/**
 * Module hooks for the tests in one process: `node:test` is collector.ts, and what a module with `?load=N` imports of the
 * sandbox is loaded with the same `?load=N`, so that a number not used before loads all of it again.
 */
import type { ResolveHookContext } from 'node:module';

interface Resolved {
  readonly url: string;
}
type Next = (specifier: string, context: ResolveHookContext) => Promise<Resolved>;

const collector = new URL('collector.js', import.meta.url).href;

export async function resolve(specifier: string, context: ResolveHookContext, next: Next): Promise<Resolved> {
  const load = /\?load=\d+$/.exec(context.parentURL ?? '')?.[0];
  if (load === undefined || context.parentURL?.startsWith(collector)) return next(specifier, context);
  if (specifier === 'node:test') return { ...(await next(collector, context)), url: `${collector}${load}` };
  const resolved = await next(specifier, context);
  const ours = resolved.url.startsWith('file:') && !resolved.url.includes('/node_modules/');
  return ours ? { ...resolved, url: `${resolved.url}${load}` } : resolved;
}
