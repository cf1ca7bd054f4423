/** Whether this machine can compile kernels; a reason to skip what needs that. */
import { spawnSync } from 'node:child_process';
import { builtFile } from '../shim_host.js';

const tried = spawnSync(builtFile('programs/ptx_run'), [], {
  input: '',
  encoding: 'utf8',
  env: { ...process.env, PTX_COMPILE: 'always' },
});

/** False: it can. */
export const compiles: string | false = tried.status === 0 ? false : tried.stderr.trim();
