// Containers by a real podman in a Debian 13 guest: a real Ollama in a quadlet, containers that ask for the device by
// themselves, one of a user who is not root. Images are root filesystems of scripts/test-roots: nothing is pulled.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { ollamaServer, whyNoOllama } from '../support/consumer.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, differences, documentOf, freshCache, uninstall } from '../support/installed.js';
import { until } from '../support/process.js';
import { whyNoLlama } from '../support/real-llama.js';
import { whyNoRoot } from '../support/roots.js';
import { assertVerdict, evidence, installedGpu, tell } from '../support/scenario.js';
import { generous, said } from '../support/service.js';
import { assertAnswersOnGpu, containerGuest, ollamaVolumes } from './ollama.js';
import { prepare, quadlet } from './podman-guest.js';
import { podmanOfUser, probeOf } from './users.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoRoot('podman-trixie') || whyNoRoot('bookworm');
const spec = '/etc/cdi/vgpu.json';
const nvidiaSpec = '/etc/cdi/vgpu-nvidia.json';

const ollamaQuadlet = quadlet(`${ollamaVolumes.map((volume) => `Volume=${volume}`).join('\n')}
Environment=OLLAMA_HOST=0.0.0.0:11434 HOME=/root
Exec=/usr/local/bin/ollama serve
PublishPort=11434:11434`);

describe('containers', { skip }, () => {
  test('podman: from a quadlet on the CPU to the GPU, kept there, and back', async (t) => {
    const server = ollamaServer();
    const guest = await containerGuest('podman-trixie', t);
    await guest.must('bash', '-c', prepare);
    await guest.write(
      '/etc/containers/systemd/worker.container',
      quadlet('Exec=sleep infinity\nPodmanArgs=--stop-timeout=1'),
    );
    if (server !== undefined) await guest.write('/etc/containers/systemd/ollama.container', ollamaQuadlet);
    await guest.must('systemctl', 'daemon-reload');
    await guest.must('systemctl', 'start', 'worker', ...(server === undefined ? [] : ['ollama']));
    await freshCache(guest);
    const before = await guest.listing(['/etc', '/opt', '/usr']);

    await t.test('a container that does nothing is no GPU, although the probe computes in it', async () => {
      const installed = await tell(guest, 'install', '--yes', '--unit', 'worker', '--timeout', '3');
      await assertVerdict(guest, installed, { mode: 'undetermined', reason: 'no-session' });
      const verified = await tell(guest, 'verify', '--unit', 'worker', '--compute');
      const verdict = await assertVerdict(guest, verified, { mode: 'undetermined', reason: 'no-session' });
      assert.match(evidence(verdict, 'compute').join(), /each the same as on the CPU/);
      assert.match(evidence(verdict, 'probe').join(), /through \/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1/);
      // Neither podman's monitor nor the probe is the consumer; what crun is before it becomes the probe may be seen.
      assert.doesNotMatch(
        evidence(verdict, 'maps').join('\n'),
        /conmon|vgpu-probe|the libcuda of vgpu-agent/,
      );
    });

    await t.test('the files are what the command prints, and list names the devices', async () => {
      const generated = await guest.agent('cdi', 'generate');
      assert.equal(generated.stdout, await guest.read(spec));
      assertDocument('cdi-generate', generated.stdout);
      assertDocument('cdi-generate', await guest.read(nvidiaSpec));
      const listed = await guest.agent('cdi', 'list', '--json');
      assertDocument('cdi-list', listed.stdout);
      assert.match(
        listed.stdout,
        /"vgpu\.org\/gpu=all"[\s\S]*"vgpu\.org\/gpu=0"[\s\S]*"nvidia\.com\/gpu=all"/,
      );
      const whole = await guest.read(spec);
      await guest.write(spec, '{"kind":"vgpu.org/gpu","devices":{}}');
      const broken = await guest.agent('cdi', 'list');
      assert.match(broken.stdout, /vgpu\.json offers no device: sudo vgpu-agent install writes it again/);
      assertDocument('cdi-list', (await guest.agent('cdi', 'list', '--json')).stdout);
      await guest.write(spec, whole);
    });

    await t.test('any container that asks for a device computes', async () => {
      const probe = [await probeOf(guest), '--json', '--compute'];
      const run = ['run', '--rm', '--network=host', '--device', 'nvidia.com/gpu=0', '--rootfs'];
      const mine = await guest.run('podman', ...run, '/run/image:O', ...probe);
      assert.equal(at(documentOf(mine), 'compute', 'ok'), true, mine.stdout);
    });

    await t.test('a compose file with what cdi list prints computes by podman-compose', async () => {
      await guest.must('bash', '-c', 'tar -C /home/person/root -c . | podman import - small:1');
      const { stdout } = await guest.agent('cdi', 'list');
      const lines = /compose file of podman-compose, in the service:\n((?: .*\n)+)/.exec(stdout)?.[1] ?? '';
      const service = `    image: localhost/small:1\n    network_mode: host\n    command: ${await probeOf(guest)} --json --compute\n`;
      const text = `services:\n  asks:\n${service}${lines.replaceAll(/^/gm, '  ')}\n`;
      await guest.write('/srv/compose.yaml', text);
      const asked = await guest.run('podman-compose', '-f', '/srv/compose.yaml', 'run', '--rm', 'asks');
      // It prints the pod's ID first.
      const document = { ...asked, stdout: asked.stdout.slice(asked.stdout.indexOf('{')) };
      assert.equal(at(documentOf(document), 'compute', 'ok'), true, `${text}${asked.stdout}${asked.stderr}`);
    });

    await podmanOfUser(t, guest);

    await t.test(
      'a real Ollama in a quadlet runs on the GPU, by all that is known',
      { skip: whyNoOllama() },
      async () => {
        await installedGpu(guest, '--profile', 'ollama');
        await assertAnswersOnGpu(guest, 'podman', 'systemd-ollama');
      },
    );

    await t.test(
      "Debian's llama-server in a container: on the GPU by the host's word alone",
      { skip: whyNoLlama() },
      async () => {
        await guest.write(
          '/etc/containers/systemd/llama-server.container',
          `[Container]
Rootfs=/run/llama:O
Volume=/opt/models:/opt/models:ro
PublishPort=8080:8080
Exec=/usr/bin/llama-server --ctx-size 256 --parallel 1 --host 0.0.0.0 --port 8080 --model /opt/models/one.gguf
[Service]
TimeoutStopSec=2
`,
        );
        await guest.must('systemctl', 'daemon-reload');
        await guest.must('systemctl', 'start', 'llama-server');
        const url = 'http://127.0.0.1:8080';
        const inside = ['podman', 'exec', 'systemd-llama-server', 'curl', '-fsS', '-m', '30'] as const;
        const says = async (): Promise<string> => {
          await until('llama-server answers', 60_000, async () =>
            (await guest.run(...inside, `${url}/health`)).code === 0 ? true : undefined,
          );
          const body = JSON.stringify({ prompt: 'one two', n_predict: 5, temperature: 0 });
          const answer = await guest.must(...inside, '-d', body, `${url}/completion`);
          return String(at(JSON.parse(answer), 'content'));
        };
        const onCpu = await says();
        await installedGpu(guest, '--profile', 'llama-server');
        assert.equal(await says(), onCpu);
        const verified = await tell(guest, 'verify', '--profile', 'llama-server');
        const verdict = await assertVerdict(guest, verified, { mode: 'gpu' });
        assert.match(
          evidence(verdict, 'sessions').join(),
          /^llama-server \(process \d+\) .* [1-9]\d* kernels? launched$/,
        );
        assert.match(
          evidence(verdict, 'maps').join('\n'),
          /^the main process \(llama-server\) has the libcuda of vgpu-agent/m,
        );
        await uninstall(guest, '--profile', 'llama-server');
        await guest.must('systemctl', 'stop', 'llama-server');
        await guest.must('rm', '/etc/containers/systemd/llama-server.container');
      },
    );

    await t.test('again changes and restarts nothing', async () => {
      const start = await guest.invocationId('worker');
      const again = documentOf(
        await guest.agent('install', '--yes', '--json', '--unit', 'worker', '--timeout', '3'),
        4,
      );
      assert.equal(at(again, 'changed'), 0, JSON.stringify(again));
      assert.equal(await guest.invocationId('worker'), start);
    });

    await t.test('nvidia.com/gpu is left to another file when one comes', async () => {
      const start = await guest.invocationId('worker');
      await guest.write('/run/cdi/nvidia.yaml', 'cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n');
      await guest.agent('install', '--yes', '--unit', 'worker', '--timeout', '3');
      assert.equal(await guest.exists(nvidiaSpec), false);
      assert.equal(await guest.invocationId('worker'), start, 'it has the device by our own name');
      await guest.must('rm', '-r', '/run/cdi');
    });

    await t.test('the service puts back the file and the drop-in', async () => {
      await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(generous));
      await guest.agent('install', '--service', '--yes', '--unit', 'worker', '--timeout', '3');
      const dropIn = '/etc/containers/systemd/worker.container.d/50-vgpu.conf';
      const content = [await guest.read(spec), await guest.read(dropIn)];
      await guest.must('rm', spec, dropIn);
      await until('both are back', 60_000, async () =>
        (await guest.exists(spec)) && (await guest.exists(dropIn)) ? true : undefined,
      ).catch(async (error: unknown) => assert.fail(`${String(error)}\n${await said(guest)}`));
      assert.deepEqual([await guest.read(spec), await guest.read(dropIn)], content);
    });

    await t.test('uninstall gives everything back, and the container runs without the device', async () => {
      await uninstall(guest, '--all');
      await guest.must('rm', '-rf', '/etc/vgpu-agent');
      assert.deepEqual(differences(before, await guest.listing(['/etc', '/opt', '/usr'])), []);
      const environment = await guest.must('podman', 'exec', 'systemd-worker', 'env');
      assert.doesNotMatch(environment, /VGPU_CDI_DEVICE/);
    });
  });
});
