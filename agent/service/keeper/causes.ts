/** The causes of a repair. Pure. */
import type { Change } from '../../contracts/plan.js';

/** For back-off and for people: paths, else the kind of change. */
export function causesOf(changes: readonly Change[]): readonly string[] {
  const paths = changes.flatMap((change) =>
    'path' in change ? [change.path] : change.kind === 'store' ? ['/opt/vgpu'] : [],
  );
  if (paths.length > 0) return [...new Set(paths)];
  return [
    ...new Set(changes.map((change) => (change.kind === 'ldconfig' ? '/etc/ld.so.cache' : change.kind))),
  ];
}
