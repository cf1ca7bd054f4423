/** Memory, events and pools shared between processes of one guest; and another guest, which gets nothing of it. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import {
  type CasePrograms,
  describeCases,
  describeCasesOfSeveralProcesses,
  describeCasesOverTransports,
} from '../case_programs.js';
import { builtFile, type Host, SHIM, scratchDirectory, startHost, until } from '../shim_host.js';

const PROGRAMS: CasePrograms = {
  share_calls: {
    memory: 'an allocation is one for both processes, until it is freed',
    physical: 'physical memory that is mapped already is shared by a file descriptor',
    pools: 'memory of a pool is opened through the pool',
    events: 'a stream waits for an event that another process has recorded',
  },
};

describeCases('sharing between processes', PROGRAMS, true);
const OFFERED = { share_calls: { offered: 'is offered by the attributes of each device' } };
describeCasesOverTransports('sharing between processes', OFFERED);
describeCasesOfSeveralProcesses('sharing between processes', {
  share_calls: { ...PROGRAMS['share_calls'], ...OFFERED.share_calls },
});

const NOBODY = 65_534;
const root = process.getuid?.() === 0;

describe('a handle of one guest', { skip: root ? false : 'another user can only be tried by root' }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    chmodSync(scratch.path, 0o755);
    host = await startHost({ listen: `unix:${scratch.path}/s` });
    chmodSync(`${scratch.path}/s`, 0o777);
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const program = (name: string, uid: number) => {
    const child = spawn(builtFile('programs/share_calls'), [name], {
      stdio: ['pipe', 'pipe', 'inherit'],
      uid,
      env: { LD_LIBRARY_PATH: SHIM, VGPU_HOST: host.address },
    });
    let said = '';
    child.stdout.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    return {
      child,
      line: async (): Promise<string> => {
        await until('a line', () => said.includes('\n'), 20_000);
        return said.trim();
      },
    };
  };

  it('opens nothing for another one, and the memory for its own', async () => {
    const owner = program('offers', 0);
    const handle = await owner.line();
    assert.match(handle, /^[0-9a-f]{128}$/);
    const results: string[] = [];
    for (const uid of [NOBODY, 0]) {
      const other = program('tries', uid);
      other.child.stdin.end(`${handle}\n`);
      results.push(await other.line());
    }
    owner.child.stdin.end();
    assert.deepEqual(results, ['1', '0']);
  });
});
