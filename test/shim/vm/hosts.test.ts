/**
 * The service moves a consumer between two hosts with vsock addresses. A qemu has one vsock device and so one host, so both
 * hosts run in the consumer's machine, at two ports of vsock's loopback. VGPU_TEST_LONG=1 only.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { long, whyNoStandIn } from '../../guest/support/consumer.js';
import { at } from '../../guest/support/installed.js';
import { whyNoNode, whyNoRoot } from '../../guest/support/roots.js';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, scratchDirectory } from '../shim_host.js';
import { type DebianMachine, NODE_MAJOR, startDebian } from './debian_machine.js';
import type { ImageFile } from './image.js';
import { withLibraries } from './initrd.js';
import { whyNoMachine } from './machine.js';

const skip =
  whyNoMachine ||
  whyNoRoot('trixie') ||
  whyNoNode(NODE_MAJOR) ||
  whyNoStandIn() ||
  (process.getuid?.() === 0 ? false : 'needs root') ||
  (long ? false : 'minutes of a processor: VGPU_TEST_LONG=1');

const [first, second] = [
  { unit: 'first', address: 'vsock:1:14833', profile: 'h200', device: 'H200' },
  { unit: 'second', address: 'vsock:1:14834', profile: 'l40s', device: 'L40S' },
] as const;
type Named = typeof first | typeof second;

/** The stand-in for Ollama, and the script that installs it. */
const consumer = ['scripts/lib', 'build/consumer'].flatMap((directory) =>
  readdirSync(path.join(ROOT, directory), { withFileTypes: true })
    .filter((file) => file.isFile())
    .map(
      (file): ImageFile => ({
        name: `test/${directory}/${file.name}`,
        content: readFileSync(path.join(ROOT, directory, file.name)),
        executable: true,
      }),
    ),
);
/** A library that vgpu-hostd needs and the root does not have. */
const jansson = withLibraries(builtFile('vgpu-hostd'))
  .filter((file) => file.includes('libjansson'))
  .map((file): ImageFile => ({ name: file.slice(1), content: readFileSync(file) }));
const config = {
  schema: 1,
  restart: { perHour: 1000, minimumSeconds: 0 },
  hosts: { leaveAfterSeconds: 1 },
};

describe('a list of two hosts with vsock addresses', { skip }, () => {
  const scratch = scratchDirectory();
  let machine: DebianMachine;
  const startHost = ({ unit, address, profile }: Named): Promise<string> =>
    machine.must(
      `systemd-run --quiet --unit=${unit} /usr/lib/vgpu-agent/build/shim/vgpu-hostd --device software --profile ${profile} \
         --listen vsock:${address.split(':')[2]} --control /run/${unit}.control --config /etc/vgpu/hostd.conf`,
    );
  /** Waits until the service is settled with this host and the verdict is GPU on its device. */
  const untilUsed = async ({ address, device }: Named): Promise<void> => {
    let document: unknown = null;
    for (let turn = 0; turn < 60; turn += 1) {
      const { said, code } = await machine.run(
        'busctl --json=short get-property org.vgpu.Agent1 /org/vgpu/Agent1 org.vgpu.Agent1 Status',
      );
      document = code === 0 ? JSON.parse(String(at(JSON.parse(said), 'data'))) : said;
      const used = [at(document, 'host', 'hosts')].flat().find((one) => at(one, 'inUse') === true);
      if (
        at(document, 'service', 'state') === 'settled' &&
        at(document, 'verdict', 'mode') === 'gpu' &&
        String(at(document, 'verdict', 'devices', 0, 'name')).includes(device) &&
        at(used, 'endpoint') === address
      )
        return;
      await machine.must('sleep 2');
    }
    const journal = await machine.must('journalctl --no-pager -o cat -u vgpu-agent -u ollama | tail -n 60');
    assert.fail(`not on the GPU at ${address}: ${JSON.stringify(document, null, 1)}\n${journal}`);
  };
  const starts = async (): Promise<number> =>
    Number(await machine.must("journalctl -u ollama -o cat --no-pager | grep -c '^Started ollama'"));

  before(async () => {
    machine = await startDebian(scratch.path, {
      root: 'trixie',
      memory: 1024,
      disk: 2048,
      modules: ['vsock_loopback'],
      files: [
        ...consumer,
        ...jansson,
        { name: 'etc/vgpu-agent/agent.json', content: Buffer.from(JSON.stringify(config)) },
        { name: 'etc/vgpu/hostd.conf', content: Buffer.from('allow vsock cid=1 sessions=16\n') },
      ],
    });
    for (const host of [first, second]) await startHost(host);
    // The script refuses a machine that is not marked as a test machine.
    await machine.must(
      'mkdir -p /run/host && touch /run/host/container-manager && /test/scripts/lib/install-consumer 3',
    );
  });
  after(() => {
    if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined) process.stderr.write(machine.console());
    machine.stop();
    scratch.remove();
  });

  it('install uses the first host', async () => {
    const said = await machine.must(
      `vgpu-agent install --host ${first.address} --host ${second.address} --service --yes`,
    );
    assert.match(said, /GPU \(simulated\)/);
    await untilUsed(first);
  });

  for (const [used, other] of [
    [first, second],
    [second, first],
  ] as const)
    it(`restarts once and gets a GPU verdict with the other host's device when the ${used.unit} host is killed`, async () => {
      const before = await starts();
      await machine.must(`systemctl kill --signal=KILL ${used.unit}`);
      await untilUsed(other);
      assert.equal(await starts(), before + 1);
      assert.match(await machine.must('cat /run/vgpu-agent/host'), new RegExp(`^${other.address}\n$`));
      await machine.must(`systemctl reset-failed ${used.unit} || true`);
      await startHost(used);
    });
});
