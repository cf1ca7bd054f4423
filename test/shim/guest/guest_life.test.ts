/**
 * Events in the life of a process that has loaded the library, over each transport. Afterwards the host is as before.
 */

import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import {
  builtFile,
  type Host,
  SHIM,
  scratchDirectory,
  sessionsNow,
  startHost,
  until,
  VARIANT,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';

const CASES = {
  closed_and_opened: 'is closed and opened again: its session, context and memory are as they were',
  closed_while_used: 'is closed while eight threads are inside of it',
  left_while_used: 'is left by exit() while eight threads are inside of it',
  left_with_work_in_flight: 'is left with copies on their way',
  left_by_the_first_thread: 'goes on when the first thread ends',
  forked_while_used: 'is forked while eight threads are inside of it: each child begins again',
  spawned_while_used: 'is in a process that starts programs meanwhile',
  low_descriptors_closed: 'goes on when the program closes and reuses the descriptors from 3 to 255',
  descriptors_closed:
    'fails, and neither writes to, reads from nor shuts down the files that took the numbers of its descriptors',
  interrupted: 'is interrupted by signals that restart nothing',
  preempted: "is preempted as Go's runtime does, on small stacks and signal stacks",
} as const;

const PORT = await freePort();

for (const transport of ['unix', 'unix without a ring', 'tcp'] as const) {
  describe(`a library over ${transport} that`, () => {
    const scratch = scratchDirectory();
    let host: Host;

    before(async () => {
      host = await startHost({
        listen: transport === 'tcp' ? `tcp:127.0.0.1:${PORT}` : `unix:${scratch.path}/s`,
      });
    });
    after(async () => {
      assert.equal(await host.stop(), 0);
      scratch.remove();
    });

    for (const [name, what] of Object.entries(CASES)) {
      // gcc 12's allocator does not take its lock for fork(): the child waits for a thread that it does not have.
      const lock = name === 'forked_while_used' && /sanitize|fuzz/.test(VARIANT);
      it(what, { skip: lock && "AddressSanitizer's own allocator may be locked in the child" }, async () => {
        const ended = await runProgram(builtFile(path.join('programs', 'guest_life')), [name], {
          env: {
            VGPU_HOST: host.address,
            LD_LIBRARY_PATH: SHIM,
            ...(transport === 'unix without a ring' ? { VGPU_TRANSPORT: 'socket' } : {}),
          },
          limit: 120_000,
        });
        assert.deepEqual([ended.code, ended.signal, ended.stdout], [0, null, ''], ended.stderr);
        await until('its sessions to end', () => sessionsNow(host) === 0, 30_000);
        assert.doesNotMatch(host.log(), /killed by signal|violation/);
      });
    }
  });
}
