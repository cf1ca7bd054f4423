import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { bare, debianAuto, startingStates, upgrade } from './starting-states.js';
import { multiarch, type World } from './world.js';

/** The conditions that every machine meets after an install. */
function assertInstalled(world: World, id: string): void {
  const library = `/opt/vgpu/versions/${id}/libcuda.so.1`;
  assert.equal(world.resolves('/opt/vgpu/current/libcuda.so'), library);
  for (const name of ['libcuda.so', 'libcuda.so.1'])
    assert.equal(world.resolves(`${multiarch}/${name}`), library);
  assert.equal(world.resolves(`${multiarch}/libnvidia-ml.so.1`), library.replace('libcuda', 'libnvidia-ml'));
  const preload = world.environment().get('LD_PRELOAD') ?? '';
  assert.ok(
    preload.startsWith('/opt/vgpu/current/libcuda.so.1:/opt/vgpu/current/libnvidia-ml.so.1'),
    preload,
  );
  assert.match(world.environment().get('LD_LIBRARY_PATH') ?? '', /^\/opt\/vgpu\/current(:|$)/);
  assert.equal(world.consumer()?.libcuda, library);
  assert.deepEqual(world.problemsOfStart(), []);
}

describe('install, install again, uninstall', () => {
  for (const state of [...startingStates, upgrade]) {
    for (const realTools of [false, true]) {
      const tools = realTools ? ' (cp and ldconfig for real)' : '';
      it(`gives back exactly ${state.name}${tools}`, async () => {
        const world = await state.make({ realTools });
        try {
          const before = state === upgrade ? null : world.listing();
          const { plan, applied } = await world.install();
          assert.deepEqual(applied.restart, { kind: 'restarted', job: 'done' });
          const announced = world.events.findLast(
            (event) => event.kind === 'phase' && event.phase === 'apply',
          );
          assert.deepEqual(Reflect.get(announced ?? {}, 'text'), `${plan.changes.length} changes`);
          assert.equal(applied.changes, plan.changes.length);
          assertInstalled(world, plan.storeId);

          const between = world.listing();
          const { restarts, reloads } = world;
          const again = await world.install();
          assert.deepEqual(again.plan.changes, []);
          assert.deepEqual(again.recovery, { kind: 'nothing' });
          assert.deepEqual(world.listing(), between);
          assert.deepEqual([world.restarts, world.reloads], [restarts, reloads]);

          await world.uninstall();
          assert.deepEqual(world.consumer()?.libcuda, null);
          assert.deepEqual(world.problemsOfStart(), []);
          const clean = await bare.make();
          assert.deepEqual(world.listing(), before ?? withoutTimes(world, clean));
          clean.dispose();
          const nothing = await world.uninstall();
          assert.deepEqual(nothing.plan.changes, []);
        } finally {
          world.dispose();
        }
      });
    }
  }
});

it('a name for linkers that is missing comes back without a restart; the one that programs load does not', async () => {
  const world = await bare.make();
  try {
    await world.install();
    const missing = async (name: string): Promise<readonly string[]> => {
      rmSync(path.join(world.root, multiarch, name));
      const { plan } = await world.install();
      return plan.changes
        .map(({ kind }) => kind)
        .filter((kind) => kind === 'write-link' || kind === 'restart');
    };
    assert.deepEqual(await missing('libcuda.so'), ['write-link']);
    assert.deepEqual(await missing('libcuda.so.1'), ['write-link', 'restart']);
  } finally {
    world.dispose();
  }
});

/** The upgrade's world was bare once: compared with a bare one made now, times apart. */
function withoutTimes(world: World, clean: World): readonly string[] {
  const strip = (line: string): string => line.replace(/ \d{18,19}/, '');
  assert.deepEqual(world.listing().map(strip), clean.listing().map(strip));
  return world.listing();
}

describe('an upgrade', () => {
  it('switches one link, restarts, and removes the version that no process uses any more', async () => {
    const world = await upgrade.make();
    try {
      const { plan } = await world.install();
      assert.deepEqual(
        plan.changes.map((change) => change.kind),
        ['store', 'write-link', 'ldconfig', 'remove-store', 'restart'],
      );
      const facts = await world.facts();
      assert.deepEqual(
        facts.store.versions.map((version) => version.id),
        [plan.storeId],
      );
      assert.equal(
        facts.manifest?.items.some(
          (item) => 'path' in item && item.path.includes('versions/') && !item.path.includes(plan.storeId),
        ),
        false,
      );
    } finally {
      world.dispose();
    }
  });

  it('keeps the old version while a process maps it', async () => {
    const world = await upgrade.make();
    try {
      const old = world.consumer()?.libcuda ?? '';
      const { plan } = await world.install({ restart: false });
      const facts = await world.facts();
      assert.equal(facts.store.versions.length, 2);
      assert.equal(world.resolves(old), old);
      assert.ok(world.notes().includes('version-in-use'));
      const later = await world.install();
      assert.deepEqual(
        later.plan.changes.map((change) => change.kind),
        ['restart'],
      );
      assert.match(String(later.plan.changes[0]?.reason), /still uses the former version/);
      await world.uninstall();
      assert.equal(world.resolves(old), 'absent');
      assert.notEqual(plan.storeId, '');
    } finally {
      world.dispose();
    }
  });
});

describe('packages that come and go', () => {
  it('keeps Debian’s choice and every slave when the driver is configured again', async () => {
    const world = await debianAuto.make();
    try {
      const before = world.listing();
      await world.install();
      assert.equal(world.resolves('/usr/bin/nvidia-smi'), '/usr/lib/nvidia/current/nvidia-smi');
      world.alternatives('--auto', 'nvidia');
      assert.match(world.resolves(`${multiarch}/libcuda.so.1`), /^\/opt\/vgpu\/versions\//);
      await world.uninstall();
      assert.deepEqual(world.listing(), before);
    } finally {
      world.dispose();
    }
  });

  it('sees that a group was switched away, and switches it back', async () => {
    const world = await debianAuto.make();
    try {
      await world.install();
      world.alternatives('--set', 'nvidia', '/usr/lib/nvidia/legacy');
      const { plan } = await world.install();
      assert.deepEqual(
        plan.changes.map((change) => change.kind),
        ['alternative', 'ldconfig', 'restart'],
      );
      assert.match(world.resolves(`${multiarch}/libcuda.so.1`), /^\/opt\/vgpu\/versions\//);
      // Uninstall goes back to the choice that was made by hand meanwhile.
      await world.uninstall();
      assert.equal(
        world.resolves(`${multiarch}/libcuda.so.1`),
        '/usr/lib/x86_64-linux-gnu/nvidia/legacy/libcuda.so.1',
      );
    } finally {
      world.dispose();
    }
  });
});
