/** The loader's search paths: lists split, `$ORIGIN`, `$LIB` and `$PLATFORM` replaced (ld.so(8)). Pure. */
import path from 'node:path';
import type { LoaderRuntime } from './loader-runtime.js';

export interface PathContext {
  readonly runtime: LoaderRuntime;
  /** Directory of the object whose list it is. */
  readonly origin: string;
  /** Working directory: an empty entry is that one. */
  readonly directory: string;
  /** AT_SECURE. */
  readonly secure: boolean;
}

/** The directories of LD_LIBRARY_PATH (`:` and `;` separate), DT_RPATH or DT_RUNPATH (`:` alone). */
export function searchDirectories(list: string, separator: RegExp, context: PathContext): readonly string[] {
  if (list === '') return [];
  const found: string[] = [];
  for (const element of list.split(separator)) {
    const expanded = expandTokens(element, context);
    if (expanded === null) continue;
    const directory = absolute(expanded, context.directory);
    if (!found.includes(directory)) found.push(directory);
  }
  return found;
}

/**
 * A name with its tokens replaced; null when it has one that stands for nothing here: no platform, or
 * `$ORIGIN` outside of the trusted directories in a process that runs with another's rights.
 */
export function expandTokens(text: string, context: PathContext): string | null {
  if (!text.includes('$')) return text;
  const { runtime, origin, secure } = context;
  let lost = false;
  let hasOrigin = false;
  const expanded = text.replace(
    /\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))/g,
    (_whole, braced: string | undefined, plain: string | undefined) => {
      switch (braced ?? plain) {
        case 'ORIGIN':
          hasOrigin = true;
          return origin;
        case 'LIB':
          return runtime.lib;
        default:
          lost ||= runtime.platform === null;
          return runtime.platform ?? '';
      }
    },
  );
  if (lost) return null;
  if (secure && hasOrigin && !isTrusted(expanded, runtime)) return null;
  return expanded;
}

function isTrusted(directory: string, runtime: LoaderRuntime): boolean {
  const normal = path.posix.normalize(directory).replace(/(?<=.)\/+$/, '');
  return runtime.systemDirectories.includes(normal);
}

/** Without slashes at the end; an empty one is the working directory. */
export function absolute(directory: string, working: string): string {
  const trimmed = directory.replace(/(?<=.)\/+$/, '');
  if (trimmed.startsWith('/')) return trimmed;
  return trimmed === '' || trimmed === '.' ? working : `${working}/${trimmed}`;
}

/** The names in LD_PRELOAD; a secure process takes none with a slash. */
export function preloadNames(list: string, secure: boolean): readonly string[] {
  return list.split(/[ :]/).filter((name) => name !== '' && !(secure && name.includes('/')));
}

/** Those of /etc/ld.so.preload: blanks, tabs, newlines and colons separate, `#` begins a comment. */
export function preloadFileNames(text: string): readonly string[] {
  return text
    .replaceAll(/#.*$/gm, '')
    .split(/[\s:]+/)
    .filter((name) => name !== '');
}
