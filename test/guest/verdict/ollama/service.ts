// With the service it comes back to the GPU by itself, whenever the host was lost, and is on it after a reboot.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { long } from '../../support/consumer.js';
import { documentOf } from '../../support/installed.js';
import { until } from '../../support/process.js';
import {
  answering,
  generate,
  type LoadMoment,
  unload,
  verdictNow,
  whileLoading,
} from '../../support/real-ollama.js';
import { tell } from '../../support/scenario.js';
import { generous, settledOnGpu } from '../../support/service.js';
import type { Scene } from './scene.js';

/** The fault of the host while a model is loaded, and its moment; `quick`: without --long too. */
const losses: readonly {
  readonly what: 'killed' | 'frozen';
  readonly moment: LoadMoment;
  readonly quick?: true;
}[] = [
  { what: 'killed', moment: 'looks', quick: true },
  { what: 'killed', moment: 'loads' },
  { what: 'frozen', moment: 'looks' },
  { what: 'frozen', moment: 'loads' },
];

export async function serviceBringsBack(t: TestContext, scene: Scene): Promise<void> {
  const { guest, learnt, same, hostWith } = scene;
  const { hosts } = guest;
  /** The service sees to it: no model is unloaded by hand. */
  const onGpuAgain = async (name: string): Promise<void> => {
    await until(`${name} is on the GPU again`, 120_000, async () => {
      // No answer: the service restarts it at this moment.
      if ((await generate(guest, name, 'one two')).status !== 200) return undefined;
      const { document } = await tell(guest, 'verify');
      return document.verdict?.mode === 'gpu' ? true : undefined;
    });
    await settledOnGpu(guest);
    await learnt(name);
    await verdictNow(guest, { mode: 'gpu' });
  };

  await t.test('with the service: the host is killed under a loaded model', async () => {
    await hostWith('allow unix sessions=8');
    await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(generous));
    documentOf(await guest.agent('install', '--service', '--yes', '--json'));
    await settledOnGpu(guest);
    await learnt('one');
    await hosts.stop('SIGKILL');
    assert.equal((await generate(guest, 'one', 'one two')).status, 500);
    await hosts.start();
    await settledOnGpu(guest);
    await learnt('one');
    await verdictNow(guest, { mode: 'gpu' });
  });

  for (const { what, moment, quick } of losses) {
    await t.test(
      `with the service: the host is ${what} while a model is loaded (${moment})`,
      { skip: quick !== true && !long && 'takes a minute: --long' },
      async () => {
        await unload(guest, 'two');
        const killed = what === 'killed';
        await whileLoading(guest, 'two', moment, () => (killed ? hosts.stop('SIGKILL') : hosts.freeze()));
        await (killed ? hosts.start() : hosts.thaw());
        await onGpuAgain('two');
      },
    );
  }

  await t.test('with the service: on the GPU after a reboot', async () => {
    await guest.reboot();
    await answering(guest);
    await settledOnGpu(guest);
    await same();
    await verdictNow(guest, { mode: 'gpu' });
  });
}
