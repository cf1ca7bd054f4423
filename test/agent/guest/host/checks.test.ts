import assert from 'node:assert/strict';
import { chmodSync } from 'node:fs';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { HostDevice } from '../../../../agent/contracts/serving.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { servingProblems } from '../../../../agent/guest/host/checks.js';
import { type CommandRunner, spawnRunner } from '../../../../agent/lib/run-command.js';
import { tree } from '../support.js';

const loader =
  'vgpu-hostd: error while loading shared libraries: libjansson.so.4: cannot open shared object file';

/** Runs the program of systemd-run's arguments itself. */
const unconfined: CommandRunner = {
  run: (file, args, options) =>
    file === 'systemd-run'
      ? spawnRunner().run(args[args.indexOf('--') + 1] ?? '', args.slice(args.indexOf('--') + 2), options)
      : spawnRunner().run(file, args, options),
};

/** The obstacles for a daemon that is this shell script. */
async function problemsWith(context: TestContext, script: string, device: HostDevice = 'software') {
  const directory = tree(context, {
    'vgpu-hostd': `#!/bin/sh\n${script}\n`,
    'dev/nvidiactl': '',
    'dev/nvidia-uvm': '',
    'dev/nvidia0': '',
  });
  const program = path.join(directory, 'vgpu-hostd');
  chmodSync(program, 0o755);
  return servingProblems({
    root: new Root(directory),
    runner: unconfined,
    program,
    unit: '[Service]\n',
    device,
    listen: [],
    sources: [],
    listening: false,
  });
}

describe('the daemon that host install would install', () => {
  it('is refused with the words of the loader and the libraries to install when one is missing', async (context) => {
    const [problem, ...others] = await problemsWith(context, `echo '${loader}' >&2; exit 127`);
    assert.deepEqual(others, []);
    assert.equal(problem?.code, 'program-broken');
    assert.match(problem.message, /vgpu-hostd does not run: .*libjansson\.so\.4/);
    assert.match(problem.remedy, /apt-get install libjansson4 liblz4-1 libseccomp2 libzstd1/);
  });

  it('is refused with its signal when it says nothing', async (context) => {
    const [problem] = await problemsWith(context, 'kill -ILL $$');
    assert.match(problem?.message ?? '', /does not run: it ended with SIGILL$/);
  });

  it('is installed with the warnings that its self-check prints', async (context) => {
    const warning = 'warning: persistence mode is off; enable nvidia-persistenced.service';
    const script = `[ "$1" = --version ] || echo 'cuInit: good\n${warning}'`;
    assert.deepEqual(await problemsWith(context, script, 'cuda'), [
      {
        code: 'self-check',
        message: 'persistence mode is off',
        remedy: 'enable nvidia-persistenced.service',
        weight: 'warning',
      },
    ]);
  });

  it('is accepted when it tells its version', async (context) => {
    assert.deepEqual(await problemsWith(context, 'echo vgpu-hostd 0.1.0'), []);
  });
});
