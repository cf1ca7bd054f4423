/** Does the host differ from what was installed? Pure. */
import type { ServingFacts } from '../../../contracts/serving.js';
import { isOurs } from '../owned.js';

/** The differences from the installation, which a repair would change. */
export function servingDrift(facts: ServingFacts): readonly string[] {
  const items = facts.manifest?.items ?? [];
  return items.flatMap((item) => {
    if (item.kind !== 'file' && item.kind !== 'link') return [];
    const file = facts.files.find((one) => one.path === item.path);
    const state = file?.state ?? facts.links.find((one) => one.path === item.path)?.state;
    if (state === undefined || isOurs(item, state)) return [];
    // A person may edit it; missing it is drift all the same.
    return file?.editable === true && state.kind === 'file' ? [] : [item.path];
  });
}
