// A trace that is cut short, or fails, at any of its steps: the next recovery leaves nothing of it.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Event } from '../../../../agent/contracts/events.js';
import { nodeDisk } from '../../../../agent/install/apply/disk.js';
import { beginTrace, disarmTrace, forgetTrace, recoverTrace } from '../../../../agent/install/apply/trace.js';
import type { TracePlan } from '../../../../agent/install/plan/trace.js';
import { spawnRunner } from '../../../../agent/lib/run-command.js';
import { type FaultyDisk, faultyDisk, type Trouble } from './faulty-disk.js';
import { scratch } from './world.js';

const directory = '/run/systemd/system/ollama.service.d';
const plan: TracePlan = {
  unit: 'ollama.service',
  dropIn: { path: `${directory}/zzzz-vgpu-trace.conf`, content: '[Service]\n' },
  writer: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
};

class Machine {
  readonly root = mkdtempSync(path.join(scratch, 'vgpu-trace-'));
  reloads = 0;
  restarts = 0;
  /** The service runs with the tracer. */
  traced = false;
  restartFails = false;
  readonly events: Event[] = [];

  constructor(context: TestContext) {
    context.after(() => rmSync(this.root, { recursive: true }));
    for (const made of ['/run/vgpu-agent', '/run/systemd/system'])
      mkdirSync(this.root + made, { recursive: true });
  }

  disk(trouble: Trouble = { kind: 'none' }): FaultyDisk {
    return faultyDisk(nodeDisk(spawnRunner(), this.root), trouble);
  }

  effects(disk: FaultyDisk = this.disk()) {
    return {
      disk,
      manager: {
        reload: async () => {
          if (disk.isDead()) throw new Error('dead');
          this.reloads += 1;
        },
        restart: async () => {
          if (this.restartFails) throw new Error('it does not start');
          this.restarts += 1;
          this.traced = false;
          return 'done';
        },
        start: async () => 'skipped',
        stop: async () => 'skipped',
      },
      mappedUnder: async () => new Set(this.traced ? ['/opt/vgpu/versions/x/libvgpu-trace.so'] : []),
      restartTimeoutMs: 1000,
    };
  }

  /** Every file and directory below /run. */
  left(): readonly string[] {
    return readdirSync(`${this.root}/run`, { recursive: true, encoding: 'utf8' }).sort();
  }

  recover(): Promise<boolean> {
    return recoverTrace(this.effects(), (event) => this.events.push(event));
  }

  notes(): readonly string[] {
    return this.events.flatMap((event) => (event.kind === 'note' ? [event.text] : []));
  }
}

const empty = ['systemd', 'systemd/system', 'vgpu-agent'];

describe('a trace', () => {
  it('is a record, a file that the service may write, and a drop-in; and all of it goes', async (context) => {
    const machine = new Machine(context);
    const effects = machine.effects();
    await beginTrace(plan, effects);
    const file = `${machine.root}/run/vgpu-agent/trace/events`;
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.equal(readFileSync(`${machine.root}${plan.dropIn.path}`, 'utf8'), plan.dropIn.content);
    assert.equal(readFileSync(`${machine.root}/run/vgpu-agent/trace/unit`, 'utf8'), 'ollama.service\n');
    await disarmTrace(plan.unit, effects);
    await forgetTrace(effects);
    assert.deepEqual(machine.left(), empty);
    assert.equal(machine.reloads, 2);
  });

  it('for a user that is not known before gives every user write access, and none read access', async (context) => {
    const machine = new Machine(context);
    await beginTrace({ ...plan, writer: null }, machine.effects());
    assert.equal(statSync(`${machine.root}/run/vgpu-agent/trace/events`).mode & 0o777, 0o622);
    assert.equal(statSync(`${machine.root}/run/vgpu-agent/trace`).mode & 0o7777, 0o755, 'names are for root');
  });

  for (const errno of ['ENOSPC', 'EROFS'] as const) {
    it(`that cannot be begun (${errno}) says why, at every step, and can be taken back`, async (context) => {
      for (let at = 1; ; at += 1) {
        const machine = new Machine(context);
        const disk = machine.disk({ kind: 'fault', at, errno, lasting: false });
        const error = await beginTrace(plan, machine.effects(disk)).then(
          () => null,
          (thrown: unknown) => thrown,
        );
        if (error === null) {
          assert.equal(at, 7);
          return;
        }
        assert.match(
          String(error),
          new RegExp(`ollama.service cannot be traced: .*\\(${errno}\\).* not restarted`),
        );
        await disarmTrace(plan.unit, machine.effects());
        await forgetTrace(machine.effects());
        assert.deepEqual(machine.left(), empty, `step ${at}`);
      }
    });
  }

  it('that was killed at any step is found and removed completely', async (context) => {
    const whole = new Machine(context);
    const log = whole.disk();
    const all = whole.effects(log);
    await beginTrace(plan, all);
    await disarmTrace(plan.unit, all);
    await forgetTrace(all);
    const steps = log.log.length;
    assert.equal(steps, 11);
    for (let at = 1; at <= steps; at += 1) {
      const machine = new Machine(context);
      const effects = machine.effects(machine.disk({ kind: 'kill', at }));
      await assert.rejects(async () => {
        await beginTrace(plan, effects);
        await disarmTrace(plan.unit, effects);
        await forgetTrace(effects);
      });
      await machine.recover();
      assert.deepEqual(machine.left(), empty, `killed in ${log.log[at - 1]}`);
      assert.equal(await machine.recover(), false, 'once is enough');
      assert.equal(machine.restarts, 0, 'nothing ran with the tracer');
    }
  });

  it('that still runs is restarted, and that is reported; a failure too', async (context) => {
    const machine = new Machine(context);
    await beginTrace(plan, machine.effects());
    machine.traced = true;
    assert.equal(await machine.recover(), true);
    assert.equal(machine.restarts, 1);
    assert.match(
      machine.notes()[0] ?? '',
      /ollama\.service was interrupted; .*, and ollama\.service started again$/,
    );

    await beginTrace(plan, machine.effects());
    machine.traced = true;
    machine.restartFails = true;
    assert.equal(await machine.recover(), true);
    assert.match(machine.notes()[1] ?? '', /but: it does not start$/);
    assert.deepEqual(machine.left(), empty);
  });

  it('is not started, and not searched for, where another file is in its place', async (context) => {
    const machine = new Machine(context);
    writeFileSync(`${machine.root}/run/vgpu-agent/trace`, 'mine');
    assert.equal(await machine.recover(), false);
    await assert.rejects(beginTrace(plan, machine.effects()), /cannot be traced: .*EEXIST/);
    assert.equal(readFileSync(`${machine.root}/run/vgpu-agent/trace`, 'utf8'), 'mine');
    assert.equal(machine.reloads, 0);
  });

  it('a record without a unit is removed, and no path is made from it', async (context) => {
    for (const name of ['../../etc', 'a/b.service', '', '.service', 'x.socket', '..service']) {
      const machine = new Machine(context);
      mkdirSync(`${machine.root}/run/vgpu-agent/trace`);
      writeFileSync(`${machine.root}/run/vgpu-agent/trace/unit`, name);
      assert.equal(await machine.recover(), false);
      assert.deepEqual(machine.left(), empty, name);
    }
  });
});
