import assert from 'node:assert/strict';
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { describe, it } from 'node:test';
import { apply, recover, rollback, settle } from '../../../../agent/install/apply/apply.js';
import { readManifest } from '../../../../agent/install/apply/manifest.js';
import { agentConf } from '../../../../agent/lib/paths.js';
import { buildElf } from '../../guest/support.js';
import { bare, startingStates, ubuntu, upgrade, userDropIn } from './starting-states.js';
import { multiarch, ready, type World } from './world.js';

const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
const conf = '/etc/vgpu/guest.conf';

async function installed(state = bare): Promise<World> {
  const world = await state.make();
  await world.install();
  return world;
}

describe('changes by others since the install', () => {
  it('keeps an edited drop-in beside its place when it is taken away', async () => {
    const world = await installed();
    appendFileSync(world.root + dropIn, 'Environment=MINE=1\n');
    const edited = world.text(dropIn);
    const { plan } = await world.uninstall();
    assert.ok(plan.warnings.some((warning) => warning.code === 'edited-file'));
    assert.equal(world.text(`${dropIn}.vgpu-save`), edited);
    assert.equal(world.resolves(dropIn), 'absent');
    assert.ok(world.notes().includes('edited-file-kept'));
    assert.equal(world.environment().size, 0, 'systemd does not read what was kept');
    world.dispose();
  });

  it('writes an edited drop-in again on install, keeps the edit once, and never loses it', async () => {
    const world = await installed();
    for (let time = 0; time < 3; time += 1) {
      writeFileSync(world.root + dropIn, '[Service]\nEnvironment=MINE=1\n');
      await world.install();
    }
    assert.equal(world.text(`${dropIn}.vgpu-save`), '[Service]\nEnvironment=MINE=1\n');
    assert.equal(world.resolves(`${dropIn}.vgpu-save.1`), 'absent');
    assert.match(world.text(dropIn), /LD_PRELOAD/);
    await world.uninstall();
    assert.equal(world.resolves(dropIn), 'absent');
    world.dispose();
  });

  it('leaves a guest.conf alone that was edited without changing the host, and keeps it on uninstall', async () => {
    const world = await installed();
    appendFileSync(world.root + conf, '# a remark of mine\n');
    assert.deepEqual((await world.install()).plan.changes, []);
    await world.uninstall();
    assert.match(world.text(`${conf}.vgpu-save`), /remark of mine/);
    world.dispose();
  });

  it('leaves an edited agent.json for the next install, and takes one that nobody edited', async () => {
    for (const edit of ['', ' \n']) {
      const world = await bare.make();
      await world.install({ service: true });
      appendFileSync(world.root + agentConf, edit);
      const text = world.text(agentConf);
      await world.uninstall();
      assert.equal(world.resolves(agentConf), edit === '' ? 'absent' : agentConf);
      assert.equal(world.notes().includes('edited-file-stays'), edit !== '');
      if (edit !== '') {
        const { plan } = await world.install({ service: true });
        assert.equal(
          plan.changes.find((change) => 'path' in change && change.path === agentConf),
          undefined,
        );
        assert.equal(world.text(agentConf), text);
      }
      world.dispose();
    }
  });

  it('leaves a link that points elsewhere now, and says so', async () => {
    const world = await installed();
    const link = `${world.root}${multiarch}/libcuda.so.1`;
    rmSync(link);
    symlinkSync('/opt/somebody/libcuda.so.1', link);
    await world.uninstall();
    assert.equal(
      world
        .listing()
        .some((line) => line.includes(`${multiarch}/libcuda.so.1 -> /opt/somebody/libcuda.so.1`)),
      true,
    );
    assert.ok(world.notes().includes('no-longer-ours'));
    world.dispose();
  });

  it('does not lose the file of before when a stranger took the place of our link', async () => {
    const state = startingStates[2];
    assert.ok(state);
    const world = await state.make();
    const former = readFileSync(`${world.root}${multiarch}/libnvidia-ml.so.1`);
    await world.install();
    const link = `${world.root}${multiarch}/libnvidia-ml.so.1`;
    rmSync(link);
    symlinkSync('/opt/somebody/libnvidia-ml.so.1', link);
    await world.uninstall();
    assert.deepEqual(readFileSync(`${link}.vgpu-save`), former);
    world.dispose();
  });

  it('gives back a file that a package put there between two installs', async () => {
    const world = await installed();
    const link = `${world.root}${multiarch}/libcuda.so.1`;
    rmSync(link);
    writeFileSync(link, buildElf({ soname: 'libcuda.so.1', tail: 'put there later' }));
    await world.install();
    assert.match(world.resolves(`${multiarch}/libcuda.so.1`), /^\/opt\/vgpu\//);
    await world.uninstall();
    assert.match(readFileSync(link, 'latin1'), /put there later/);
    world.dispose();
  });

  it('restores the former file when our link was removed', async () => {
    const world = await installed(ubuntu);
    rmSync(`${world.root}${multiarch}/libcuda.so.1`);
    await world.uninstall();
    assert.equal(world.resolves(`${multiarch}/libcuda.so.1`), `${multiarch}/libcuda.so.550.54.14`);
    world.dispose();
  });

  it('keeps installed directories that have files of other programs', async () => {
    const world = await installed();
    writeFileSync(`${world.root}/etc/vgpu/notes.txt`, 'mine');
    writeFileSync(`${world.root}/opt/vgpu/notes.txt`, 'mine');
    await world.uninstall();
    assert.equal(world.text('/etc/vgpu/notes.txt'), 'mine');
    assert.equal(world.text('/opt/vgpu/notes.txt'), 'mine');
    assert.equal(world.resolves('/opt/vgpu/versions'), 'absent');
    assert.equal(world.notes().filter((code) => code === 'directory-kept').length, 2);
    world.dispose();
  });

  it('repairs files of the store that were changed, without a moment without them', async () => {
    const world = await installed();
    const { storeId } = (await readManifest(world.disk())) ?? { storeId: '' };
    const library = `${world.root}/opt/vgpu/versions/${storeId}/libcuda.so.1`;
    rmSync(library);
    writeFileSync(library, 'broken');
    chmodSync(library, 0o600);
    const { plan } = await world.install();
    assert.deepEqual(
      plan.changes.map((change) => change.kind),
      ['store', 'ldconfig', 'restart'],
    );
    assert.deepEqual(world.problemsOfStart(), []);
    assert.deepEqual((await world.install()).plan.changes, []);
    world.dispose();
  });
});

describe('existing files that look like those of vgpu-agent', () => {
  it('does not adopt files that existed before: an empty /opt/vgpu, a guest.conf with the same text', async () => {
    const model = await installed();
    const world = await bare.make();
    mkdirSync(`${world.root}/opt/vgpu`);
    mkdirSync(`${world.root}/etc/vgpu`);
    writeFileSync(world.root + conf, model.text(conf));
    const before = world.listing();
    await world.install();
    assert.deepEqual((await world.install()).plan.changes, []);
    await world.uninstall();
    assert.deepEqual(world.listing(), before);
    model.dispose();
    world.dispose();
  });
});

describe('a lost manifest', () => {
  it('is written again by an install that changes nothing else, and then everything can be taken away', async () => {
    const world = await bare.make();
    const before = world.listing();
    await world.install();
    rmSync(`${world.root}/var/lib/vgpu-agent`, { recursive: true });
    const warned = await world.uninstall();
    assert.deepEqual(
      warned.plan.warnings.map((warning) => warning.code),
      ['unowned-traces'],
    );
    const { plan, applied } = await world.install();
    assert.ok(
      plan.changes.every((change) => ['adopt', 'store', 'restart', 'ldconfig'].includes(change.kind)),
    );
    assert.ok(plan.changes.some((change) => change.kind === 'adopt' && change.path.endsWith('libcuda.so.1')));
    assert.ok(applied.changes > 0);
    assert.deepEqual((await world.install()).plan.changes, []);
    await world.uninstall();
    // Directories have no owner now: they may have been there before.
    const left = world.listing().filter((line) => !before.includes(line));
    assert.ok(
      left.every((line) => line.includes('/ 755 ')),
      left.join('\n'),
    );
    world.dispose();
  });

  it('is not guessed at when it is damaged', async () => {
    const world = await installed();
    const file = `${world.root}/var/lib/vgpu-agent/manifest.json`;
    writeFileSync(file, readFileSync(file, 'utf8').replace('"schema": 2', '"schema": 7'));
    await assert.rejects(world.install(), { kind: 'failed', message: /\/schema .*7/ });
    writeFileSync(file, 'nonsense');
    await assert.rejects(world.install(), { kind: 'failed', message: /not JSON/ });
    world.dispose();
  });
});

describe('a damaged log', () => {
  it('stops everything and says where to look', async () => {
    const world = await bare.make();
    await assert.rejects(world.install({}, world.disk({ kind: 'kill', at: 30 })));
    const file = `${world.root}/var/lib/vgpu-agent/transaction.jsonl`;
    const lines = readFileSync(file, 'utf8').split('\n');
    writeFileSync(file, ['garbage', ...lines.slice(1)].join('\n'));
    await assert.rejects(world.install(), { kind: 'failed', message: /line 1/, path: /transaction\.jsonl$/ });
    world.dispose();
  });

  it('is refused with an invalid record, and no part of it is carried out', async () => {
    const world = await bare.make();
    await assert.rejects(world.install({}, world.disk({ kind: 'kill', at: 60 })));
    const file = `${world.root}/var/lib/vgpu-agent/transaction.jsonl`;
    const whole = readFileSync(file, 'utf8');
    const lines = whole.split('\n');
    const at = lines.findIndex((line) => line.includes('"type":"path"'));
    assert.ok(at > 0, whole);
    for (const [line, changed, problem] of [
      [0, { id: '../../etc' }, /\/id must match pattern/],
      [0, { manifest: { items: [{ kind: 'file', path: 'etc/passwd' }] } }, /\/manifest\/items\/0 must have/],
      [at, { backup: '../shadow' }, /\/backup must match pattern .*, but is "\.\.\/shadow"/],
      [at, { path: 'relative' }, /\/path must match pattern/],
      [at, { from: { kind: 'unheard-of' } }, /\/from .*unheard-of/],
      [at, { to: null }, /\/to must be object, but is null/],
      [at, { type: 'else' }, /"else"/],
    ] as const) {
      const record = { ...JSON.parse(lines[line] ?? ''), ...changed };
      writeFileSync(file, lines.with(line, JSON.stringify(record)).join('\n'));
      const before = world.listing();
      await assert.rejects(recover(world.effects(), world.emit), (error: Error) => {
        assert.match(error.message, new RegExp(`^line ${line + 1} of `));
        assert.match(error.message, problem);
        return true;
      });
      assert.deepEqual(world.listing(), before);
    }
    writeFileSync(file, whole);
    assert.equal((await recover(world.effects(), world.emit)).kind, 'rolled-back');
    world.dispose();
  });

  it('began nothing when not even its first record is whole', async () => {
    const world = await bare.make();
    const before = world.listing();
    mkdirSync(`${world.root}/var/lib/vgpu-agent/backup`, { recursive: true });
    writeFileSync(`${world.root}/var/lib/vgpu-agent/transaction.jsonl`, '{"type":"beg');
    assert.deepEqual(await recover(world.effects(), world.emit), { kind: 'nothing' });
    assert.deepEqual(world.listing(), before);
    world.dispose();
  });
});

describe('taking back after a failed confirmation', () => {
  for (const state of [bare, userDropIn, upgrade]) {
    it(`leaves ${state.name} as it was, and restarts the consumer`, async () => {
      const world = await state.make();
      const before = world.listing();
      const { restarts } = world;
      const plan = ready(await world.planInstall());
      const applied = await apply(plan, world.effects(), world.emit, { keepUndo: true });
      assert.equal(applied.undoKept, true);
      assert.equal(world.restarts, restarts + 1);
      const outcome = await rollback(world.effects(), world.emit, plan.unit);
      assert.deepEqual(outcome, { kind: 'restarted', job: 'done' });
      assert.deepEqual(world.listing(), before);
      assert.deepEqual(world.problemsOfStart(), []);
      await assert.rejects(rollback(world.effects(), world.emit, null), { kind: 'internal' });
      world.dispose();
    });
  }

  it('continues to undo after it was killed in the middle', async () => {
    const start = await upgrade.make();
    const before = start.listing();
    const plan = ready(await start.planInstall());
    await apply(plan, start.effects(), start.emit, { keepUndo: true });
    const whole = start.clone();
    const disk = whole.disk();
    await rollback(whole.effects(disk), whole.emit, null);
    // The first mutation writes down that it begins; killed in there, the install stands.
    for (let at = 2; at <= disk.log.length; at += 1) {
      const world = start.clone();
      await assert.rejects(rollback(world.effects(world.disk({ kind: 'kill', at })), world.emit, null));
      await recover(world.effects(), world.emit);
      assert.deepEqual(world.listing(), before, `killed at ${at}`);
      world.dispose();
    }
    whole.dispose();
    start.dispose();
  });

  it('keeps the new state when it is settled, or when the process dies while it is being confirmed', async () => {
    for (const end of ['settle', 'recover'] as const) {
      const world = await upgrade.make();
      const plan = ready(await world.planInstall());
      await apply(plan, world.effects(), world.emit, { keepUndo: true });
      if (end === 'settle') await settle(world.effects(), world.emit);
      else
        assert.deepEqual(await recover(world.effects(), world.emit), { kind: 'finished', intent: 'install' });
      assert.deepEqual((await world.install()).plan.changes, []);
      const facts = await world.facts();
      assert.deepEqual(
        facts.store.versions.map((version) => version.id),
        [plan.storeId],
      );
      world.dispose();
    }
  });
});

describe('the restart', () => {
  it('undoes nothing when the service does not start: the verdict judges that', async () => {
    const world = await bare.make();
    world.restartJob = () => 'failed';
    const { applied } = await world.install();
    assert.deepEqual(applied.restart, { kind: 'restarted', job: 'failed' });
    assert.deepEqual((await world.install()).plan.changes, []);
    world.dispose();
  });

  it('is reported when systemd does not answer', async () => {
    const world = await bare.make();
    world.restartJob = () => {
      throw new Error('no reply within 1 s');
    };
    const { applied } = await world.install();
    assert.deepEqual(applied.restart, { kind: 'failed', message: 'no reply within 1 s' });
    world.dispose();
  });

  it('is all that is left when the run before died between the commit and it', async () => {
    const world = await bare.make();
    await world.install({ restart: false });
    const { plan } = await world.install();
    assert.deepEqual(
      plan.changes.map((change) => [change.kind, change.reason]),
      [['restart', 'process 4242 (ollama) was started before LD_LIBRARY_PATH was set for it']],
    );
    assert.deepEqual((await world.install()).plan.changes, []);
    world.dispose();
  });
});

describe('a plan that no longer fits', () => {
  it('is not carried out', async () => {
    const world = await bare.make();
    const plan = ready(await world.planInstall());
    const file = `${world.root}${multiarch}/libcuda.so.1`;
    writeFileSync(file, 'somebody was quicker');
    const before = world.listing();
    await assert.rejects(apply(plan, world.effects(), world.emit), {
      kind: 'rolled-back',
      message: /libcuda\.so\.1 changed after the plan was made; everything was undone/,
    });
    assert.deepEqual(world.listing(), before);
    world.dispose();
  });
});
