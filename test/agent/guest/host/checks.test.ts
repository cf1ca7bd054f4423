import assert from 'node:assert/strict';
import { chmodSync } from 'node:fs';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { HostDevice } from '../../../../agent/contracts/serving.js';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { obstacles } from '../../../../agent/guest/host/checks.js';
import { readServed } from '../../../../agent/guest/host/inspect.js';
import { type CommandRunner, spawnRunner } from '../../../../agent/lib/run-command.js';
import { tree } from '../support.js';

const loader =
  'vgpu-hostd: error while loading shared libraries: libjansson.so.4: cannot open shared object file';

/** Runs the program in the arguments of systemd-run directly, with the properties in SANDBOX. */
const unconfined: CommandRunner = {
  run: (file, args, options) => {
    if (file !== 'systemd-run') return spawnRunner().run(file, args, options);
    const properties = args.flatMap((word) => /^--property=(.*)$/.exec(word)?.[1] ?? []).join(' ');
    return spawnRunner().run(
      'env',
      [`SANDBOX=${properties}`, ...args.slice(args.indexOf('--') + 1)],
      options,
    );
  },
};

/** The obstacles for a daemon that is this shell script. */
async function obstaclesWith(
  context: TestContext,
  script: string,
  { device = 'software', force = false }: { device?: HostDevice; force?: boolean } = {},
) {
  const directory = tree(context, {
    'vgpu-hostd': `#!/bin/sh\n${script}\n`,
    'dev/nvidiactl': '',
    'dev/nvidia-uvm': '',
    'dev/nvidia0': '',
  });
  const program = path.join(directory, 'vgpu-hostd');
  chmodSync(program, 0o755);
  return obstacles({
    root: new Root(directory),
    runner: unconfined,
    program,
    unit: '[Service]\nDevicePolicy=closed\n',
    device,
    listen: [],
    sources: [],
    listening: false,
    force,
  });
}

describe('the daemon that host install would install', () => {
  it('is refused with the words of the loader and the libraries to install when one is missing', async (context) => {
    const found = await obstaclesWith(context, `echo '${loader}' >&2; exit 127`, {
      device: 'cuda',
      force: true,
    });
    const [problem, ...others] = found.refusals;
    assert.deepEqual([others, found.warnings], [[], []]);
    assert.equal(problem?.code, 'program-broken');
    assert.match(problem.message, /vgpu-hostd does not run: .*libjansson\.so\.4/);
    assert.match(problem.remedy, /apt-get install libjansson4 liblz4-1 libseccomp2 libzstd1/);
  });

  it('is refused with its signal when it says nothing', async (context) => {
    const [problem] = (await obstaclesWith(context, 'kill -ILL $$')).refusals;
    assert.match(problem?.message ?? '', /does not run: it ended with SIGILL$/);
  });

  it("is refused when its self-check fails in the unit's sandbox, and installed with a warning by --force", async (context) => {
    const script = '[ "$1" = --version ] || { echo "cuInit: 999 in $SANDBOX"; exit 3; }';
    const message =
      'a worker of this host could not use the driver: cuInit: 999 in DevicePolicy=closed RuntimeMaxSec=120';
    const { refusals, warnings } = await obstaclesWith(context, script, { device: 'cuda' });
    assert.deepEqual([refusals.map((one) => one.message), warnings], [[message], []]);
    assert.match(
      refusals[0]?.remedy ?? '',
      /--self-check --device cuda shows every step; --force installs in any case$/,
    );
    const forced = await obstaclesWith(context, script, { device: 'cuda', force: true });
    assert.deepEqual([forced.refusals, forced.warnings.map((one) => one.message)], [[], [message]]);
  });

  it('is installed with the warnings that its self-check prints', async (context) => {
    const warning = 'warning: persistence mode is off; enable nvidia-persistenced.service';
    const script = `[ "$1" = --version ] || echo 'cuInit: good\n${warning}'`;
    const [message, remedy] = ['persistence mode is off', 'enable nvidia-persistenced.service'];
    assert.deepEqual(await obstaclesWith(context, script, { device: 'cuda' }), {
      refusals: [],
      warnings: [{ code: 'self-check', message, remedy }],
    });
  });

  it('is accepted when it tells its version', async (context) => {
    assert.deepEqual(await obstaclesWith(context, 'echo vgpu-hostd 0.1.0'), { refusals: [], warnings: [] });
  });
});

describe('a machine whose host is uninstalled', () => {
  it('is looked at without the checks of an install: no program is run while vgpu-hostd is stopped', async (context) => {
    const file = '/etc/default/vgpu-hostd';
    const item = { kind: 'file', path: file, sha256: 'a'.repeat(64), mode: 0o644 } as const;
    const items = [{ ...item, before: { kind: 'absent' }, backup: null }] as const;
    const manifest = { schema: 2, agent: '0', storeId: 'x', endpoint: 'x', consumers: [], items } as const;
    const facts = await readServed({
      root: new Root(tree(context, { 'etc/default/vgpu-hostd': 'VGPU_DEVICE=cuda\n' })),
      contents: new ContentCache(),
      runner: { run: (program) => Promise.reject(new Error(`${program} was run`)) },
      manager: { unit: async (name) => ({ kind: 'absent', name }) },
      architecture: 'x86_64',
      readManifest: async () => manifest,
    });
    assert.deepEqual(
      facts.files.map(({ path: one, state }) => [one, state.kind]),
      [
        [file, 'file'],
        ['/etc/systemd/system/vgpu-hostd.socket', 'absent'],
        ['/etc/systemd/system/vgpu-hostd.service', 'absent'],
      ],
    );
  });
});
