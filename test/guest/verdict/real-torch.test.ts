// A real PyTorch as a service that no profile is for. Its kernels are code of real GPUs alone, which a simulated one does
// not run: the verdict and the doctor say so, and what needs no kernel is done.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { realpathSync } from 'node:fs';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { findPython } from '../../shim/python/python_steps.js';
import { long } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { uninstall } from '../support/installed.js';
import { until } from '../support/process.js';
import { assertVerdict, evidence, tell } from '../support/scenario.js';

const python = findPython(
  'VGPU_TEST_TORCH',
  'torch-pip',
  'import importlib.metadata as m; m.version("nvidia-cublas"); assert "+cpu" not in m.version("torch")',
);
const skip =
  whyNoGuest() ||
  whyNoHostd() ||
  (python === undefined && 'no PyTorch with CUDA 13 (as scripts/fetch-packages torch-pip brings it)') ||
  (!long && 'takes a minute: --long');
const unit = 'learner.service';
/** Moves numbers to the GPU and back, then adds, which takes a kernel. item() makes pinned memory before it waits. */
const program = `import time, torch
there = torch.arange(1 << 20, dtype=torch.float32).to("cuda")
print("moved", bool((there.cpu() == torch.arange(1 << 20, dtype=torch.float32)).all()), flush=True)
try:
    print("added", (there + 1).sum().item(), flush=True)
except Exception as error:
    print("failed", str(error).splitlines()[0], flush=True)
time.sleep(1000000)
`;

test('a PyTorch service finds the device and copies, and the verdict names the kernels that fail', {
  skip,
}, async (t) => {
  assert.ok(python !== undefined);
  const environment = dirname(dirname(python));
  // The Python that the environment was made with, where it is none of the system's.
  const prefix = execFileSync(python, ['-c', 'import sys; print(sys.base_prefix)'], {
    encoding: 'utf8',
  }).trim();
  const bases = prefix.startsWith('/usr') ? [] : [`${prefix}:${prefix}`];
  const guest = await Guest.start(
    { readOnlyBinds: [`${realpathSync(environment)}:/opt/torch`, ...bases] },
    t,
  );
  await guest.hosts.start();
  await guest.write('/usr/local/lib/learner.py', program);
  await guest.write(
    `/etc/systemd/system/${unit}`,
    '[Service]\nExecStart=/opt/torch/bin/python /usr/local/lib/learner.py\n',
  );
  await guest.must('systemctl', 'daemon-reload');
  await guest.must('systemctl', 'start', unit);
  await tell(guest, 'install', '--yes', '--unit', unit, '--timeout', '5');
  const said = await until('the service has done what it can', 180_000, async () => {
    const invocation = `_SYSTEMD_INVOCATION_ID=${await guest.invocationId(unit)}`;
    const { stdout } = await guest.run('journalctl', '-q', '-o', 'cat', invocation);
    return /^(?:added|failed) /m.test(stdout) ? stdout : undefined;
  });
  assert.match(said, /^moved True\nfailed CUDA error: no kernel image is available/m);
  const verified = await tell(guest, 'verify', '--unit', unit);
  const verdict = await assertVerdict(guest, verified, { mode: 'undetermined', reason: 'no-work-yet' });
  assert.match(evidence(verdict, 'sessions').join(), /^python\S* \(process \d+\) /);
  assert.match(verdict.summary, /kernels?.* the host could not run|could not run .*kernels?/);
  const doctor = await tell(guest, 'doctor', '--unit', unit);
  const found = doctor.document.checks.find(({ id }) => id === 'refused-kernels')?.finding;
  assert.ok(found?.kind === 'warning', doctor.stdout);
  assert.match(found.evidence.join(), /for python\S*: _ZN/);
  await uninstall(guest, '--unit', unit);
});
