/** Memory of a program that the device reaches at the program's own address, with --device cuda. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { builtFile, type Host, SHIM, scratchDirectory, VARIANT } from '../shim_host.js';
import { startStandIn } from './stand_in.js';

const run = promisify(execFile);

describe('memory that a program registers with --device cuda', {
  skip: VARIANT !== 'shim' && 'the software device in the same process is built without sanitizers',
}, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startStandIn('maps,real,wide', { listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  // The addresses of a program and of its worker are random. Half of the programs would meet the driver's.
  it('has its address there, whatever the driver has mapped beside it', async () => {
    const env = { ...process.env, VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM };
    for (let i = 0; i < 20; i++) await run(builtFile('programs/registered_calls'), ['turns'], { env });
    assert.doesNotMatch(host.log(), /has no address on the device/);
  });
});
