// Containers by Debian's docker in a Debian 13 guest, run by units: the processes are in no cgroup of the unit.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { whyNoOllama } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, differences, documentOf, freshCache } from '../support/installed.js';
import { until } from '../support/process.js';
import { whyNoRoot } from '../support/roots.js';
import { assertVerdict, evidence, installedGpu, tell } from '../support/scenario.js';
import { said } from '../support/service.js';
import { assertAnswersOnGpu, containerGuest, ollamaVolumes } from './ollama.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoRoot('docker-trixie') || whyNoRoot('bookworm');
const device = '--device vgpu.org/gpu=all';

/** docker as it runs in a guest: no overlay on an overlay, and no bridge. */
const prepare = `
mkdir -p /etc/docker /var/lib/docker
mount -t tmpfs tmpfs /var/lib/docker
printf '{"features":{"cdi":true},"storage-driver":"vfs","iptables":false,"ip6tables":false,"bridge":"none"}' \
  >/etc/docker/daemon.json
systemctl start docker
cd /run/image
tar -c --exclude=usr/share --exclude=var --exclude=usr/sbin --exclude=usr/lib/systemd --exclude=usr/lib/udev \
  --exclude='usr/lib/x86_64-linux-gnu/perl*' --exclude=usr/lib/x86_64-linux-gnu/gconv . | docker import - image:1
`;

async function probe(guest: Guest): Promise<string> {
  return `${(await guest.must('readlink', '-f', '/opt/vgpu/current')).trim()}/vgpu-probe --json --compute`;
}

/** A unit that runs one container. */
async function unit(guest: Guest, name: string, run: string): Promise<void> {
  const text = `[Service]
ExecStartPre=-/usr/bin/docker rm --force ${name}
ExecStart=/usr/bin/docker run --rm --init --network=host --name ${name} ${run}
TimeoutStopSec=5
`;
  await guest.write(`/etc/systemd/system/${name}.service`, text);
  await guest.must('systemctl', 'daemon-reload');
}

/** A unit whose container goes on without a process of the unit. */
async function background(guest: Guest, start: string, stop: string): Promise<void> {
  const text = `[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=${start}\nExecStop=${stop}\n`;
  await guest.write('/etc/systemd/system/ollama.service', text);
  await guest.must('systemctl', 'daemon-reload');
}

/** A compose file with Ollama and a service that wants no GPU and starts later: the newest container is not Ollama's. */
function shop(withDevice: boolean): string {
  const gpu = `
    deploy:
      resources:
        reservations:
          devices:
            - driver: cdi
              device_ids: [vgpu.org/gpu=all]
              capabilities: [gpu]`;
  return `services:
  idle:
    image: image:1
    network_mode: host
    command: sleep infinity
    depends_on: [ollama]
    stop_grace_period: 1s
  ollama:
    image: image:1
    network_mode: host
    init: true
    command: /usr/local/bin/ollama serve
    environment: { OLLAMA_HOST: "127.0.0.1:11434", HOME: /root }
    volumes: [${ollamaVolumes.map((volume) => `"${volume}"`).join(', ')}]${withDevice ? gpu : ''}
`;
}

function sourcesOf(verdict: Verdict, kind: string): string {
  return verdict.evidence
    .filter((item) => item.kind === kind)
    .map(({ source }) => source)
    .join('\n');
}

function ollama(options: string): string {
  const volumes = ollamaVolumes.map((volume) => `--volume ${volume}`).join(' ');
  const env = '--env OLLAMA_HOST=127.0.0.1:11434 --env HOME=/root';
  return `${options} ${volumes} ${env} image:1 /usr/local/bin/ollama serve`;
}

describe('containers that docker runs', { skip }, () => {
  test('from a unit: seen where they are, on the CPU and on the GPU', async (t) => {
    const guest = await containerGuest('docker-trixie', t);
    await guest.must('bash', '-c', prepare);
    await unit(guest, 'worker', 'image:1 sleep infinity');
    await guest.must('systemctl', 'start', 'worker');
    await freshCache(guest);
    const before = await guest.listing(['/etc', '/opt', '/usr']);

    await t.test(
      'a unit that does not ask for the device is not restarted, and gets the option to add',
      async () => {
        const start = await guest.invocationId('worker');
        const installed = await tell(guest, 'install', '--yes', '--unit', 'worker', '--timeout', '3');
        const verdict = await assertVerdict(guest, installed, { mode: 'undetermined', reason: 'no-session' });
        assert.match(installed.stdout, /add --device vgpu\.org\/gpu=all to docker run in \/etc\/systemd/);
        assert.match(evidence(verdict, 'maps').join('\n'), /child sleep has no libcuda loaded/);
        assert.equal(await guest.invocationId('worker'), start);
      },
    );

    await t.test('a unit with the device is started again, and computes there', async () => {
      await unit(guest, 'worker', `${device} image:1 sleep infinity`);
      const installed = await tell(guest, 'install', '--yes', '--unit', 'worker', '--timeout', '3');
      assert.match(installed.stdout, /was started before its container was given the device/);
      const verified = await tell(guest, 'verify', '--unit', 'worker', '--compute');
      const verdict = await assertVerdict(guest, verified, { mode: 'undetermined', reason: 'no-session' });
      assert.match(evidence(verdict, 'compute').join(), /each the same as on the CPU/);
      // Neither docker's client nor what it starts our probe by is the consumer.
      assert.doesNotMatch(
        evidence(verdict, 'maps').join('\n'),
        /(?:main process \(|child )(?:docker(?!-init)|runc|vgpu-probe)/,
      );
    });

    await t.test('a compose file with what cdi list prints computes', async () => {
      const { stdout } = await guest.agent('cdi', 'list');
      const lines = /compose file of docker, in the service:\n((?: .*\n)+)/.exec(stdout)?.[1] ?? '';
      const service = `    image: image:1\n    network_mode: host\n    command: ${await probe(guest)}\n`;
      const text = `services:\n  asks:\n${service}${lines.replaceAll(/^/gm, '  ')}\n`;
      await guest.write('/srv/compose.yaml', text);
      const asked = await guest.run('docker', 'compose', '-f', '/srv/compose.yaml', 'run', '--rm', 'asks');
      assert.equal(at(documentOf(asked), 'compute', 'ok'), true, `${text}${asked.stdout}${asked.stderr}`);
    });

    await t.test('a host at a vsock address is named as forbidden by docker', async () => {
      const address = ['--host', 'vsock:2:14833', '--allow-unreachable-host'];
      const planned = await guest.agent('plan', '--unit', 'worker', ...address);
      assert.match(planned.stdout + planned.stderr, /docker's default seccomp profile \(without AF_VSOCK\)/);
      const asked = await guest.run(
        ...(['docker', 'exec', '--env', 'VGPU_HOST=vsock:2:14833', 'worker', 'sh', '-c'] as const),
        'exec /opt/vgpu/versions/*/vgpu-probe --json --timeout 3',
      );
      assert.match(asked.stdout, /"errno":"EPERM"/, 'and docker does forbid it');
    });

    await t.test('a real Ollama runs on the GPU, by all that is known', { skip: whyNoOllama() }, async () => {
      await unit(guest, 'ollama', ollama(device));
      await guest.must('systemctl', 'start', 'ollama');
      await installedGpu(guest, '--profile', 'ollama');
      await assertAnswersOnGpu(guest, 'docker', 'ollama');
    });

    await t.test(
      'detached, its log is docker’s, and the verdict the same',
      { skip: whyNoOllama() },
      async () => {
        await guest.must('systemctl', 'stop', 'ollama');
        const run = `/usr/bin/docker run --detach --rm --init --network=host --name ollama ${ollama(device)}`;
        await background(guest, run, '/usr/bin/docker stop --time 2 ollama');
        await installedGpu(guest, '--profile', 'ollama');
        const verdict = await assertAnswersOnGpu(guest, 'docker', 'ollama');
        assert.match(sourcesOf(verdict, 'log-line'), /^docker logs ollama, line \d+ of this start$/m);
        await guest.must('systemctl', 'stop', 'ollama');
      },
    );

    await t.test('a compose file’s container is found and followed', { skip: whyNoOllama() }, async () => {
      const compose = '/usr/bin/docker compose --file /srv/shop/compose.yaml';
      await guest.write('/srv/shop/compose.yaml', shop(false));
      await guest.write(
        '/etc/systemd/system/ollama.service',
        `[Service]\nWorkingDirectory=/srv/shop\nExecStart=/usr/bin/docker compose up\nExecStopPost=${compose} down --timeout 2\n`,
      );
      await guest.must('systemctl', 'daemon-reload');
      await guest.must('systemctl', 'start', 'ollama');
      await until('its containers run', 60_000, async () =>
        /shop-ollama-1/.test(await guest.must('docker', 'ps', '--format', '{{.Names}}')) ? true : undefined,
      );
      const without = await tell(guest, 'install', '--yes', '--profile', 'ollama');
      await assertVerdict(guest, without, {
        mode: 'cpu',
        reason: 'shim-not-loaded',
      });
      assert.match(without.stdout, /none of those that run was given the GPU \(shop-\S+, shop-\S+\)/);

      await guest.write('/srv/shop/compose.yaml', shop(true));
      await guest.must('systemctl', 'restart', 'ollama');
      const verdict = await assertAnswersOnGpu(guest, 'docker', 'shop-ollama-1');
      assert.match(sourcesOf(verdict, 'log-line'), /^journal cursor /m);
      await guest.must('systemctl', 'stop', 'ollama');

      await background(guest, `${compose} up --detach`, `${compose} down --timeout 2`);
      await guest.must('systemctl', 'start', 'ollama');
      const behind = await assertAnswersOnGpu(guest, 'docker', 'shop-ollama-1');
      assert.match(sourcesOf(behind, 'log-line'), /^docker logs shop-ollama-1, line \d+ of this start$/m);
      await guest.must('systemctl', 'stop', 'ollama');
    });

    await t.test('the doctor finds what is wrong in the container', { skip: whyNoOllama() }, async () => {
      await unit(guest, 'ollama', ollama(`${device} --env CUDA_VISIBLE_DEVICES=-1`));
      await guest.must('systemctl', 'restart', 'ollama');
      const hidden = await tell(guest, 'doctor', '--profile', 'ollama');
      assert.equal(hidden.document.first, 'overrides', hidden.stdout);
      assert.match(hidden.stdout, /CUDA_VISIBLE_DEVICES=-1 \[the command of its container\]/);

      await guest.write('/srv/hidden.env', 'CUDA_VISIBLE_DEVICES=\n');
      await unit(guest, 'ollama', ollama(`${device} --env-file /srv/hidden.env`));
      await guest.must('systemctl', 'restart', 'ollama');
      const inFile = await tell(guest, 'doctor', '--profile', 'ollama');
      assert.equal(inFile.document.first, 'overrides', inFile.stdout);
      assert.match(inFile.stdout, /CUDA_VISIBLE_DEVICES= \[\/srv\/hidden\.env\]/);

      await guest.must('docker', 'commit', '--change', 'ENV CUDA_VISIBLE_DEVICES=', 'worker', 'image:hidden');
      await unit(guest, 'ollama', ollama(device).replace('image:1', 'image:hidden'));
      await guest.must('systemctl', 'restart', 'ollama');
      const inImage = await tell(guest, 'doctor', '--profile', 'ollama');
      assert.equal(inImage.document.first, 'overrides', inImage.stdout);
      assert.match(inImage.stdout, /CUDA_VISIBLE_DEVICES= \[the image of its container/);

      await guest.must('cp', '-L', '/run/image/usr/lib/x86_64-linux-gnu/libm.so.6', '/srv/libcuda.so.1');
      await unit(guest, 'ollama', ollama(`${device} --volume /srv:/srv:ro --env LD_LIBRARY_PATH=/srv`));
      await guest.must('systemctl', 'restart', 'ollama');
      const foreign = await tell(guest, 'doctor', '--profile', 'ollama');
      assert.equal(foreign.document.first, 'loader-choice', foreign.stdout);
      assert.match(foreign.stdout, /in the container: \/srv\/libcuda\.so\.1/);
      assert.match(foreign.stdout, /set LD_LIBRARY_PATH=\/usr\/lib\/x86_64-linux-gnu/);

      await unit(guest, 'ollama', ollama(''));
      await guest.must('systemctl', 'restart', 'ollama');
      const without = await tell(guest, 'doctor', '--trace', '--yes', '--profile', 'ollama');
      assert.equal(without.document.first, 'drop-in', without.stdout);
      assert.match(without.stdout, /not traced: ollama\.service runs a container/);
    });

    await t.test(
      'the service says the same, and follows what docker logs',
      { skip: whyNoOllama() },
      async () => {
        const run = `/usr/bin/docker run --detach --rm --init --network=host --name ollama ${ollama(device)}`;
        await background(guest, run, '/usr/bin/docker stop --time 2 ollama');
        // Restarts of the consumer would be a reason to judge again by themselves.
        const config = { schema: 1, restart: { enabled: false } };
        await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(config));
        await guest.agent('install', '--service', '--yes', '--profile', 'ollama');
        const serviceSays = (mode: Verdict['mode']) =>
          until(`the service says ${mode}`, 60_000, async () => {
            const { document } = await tell(guest, 'status', '--profile', 'ollama');
            return document.verdict?.mode === mode ? true : undefined;
          }).catch(async (error: unknown) => assert.fail(`${String(error)}\n${await said(guest)}`));
        await serviceSays('gpu');
        // Only the log tells of a model that a person keeps off the GPU.
        const model = 'FROM /opt/models/one.gguf\\nPARAMETER num_gpu 0\\nPARAMETER num_predict 4\\n';
        const ask = `printf '${model}' >/tmp/cpu && ollama create cpu -f /tmp/cpu && ollama run cpu 'one two'`;
        await guest.must('docker', 'exec', 'ollama', 'sh', '-c', ask);
        await serviceSays('cpu');
        await guest.must('systemctl', 'stop', 'ollama');
        await guest.must('rm', '-r', '/etc/vgpu-agent');
      },
    );

    await t.test('uninstall leaves a container running that would not start without the device', async () => {
      const start = await guest.invocationId('worker');
      const taken = await guest.agent('uninstall', '--yes', '--all');
      assert.equal(taken.code, 0, taken.stderr);
      const said = taken.stderr + taken.stdout;
      assert.match(said, /worker\.service asks for the GPU in \/etc\/systemd\/system\/worker/);
      assert.doesNotMatch(said, /^restarting worker\.service/m);
      assert.equal(await guest.invocationId('worker'), start);
      const changed = differences(before, await guest.listing(['/etc', '/opt', '/usr']));
      assert.deepEqual(
        changed.filter((line) => !/worker\.service|ollama\.service/.test(line)),
        [],
      );
    });
  });
});
