/**
 * scripts/gpu-check where there is no GPU: a second host with a software device stands in for the driver, so
 * that its mechanics run, and its report must say what that does not prove.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { type Host, SHIM, scratchDirectory, startHost } from '../shim_host.js';

const python = spawnSync('python3', ['-c', 'print(1)'], { encoding: 'utf8' }).status === 0;

const rows = [...readFileSync(path.join(ROOT, 'docs/status.md'), 'utf8').matchAll(/^\| (.+ \|) *$/gm)]
  .map(([, row = '']) => row)
  .slice(1);

interface Report {
  readonly claims: readonly {
    readonly claim: string;
    readonly shown: boolean | null;
    readonly why: string;
  }[];
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
    behind = await startHost({
      listen: `unix:${scratch.path}/b`,
      args: ['--profile', 'h100-80gb', '--profile', 'h200'],
    });
    refusing = await startHost({ listen: `unix:${scratch.path}/r`, args: ['--software-kernels', 'refuse'] });
  });
  after(async () => {
    await behind.stop();
    await refusing.stop();
    scratch.remove();
  });

  // Not spawnSync: this process must read the hosts' logs, because a host blocks when its log is full.
  const check = async (name: string, ...args: readonly string[]) => {
    const out = path.join(scratch.path, name);
    const ended = await runProgram(
      path.join(ROOT, 'scripts/gpu-check'),
      ['--quick', '--build', SHIM, '--out', out, ...args],
      { limit: 300_000 },
    );
    const report: Report = JSON.parse(readFileSync(path.join(out, 'report.json'), 'utf8'));
    return { status: ended.code, text: readFileSync(path.join(out, 'report.txt'), 'utf8'), report };
  };
  const through = (host: Host, build = SHIM): string[] => [
    '--cuda-library',
    `${build}/libcuda.so.1`,
    '--nvml-library',
    `${build}/libnvidia-ml.so.1`,
    '--driver-env',
    `VGPU_HOST=${host.address}`,
    // This driver, and the host behind it, are in directories of root's.
    ...(process.getuid?.() === 0 ? ['--user', 'root'] : []),
  ];

  it('finds equal numbers on both ways and still does not call a simulated device proof', async () => {
    const { status, text, report } = await check('equal', ...through(behind));
    assert.equal(status, 0, text);
    const first = report.parts.find((part) => part.name.startsWith('vectorAdd'));
    const others = report.parts.filter((part) => part !== first);
    assert.equal(first?.status, 'equal');
    assert.equal(first?.native?.wrong, 0);
    assert.equal(first?.remote?.result, first?.native?.result);
    assert.ok((first?.ratio?.['launchAndSynchronize'] ?? 0) > 0);
    for (const name of [
      'devices',
      'verify --compute',
      'each device alone',
      'NVML getters',
      'memory of an earlier session',
      'cases of graph_nodes',
    ]) {
      assert.equal(others.find((part) => part.name === name)?.status, 'equal', `${name}\n${text}`);
    }
    for (const part of others) assert.ok(part.status !== 'skipped' || part.reason, part.name);
    // The word on each claim: none is called shown on a device that is simulated, and each has its row.
    assert.equal(report.claims.length, rows.length);
    assert.deepEqual(
      report.claims.filter(({ shown }) => shown === true),
      [],
    );
    assert.match(text, /^NOT SHOWN A real GPU behind the host.*the device is simulated/m);
    assert.equal(report.simulated, true);
    assert.equal(report.provenOnGpu, false);
    assert.match(text, /not proven on a GPU: the device is simulated/);
  });

  it('runs from the archive that --pack makes, without the tree that built it', async () => {
    const archive = path.join(scratch.path, 'not yet there/pack.tar.gz');
    const script = path.join(ROOT, 'scripts/gpu-check');
    const packed = spawnSync(script, ['--build', SHIM, '--pack', archive], { encoding: 'utf8' });
    assert.equal(packed.status, 0, packed.stderr);
    assert.ok(statSync(archive).size < 60 * 1024 * 1024);
    assert.equal(spawnSync('tar', ['-xzf', archive, '-C', scratch.path]).status, 0);
    const there = path.join(scratch.path, 'vgpu-gpu-check');
    assert.ok(
      existsSync(path.join(there, 'build/shim/lib/libjansson.so.4')),
      'what the daemon is linked with',
    );
    const out = path.join(scratch.path, 'packed');
    const args = ['--out', out, '--cuda-library', '/nonexistent/libcuda.so.1'];
    const ended = spawnSync(path.join(there, 'scripts/gpu-check'), args, { encoding: 'utf8' });
    assert.equal(ended.status, 3, ended.stdout + ended.stderr);
    assert.match(ended.stdout, /no CUDA driver[\s\S]*NOT SHOWN A real GPU behind the host/);
    const parts = ['devices', 'self-check', 'vectorAdd', 'NVML getters', 'cases of both_calls'];
    const ran = await runProgram(
      path.join(there, 'scripts/gpu-check'),
      [
        ...['--quick', '--out', out, ...through(behind, path.join(there, 'build/shim'))],
        ...parts.flatMap((name) => ['--only', name]),
      ],
      { limit: 120_000 },
    );
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    for (const name of parts) assert.match(ran.stdout, new RegExp(`^equal +${name}`, 'm'));
  });

  it('has one part for each row that needs a real GPU', () => {
    const starts = [
      ...readFileSync(path.join(ROOT, 'scripts/gpu-check'), 'utf8').matchAll(/^ {4}\("(.+)", \[/gm),
    ];
    assert.ok(starts.length >= 8);
    for (const [, start = ''] of starts) {
      assert.equal(rows.filter((row) => row.startsWith(start)).length, 1, start);
    }
    const wanted = rows.filter((row) => /not proven\*{0,2} on a (real )?GPU/i.test(row));
    for (const row of wanted)
      assert.ok(
        starts.some(([, start = '']) => row.startsWith(start)),
        row,
      );
  });

  it('names the checks of a case that fail through the shim only', () => {
    const onlyThrough = (direct: string, through: string): unknown =>
      JSON.parse(
        spawnSync(
          'python3',
          [
            '-c',
            `import importlib.machinery as m, json, sys
check = m.SourceFileLoader("check", sys.argv[1]).load_module()
print(json.dumps(check.only_through(*sys.argv[2:])))`,
            path.join(ROOT, 'scripts/gpu-check'),
            direct,
            through,
          ],
          { encoding: 'utf8', env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } },
        ).stdout,
      );
    const record = 'programs/green.c:374: record() is 0, not 201';
    const query = '/x/programs/green.c:356: query() is 201, not 600';
    assert.deepEqual(onlyThrough(record, `${query}\n${record}`), ['green.c:356']);
    assert.deepEqual(onlyThrough(record, record), []);
    assert.deepEqual(onlyThrough(`${record}\nexit -11`, query), [], 'the driver ended the case');
    assert.deepEqual(onlyThrough('green.c:3: create() gave 801', query), []);
  });

  it('fails where the driver itself does not compute', async () => {
    const { status, text, report } = await check('refused', '--only', 'vectorAdd', ...through(refusing));
    assert.equal(status, 1, text);
    const first = report.parts.find((part) => part.name.startsWith('vectorAdd'));
    assert.equal(first?.status, 'failed');
    assert.match(first?.reason ?? '', /without the shim, too/);
    assert.equal(report.provenOnGpu, false);
  });

  it('says that there is no GPU, with an exit status of its own', async () => {
    const { status, report } = await check('none', '--cuda-library', '/nonexistent/libcuda.so.1');
    assert.equal(status, 3);
    assert.match(report.verdict, /not proven on a GPU: .*no CUDA driver/);
  });
});
