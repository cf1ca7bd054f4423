/**
 * scripts/gpu-check where there is no GPU: a second host with a software device stands in for the driver, so
 * that its mechanics run, and its report must say what that does not prove.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, type Host, SHIM, scratchDirectory, startHost } from '../shim_host.js';

const python = spawnSync('python3', ['-c', 'print(1)'], { encoding: 'utf8' }).status === 0;

interface Report {
  readonly simulated: boolean | null;
  readonly provenOnGpu: boolean;
  readonly verdict: string;
  readonly parts: readonly {
    readonly name: string;
    readonly status: string;
    readonly reason?: string;
    readonly native?: { readonly wrong: number; readonly result: string };
    readonly remote?: { readonly wrong: number; readonly result: string };
    readonly ratio?: Readonly<Record<string, number>>;
  }[];
}

describe('scripts/gpu-check', { skip: python ? false : 'no python3' }, () => {
  const scratch = scratchDirectory();
  let behind: Host;
  let refusing: Host;
  before(async () => {
    behind = await startHost({ listen: `unix:${scratch.path}/b` });
    refusing = await startHost({ listen: `unix:${scratch.path}/r`, args: ['--software-kernels', 'refuse'] });
  });
  after(async () => {
    await behind.stop();
    await refusing.stop();
    scratch.remove();
  });

  const check = (name: string, ...args: readonly string[]) => {
    const out = path.join(scratch.path, name);
    const ended = spawnSync(
      path.join(ROOT, 'scripts/gpu-check'),
      ['--quick', '--build', SHIM, '--out', out, ...args],
      { encoding: 'utf8', timeout: 120_000 },
    );
    const report: Report = JSON.parse(readFileSync(path.join(out, 'report.json'), 'utf8'));
    return { status: ended.status, text: readFileSync(path.join(out, 'report.txt'), 'utf8'), report };
  };
  const through = (host: Host): string[] => [
    '--cuda-library',
    builtFile('libcuda.so.1'),
    '--nvml-library',
    builtFile('libnvidia-ml.so.1'),
    '--driver-env',
    `VGPU_HOST=${host.address}`,
  ];

  it('finds equal numbers on both ways and still does not call a simulated device proof', () => {
    const { status, text, report } = check('equal', ...through(behind));
    assert.equal(status, 0, text);
    const [first, ...others] = report.parts;
    assert.equal(first?.status, 'equal');
    assert.equal(first?.native?.wrong, 0);
    assert.equal(first?.remote?.result, first?.native?.result);
    assert.ok((first?.ratio?.['launchAndSynchronize'] ?? 0) > 0);
    assert.equal(others.length, 4);
    for (const part of others) assert.ok(part.status !== 'skipped' || part.reason, part.name);
    assert.equal(report.simulated, true);
    assert.equal(report.provenOnGpu, false);
    assert.match(text, /not proven on a GPU: the device is simulated/);
  });

  it('fails where the driver itself does not compute', () => {
    const { status, text, report } = check('refused', ...through(refusing));
    assert.equal(status, 1, text);
    assert.equal(report.parts[0]?.status, 'failed');
    assert.match(report.parts[0]?.reason ?? '', /without the shim, too/);
    assert.equal(report.provenOnGpu, false);
  });

  it('says that there is no GPU, with an exit status of its own', () => {
    const { status, report } = check('none', '--cuda-library', '/nonexistent/libcuda.so.1');
    assert.equal(status, 3);
    assert.match(report.verdict, /not proven on a GPU: .*no CUDA driver/);
  });
});
