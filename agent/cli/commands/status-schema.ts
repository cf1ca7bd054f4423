/** The output of `status --json`, as docs/json describes it: the service answers with the same document. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../lib/paths.js';

/** status.schema.json with what it refers to. */
export function statusSchema(): object {
  const status = read('status.schema.json');
  return {
    ...status,
    $defs: { ...Object(Reflect.get(status, '$defs')), common: read('common.schema.json') },
  };
}

function read(name: string): object {
  return Object(JSON.parse(readFileSync(path.join(packageRoot(), 'docs', 'json', name), 'utf8')));
}
