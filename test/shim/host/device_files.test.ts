/** The files of /dev that a worker of --device cuda can open: those of its session's GPUs, in a /dev of the test's own. */
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { askAll, builtFile, type Host, scratchDirectory, startShell } from '../shim_host.js';
import { standInNvml, startStandIn } from './stand_in.js';
import { twoDevices } from './two_devices.js';

describe('a worker of --device cuda', {
  skip: process.getuid?.() !== 0 && 'only root can make a /dev',
}, () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let host: Host | undefined;
  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    await host?.stop();
    host = undefined;
    scratch.remove();
  });

  /** vgpu-hostd with device files that are all like /dev/null. */
  const program = (): string => {
    const file = `${scratch.path}/hostd`;
    const nodes = 'nvidiactl nvidia0 nvidia1 nvidia-uvm sda nvidia-caps/nvidia-cap1';
    writeFileSync(
      file,
      `#!/bin/sh
exec unshare --mount sh -c '
  mkdir ${scratch.path}/dev && mount -t tmpfs dev ${scratch.path}/dev && cd ${scratch.path}/dev || exit 9
  mkdir nvidia-caps shm
  for node in null zero urandom ${nodes}; do mknod -m 666 $node c 1 3 || exit 9; done
  mount --bind . /dev || exit 9
  exec ${builtFile('vgpu-hostd')} "$@"' sh "$@"
`,
    );
    chmodSync(file, 0o755);
    return file;
  };

  /** The device files that a session's driver could open, by name, with the host's numbers. */
  const opened = async (conf: string, nvml: string): Promise<readonly string[]> => {
    writeFileSync(`${scratch.path}/c`, conf);
    host = await startStandIn('nodes', {
      listen: `unix:${scratch.path}/s`,
      profile: twoDevices(`${scratch.path}/two.json`),
      args: ['--nvml-library', nvml, '--config', `${scratch.path}/c`],
      program: program(),
    });
    const before = host.log().length;
    const shell = startShell({ VGPU_HOST: host.address });
    await askAll(shell, ['use 1']);
    shell.kill();
    await host.logged(/\/tmp (opened|closed)\n[\s\S]*\/tmp (opened|closed)\n/);
    const said = host.log().slice(before);
    return [...said.matchAll(/(?:^|wrote to stderr: )stand-in: (\S+) opened$/gm)].map(
      ([, name = '']) => name,
    );
  };

  it('opens the files of the chosen GPU and none of another, nor of any other device', async () => {
    assert.deepEqual(await opened('allow unix devices=1\n', await standInNvml()), [
      ...['nvidiactl', 'nvidia1', 'nvidia-uvm', 'null', '/tmp'],
    ]);
  });

  it('opens those of all GPUs where all are its own, or where nothing tells which file is whose', async () => {
    const all = ['nvidiactl', 'nvidia0', 'nvidia1', 'nvidia-uvm', 'null', '/tmp'];
    assert.deepEqual(await opened('allow unix\n', await standInNvml()), all);
    await host?.stop();
    scratch.remove();
    scratch = scratchDirectory();
    assert.deepEqual(await opened('allow unix devices=1\n', path.join(ROOT, 'no-such-library')), all);
  });
});
