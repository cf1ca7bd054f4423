import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { machine } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { LoadedUnit, UnitFacts } from '../../../agent/contracts/unit.js';
import { ContentCache } from '../../../agent/guest/files/content.js';
import { type InspectEffects, type InspectOptions, inspect } from '../../../agent/guest/inspect.js';
import { defaultShimDirectory } from '../../../agent/guest/shim/store.js';
import { canLoad } from '../../../agent/guest/unit/access.js';
import { VgpuError } from '../../../agent/lib/errors.js';
import { spawnRunner } from '../../../agent/lib/run-command.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { openSandbox } from '../verdict/support.js';
import { buildElf, ourNote, type Tree, tree } from './support.js';

const profile = loadProfile('ollama');

const unit: LoadedUnit = {
  kind: 'loaded',
  name: 'ollama.service',
  fragment: '/etc/systemd/system/ollama.service',
  dropIns: [],
  activeState: 'active',
  subState: 'running',
  result: 'success',
  restarts: 0,
  mainPid: process.pid,
  invocationId: '0123456789abcdef0123456789abcdef',
  needDaemonReload: false,
  environment: {},
  environmentFiles: [],
  execStart: ['/usr/local/bin/ollama', 'serve'],
  user: 'daemon',
  group: '',
  dynamicUser: false,
  standardOutput: 'journal',
  standardError: 'journal',
  sandbox: openSandbox,
};

/** A bus that knows one unit: systemd itself is asked in the guest tests. */
function effects(
  root: string,
  facts: UnitFacts = unit,
  pids: readonly number[] = [process.pid],
): InspectEffects {
  return {
    root,
    runner: spawnRunner(),
    manager: { unit: async () => facts, processes: async () => pids },
    readManifest: async () => null,
    profileOf: () => null,
    confProblem: () => null,
  };
}

function handmadeShim(context: TestContext): string {
  return tree(context, {
    'libcuda.so.1': buildElf({ soname: 'libcuda.so.1', note: ourNote }),
    'libnvidia-ml.so.1': buildElf({ note: ourNote }),
    'vgpu-probe': '',
  });
}

function options(shimDirectory: string, changes: Partial<InspectOptions> = {}): InspectOptions {
  return { endpoint: null, environmentHost: undefined, shimDirectory, ask: false, ...changes };
}

const guest: Tree = {
  'etc/os-release': 'ID=debian\nVERSION_ID="12"\n',
  lib: { link: 'usr/lib' },
  'usr/lib/x86_64-linux-gnu': { 'libcuda.so.1': buildElf({ soname: 'libcuda.so.1' }) },
  'etc/vgpu/guest.conf': 'host=vsock:2:99\n',
  'etc/systemd/system/ollama.service.d/50-vgpu.conf': '[Service]\n',
};

/** Every path with its kind, size, link and time. */
function listing(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .sort()
    .map((name) => {
      const stats = lstatSync(path.join(directory, name), { bigint: true });
      const target = stats.isSymbolicLink() ? readlinkSync(path.join(directory, name)) : '';
      return [name, stats.mode, stats.size, stats.mtimeNs, target].join(' ');
    });
}

/** Bytes that this process has read so far, from anything: `rchar` of /proc/PID/io (proc_pid_io(5)). */
function bytesRead(): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);
}

describe('inspect', () => {
  it('puts the facts of a guest’s root together and changes nothing in it', async (context) => {
    const root = tree(context, guest);
    const before = listing(root);
    const facts = await inspect(effects(root), profile, options(handmadeShim(context)));
    assert.deepEqual(listing(root), before);
    assert.equal(facts.distribution.family, 'debian');
    const cuda = facts.candidates.find((one) => one.path === '/usr/lib/x86_64-linux-gnu/libcuda.so.1');
    assert.equal(cuda?.vendor, 'foreign');
    assert.equal(facts.guestConf.content, 'host=vsock:2:99\n');
    assert.equal(facts.dropIn.content, '[Service]\n');
    assert.equal(facts.loaderConf.state.kind, 'absent');
    assert.deepEqual(facts.host, { endpoint: 'vsock:2:99', from: 'guest.conf', answer: { kind: 'unasked' } });
    assert.equal(facts.shim.version, '0.1.0');
    assert.deepEqual(facts.store.versions, []);
    assert.equal(facts.serviceUser?.name, 'daemon');
    assert.equal(facts.processes[0]?.pid, process.pid);
    assert.deepEqual(facts.realGpu, { kind: 'none' });
    assert.equal(facts.interrupted, false);
    assert.equal(facts.manifest, null);
    assert.doesNotThrow(() => JSON.stringify(facts));
  });

  it('sees a transaction that was cut short', async (context) => {
    const root = tree(context, { ...guest, 'var/lib/vgpu-agent/transaction.jsonl': '' });
    assert.equal((await inspect(effects(root), profile, options(handmadeShim(context)))).interrupted, true);
  });

  it('has no user and no processes for a unit that is not there', async (context) => {
    const root = tree(context, guest);
    const absent = effects(root, { kind: 'absent', name: 'ollama.service' });
    const facts = await inspect(absent, profile, options(handmadeShim(context)));
    assert.deepEqual([facts.unit.kind, facts.serviceUser, facts.processes], ['absent', null, []]);
  });

  it('fails once, with one message, when several parts fail', async (context) => {
    const root = tree(context, guest);
    const broken: InspectEffects = {
      ...effects(root),
      manager: {
        unit: () =>
          Promise.reject(new VgpuError('the bus is gone', { kind: 'failed', operation: 'GetUnit' })),
        processes: () => Promise.resolve([]),
      },
      readManifest: () => Promise.reject(new VgpuError('no manifest', { kind: 'failed', operation: 'read' })),
    };
    await assert.rejects(
      inspect(broken, profile, options('/nonexistent/shim', { endpoint: 'nonsense' })),
      VgpuError,
    );
    // A second rejection that is not awaited would end the process here.
    await new Promise((resolve) => setTimeout(resolve, 20));
  });

  it('refuses a bad --host with its value', async (context) => {
    const asked = inspect(
      effects(tree(context, guest)),
      profile,
      options(handmadeShim(context), { endpoint: 'tcp:somewhere' }),
    );
    await assert.rejects(asked, /--host "tcp:somewhere"/);
  });

  it('reads little of this machine when it looks again, and runs few programs', async (context) => {
    const shim = handmadeShim(context);
    const contents = new ContentCache();
    const spawning = spawnRunner();
    const looks: { readonly bytes: number; readonly programs: readonly string[] }[] = [];
    for (let round = 0; round < 3; round += 1) {
      const programs: string[] = [];
      const run: typeof spawning.run = (file, ...rest) => {
        programs.push(file);
        return spawning.run(file, ...rest);
      };
      const before = bytesRead();
      const facts = await inspect({ ...effects('/'), runner: { run }, contents }, profile, options(shim));
      looks.push({ bytes: bytesRead() - before, programs });
      assert.ok(facts.loader.directories.length > 0);
    }
    context.diagnostic(JSON.stringify(looks));
    // The loader's cache, lists of packages and /proc: no library, all of which it remembers.
    for (const { bytes } of looks.slice(1)) assert.ok(bytes < 4 * 1024 * 1024, `${bytes} bytes`);
    for (const { programs } of looks) assert.ok(programs.length <= 4, programs.join(' '));
  });

  const built = defaultShimDirectory();
  const notBuilt = !existsSync(path.join(built, 'vgpu-probe')) && 'the shim is not built: npm run build:shim';
  it('asks a host that is not there, in bounded time', { skip: notBuilt }, async (context) => {
    const root = tree(context, guest);
    const started = performance.now();
    const facts = await inspect(
      effects(root),
      profile,
      options(built, { ask: true, endpoint: `unix:${root}/nobody.sock`, questionTimeoutMs: 2000 }),
    );
    assert.equal(facts.host.from, 'flag');
    assert.equal(facts.host.answer.kind, 'unreachable');
    assert.ok(performance.now() - started < 20_000);
  });

  it('asks a host that answers with its simulated device', { skip: notBuilt }, async (context) => {
    const root = tree(context, guest);
    const endpoint = `unix:${root}/hostd.sock`;
    const hostd = spawn(path.join(built, 'vgpu-hostd'), ['--device', 'software', '--listen', endpoint], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    context.after(() => hostd.kill('SIGTERM'));
    let words = '';
    hostd.stderr.on('data', (chunk: Buffer) => {
      words += chunk.toString();
    });
    // The socket file exists before vgpu-hostd listens.
    for (let tries = 0; !words.includes('listening on'); tries += 1) {
      assert.ok(tries < 5_000 && hostd.exitCode === null, `vgpu-hostd does not listen: ${words}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const asked = options(built, { ask: true, environmentHost: endpoint });
    const { host, realGpu } = await inspect(effects(root), profile, asked);
    assert.deepEqual([host.endpoint, host.from], [endpoint, 'environment']);
    assert.equal(host.answer.kind, 'answers', JSON.stringify(host.answer));
    assert.ok(host.answer.kind === 'answers');
    assert.equal(host.answer.simulated, true);
    assert.match(host.answer.device, /\(simulated\)$/);
    assert.deepEqual(realGpu, { kind: 'none' });
    context.diagnostic(`the host answered within ${host.answer.milliseconds} ms`);
  });

  it('recognizes the built libraries as the shim', { skip: notBuilt }, async (context) => {
    const facts = await inspect(effects(tree(context, guest)), profile, options(built));
    assert.match(facts.shim.id, /^[0-9a-f]{16}$/);
    const loaded = await canLoad(
      { runner: spawnRunner(), contents: new ContentCache(), architecture: machine() },
      null,
      path.join(built, 'libcuda.so.1'),
    );
    assert.deepEqual(loaded, { kind: 'loadable' });
  });
});
