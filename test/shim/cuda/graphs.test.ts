import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { builtFile, SHIM, scratchDirectory, startChain, startHost } from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { ROOT, runProgram } from './private_programs.js';

const PTX = path.join(ROOT, 'test/fixtures/code/kernels.ptx');
const PORT = await freePort();

describe('graphs', () => {
  for (const transport of ['unix', 'tcp', 'a host with --device cuda'] as const) {
    it(`are captured, made by hand, changed and launched over ${transport}`, async () => {
      const scratch = scratchDirectory();
      const log = path.join(scratch.path, 'launches');
      const args = ['--software-kernels', 'skip', '--launch-log', log];
      const listen = transport === 'unix' ? `unix:${scratch.path}/s` : `tcp:127.0.0.1:${PORT}`;
      const host =
        transport === 'unix' || transport === 'tcp'
          ? await startHost({ listen, args })
          : await startChain(scratch.path, args);
      try {
        const ended = await runProgram(builtFile('programs/graph_calls'), [PTX], {
          env: { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM },
          limit: 120_000,
        });
        assert.doesNotMatch(ended.stdout, /^FAILED/m);
        assert.match(ended.stdout, /^failures 0$/m, ended.stderr);
        assert.equal(ended.code, 0);
        const launches = readFileSync(log, 'utf8').trim().split('\n');
        const last = (line: string | undefined): number =>
          Buffer.from((JSON.parse(line ?? '{}') as { parameters: string }).parameters, 'hex').readInt32LE(24);
        /* Two runs of the captured one, the update twice, twice by hand, and each of the many in its turn. */
        assert.deepEqual(launches.slice(0, 6).map(last), [77, 77, 2, 2, 5, 6]);
        assert.deepEqual([launches.length, last(launches[6]), last(launches.at(-1))], [20_006, 0, 19_999]);
      } finally {
        await host.stop();
        scratch.remove();
      }
    });
  }
});
