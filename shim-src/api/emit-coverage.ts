/** docs/reference/coverage.md: every export and what becomes of a call to it. */
import { type EntryPoint, exported, type Library } from './model.js';

function means(entry: EntryPoint): string {
  switch (entry.carriage.kind) {
    case 'refused':
      return 'refused';
    case 'void':
      return 'does nothing';
    case 'data':
      return 'zeros';
    case 'local':
      return 'answered in the guest';
    case 'query':
      return 'asked from the host';
    case 'none':
      return 'always none';
    case 'forward':
      return `as \`${entry.carriage.target}\``;
    case 'oneway':
      return 'carried, one-way';
    case 'waiting':
      return 'carried, waited for';
  }
}

function counts(library: Library): string {
  const tally = new Map<string, number>();
  for (const entry of exported(library)) {
    const meaning = entry.carriage.kind === 'forward' ? 'per-thread variant of one of these' : means(entry);
    tally.set(meaning, (tally.get(meaning) ?? 0) + 1);
  }
  return [...tally].map(([meaning, count]) => `${count} ${meaning}`).join(', ');
}

export function emitCoverage(libraries: readonly Library[]): string {
  const out = [
    '# Coverage',
    '',
    'Generated from `shim-src/api` by `scripts/build-shim`; do not edit. Every name that a real library exports',
    'is exported. A *refused* one returns `CUDA_ERROR_NOT_SUPPORTED` (801) or `NVML_ERROR_NOT_SUPPORTED` (3).',
    'Answered in the guest: from facts fetched once or from what the guest keeps itself; some of these make',
    'carried calls of another name. Asked from the host: from its NVML, or for a simulated device. Always none: the',
    'answer is 0, off or an empty list.',
    '',
  ];
  for (const library of libraries) {
    out.push(`## ${library.soname}`, '', `${exported(library).length} exports: ${counts(library)}.`, '');
    out.push('| Symbol | Found by cuGetProcAddress as | Call |', '|---|---|---|');
    for (const entry of exported(library)) {
      const { proc } = entry;
      const found =
        proc === undefined ? '' : `${proc.base}, ${proc.version}${proc.perThread ? ', per-thread' : ''}`;
      out.push(`| \`${entry.symbol}\` | ${found} | ${means(entry)} |`);
    }
    out.push('');
  }
  return out.join('\n');
}
