/** A consumer in a container: told by its command, given the device by its quadlet, or told what to add. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { consumersOwn, containerOf } from '../../../../agent/containers/container-unit.js';
import type { ContainerFacts } from '../../../../agent/contracts/facts.js';
import type { LoadedUnit } from '../../../../agent/contracts/unit.js';
import { quadletDropInText } from '../../../../agent/install/plan/container.js';
import { outdatedReason } from '../../../../agent/install/plan/restart.js';
import { effectiveEnvironment } from '../../../../agent/systemd/unit-environment.js';
import { unitFacts } from '../../../../agent/systemd/unit-facts.js';
import { absent, changeAt, changesOf, facts, plan, regular, unit, warningCodes } from './support.js';

const quadlet = '/etc/containers/systemd/ollama.container';
const dropIn = `${quadlet}.d/50-vgpu.conf`;
const run = ['/usr/bin/podman', 'run', '--name', 'systemd-ollama', '--cgroups=split', '-d'];
const image = ['docker.io/ollama/ollama', 'serve'];

function ofQuadlet(device: readonly string[] = []): LoadedUnit {
  return unit({
    fragment: '/run/systemd/generator/ollama.service',
    fragmentContent: `[Unit]\nSourcePath=${quadlet}\n[Service]\nExecStart=x\n`,
    execStart: [...run, ...device, ...image],
    user: '',
  });
}

function containers(changes: Partial<ContainerFacts> = {}): ContainerFacts {
  return {
    wanted: true,
    spec: { path: '/etc/cdi/vgpu.json', state: absent, content: null },
    nvidia: { path: '/etc/cdi/vgpu-nvidia.json', state: absent, content: null },
    nvidiaFrom: null,
    dropIn: { path: dropIn, state: absent, content: null },
    podman: '5.4.2',
    ...changes,
  };
}

describe('a unit that runs a container', () => {
  it('is recognised by its command, with name, quadlet and devices', () => {
    assert.deepEqual(containerOf(ofQuadlet(['--device', 'vgpu.org/gpu=all', '--device=/dev/fuse'])), {
      engine: 'podman',
      program: '/usr/bin/podman',
      name: 'systemd-ollama',
      quadlet,
      devices: ['vgpu.org/gpu=all'],
      ...{
        command: 'run',
        compose: null,
        options: [],
        detached: true,
        defaultSeccomp: true,
        environment: {},
        environmentFiles: [],
      },
    });
    const words = ['--host', 'unix:///d', 'run', '--rm', '--privileged', '--name=web', '-e', 'A=B', 'image'];
    words.splice(-1, 0, '--env-file', '/srv/a.env');
    const docker = unit({ execStart: ['/usr/bin/docker', ...words] });
    assert.deepEqual(containerOf(docker), {
      engine: 'docker',
      program: '/usr/bin/docker',
      name: 'web',
      quadlet: null,
      devices: [],
      ...{ command: 'run', compose: null, options: ['--host', 'unix:///d'], detached: false },
      defaultSeccomp: false,
      environment: { A: 'B' },
      environmentFiles: ['/srv/a.env'],
    });
  });

  it('is reported for a container that was made before, and for those of a compose file', () => {
    const started = unit({ execStart: ['/usr/bin/podman', 'container', 'start', '-a', 'web'] });
    assert.deepEqual(
      [containerOf(started)?.command, containerOf(started)?.name, containerOf(started)?.detached],
      ['start', 'web', false],
    );
    for (const execStart of [
      ['/usr/bin/docker', 'compose', 'up'],
      ['/usr/bin/docker-compose', '-f', 'x.yml', 'up'],
      ['/usr/bin/podman-compose', 'up'],
    ])
      assert.equal(containerOf(unit({ execStart }))?.command, 'compose', execStart.join(' '));
  });

  it('has the variables of its --env-file, and those of --env before them', () => {
    const content = 'A=file\nCUDA_VISIBLE_DEVICES=\n';
    const words = '--env A=B --env-file /srv/a.env --env-file=b.env image'.split(' ');
    const facts = unitFacts({
      name: 'web.service',
      unit: { LoadState: 'loaded', Id: 'web.service' },
      service: { ExecStart: [['/usr/bin/docker', ['/usr/bin/docker', 'run', ...words]]] },
      fragment: '',
      dropIns: [],
      environmentFiles: [
        { path: '/srv/a.env', content },
        { path: '/etc/default/docker', content: 'C=of the client\n' },
      ],
    });
    assert.ok(facts.kind === 'loaded');
    assert.deepEqual(
      [...effectiveEnvironment(facts)],
      [
        ['A', { value: 'B', file: null }],
        ['CUDA_VISIBLE_DEVICES', { value: '', file: '/srv/a.env' }],
      ],
    );
  });

  it('has the place of its compose file, and which container was given the GPU', () => {
    const execStart =
      '/usr/bin/docker --host unix:///d compose -p shop --file a.yml -f b.yml up -d --wait'.split(' ');
    const nothing = containerOf(unit({ execStart }));
    assert.deepEqual(nothing?.compose, { project: 'shop', files: ['b.yml', 'a.yml'], directory: null });
    assert.deepEqual(
      [nothing?.options, nothing?.name, nothing?.detached],
      [['--host', 'unix:///d'], null, true],
    );
    const up = containerOf(
      unit({ execStart: '/usr/bin/docker-compose --project-directory /srv up'.split(' ') }),
    );
    assert.deepEqual(up?.compose, { project: null, files: [], directory: '/srv' });
    assert.deepEqual([up?.detached, up?.program], [false, '/usr/bin/docker']);

    const web = { name: 'shop-web-1', pid: 5, devices: [] };
    const model = { name: 'shop-model-1', pid: 7, devices: ['vgpu.org/gpu=0'] };
    assert.equal(containerOf(unit({ execStart, composed: [web, model] }))?.name, 'shop-model-1');
    assert.equal(containerOf(unit({ execStart, composed: [web] }))?.name, 'shop-web-1', 'none has it');
  });

  it('is no other unit', () => {
    for (const execStart of [
      [],
      ['/usr/local/bin/ollama', 'serve'],
      ['/usr/bin/podman', 'auto-update'],
      ['/usr/bin/podman', 'system', 'service'],
      ['/usr/bin/podman', 'pod', 'start', 'p'],
      ['/usr/bin/docker', 'exec', 'web', 'run'],
    ])
      assert.equal(containerOf(unit({ execStart })), null, execStart.join(' '));
  });

  it('has the processes of the container, without the engine and without our probe', () => {
    const process = (pid: number, name: string, namespacePid?: number) => ({
      pid,
      parent: 1,
      name,
      startTicks: '1',
      executable: null,
      libraries: [],
      loaderEnvironment: {},
      ...(namespacePid === undefined ? {} : { namespacePid }),
    });
    const all = [
      process(10, 'conmon'),
      process(11, 'ollama', 1),
      process(12, 'vgpu-probe', 30),
      process(13, 'llama-server', 7),
    ];
    const names = (of: LoadedUnit) => consumersOwn(of, all).map(({ name }) => name);
    assert.deepEqual(names(ofQuadlet()), ['ollama', 'llama-server']);
    assert.equal(names(unit()).length, all.length, 'another unit has them all');
    const docker = unit({ execStart: ['/usr/bin/docker', 'run', 'image'] });
    assert.deepEqual(consumersOwn(docker, [process(20, 'docker')]), [], 'its daemon keeps them elsewhere');
    assert.deepEqual(
      consumersOwn(ofQuadlet(), [process(10, 'conmon'), process(11, 'ollama')]).map(({ name }) => name),
      ['ollama'],
      'a container in the PID namespace of the guest',
    );
    const rootless = ['podman', 'exe', 'podman pause', 'conmon', 'ollama'].map((name, at) =>
      process(10 + at, name),
    );
    assert.deepEqual(
      consumersOwn(ofQuadlet(), rootless).map(({ name }) => name),
      ['ollama'],
      "what a user's podman is made of is no consumer",
    );
  });
});

describe('an install for a container', () => {
  it('gives a quadlet the device by a drop-in, and the service no variables', () => {
    const made = plan({ unit: ofQuadlet(), containers: containers() });
    const change = changeAt(made, dropIn);
    assert.ok(change?.kind === 'write-file');
    assert.match(change.content, /^\[Container\]$[\s\S]*^AddDevice=vgpu\.org\/gpu=all$/m);
    assert.equal(changeAt(made, '/etc/systemd/system/ollama.service.d/50-vgpu.conf'), undefined);
    const kinds = changesOf(made).map(({ kind }) => kind);
    assert.ok(kinds.indexOf('daemon-reload') > changesOf(made).indexOf(change), 'quadlet runs at a reload');
    assert.equal(kinds.at(-1), 'restart');
    assert.ok(
      made.kind === 'ready' && made.consumers[0]?.links.includes(dropIn),
      'it goes with its consumer',
    );
    assert.deepEqual(warningCodes(made), []);
  });

  it('has systemd read the drop-in that is there and not in force', () => {
    const there = { path: dropIn, state: regular(quadletDropInText), content: quadletDropInText };
    const kinds = (of: LoadedUnit) =>
      changesOf(plan({ unit: of, containers: containers({ dropIn: there }) })).map(({ kind }) => kind);
    assert.ok(kinds(ofQuadlet()).includes('daemon-reload'));
    assert.ok(!kinds(ofQuadlet(['--device', 'vgpu.org/gpu=all'])).includes('daemon-reload'));
  });

  it('leaves a quadlet alone that asks for the device itself', () => {
    for (const device of ['vgpu.org/gpu=0', 'nvidia.com/gpu=all']) {
      const made = plan({ unit: ofQuadlet(['--device', device]), containers: containers() });
      assert.equal(changeAt(made, dropIn), undefined, device);
      assert.deepEqual(warningCodes(made), []);
    }
  });

  it('says which line to add where podman reads no drop-ins', () => {
    for (const podman of ['4.9.3', null]) {
      const made = plan({ unit: ofQuadlet(), containers: containers({ podman }) });
      assert.equal(changeAt(made, dropIn), undefined);
      assert.deepEqual(warningCodes(made), ['container-without-device']);
      const [warning] = made.warnings;
      assert.match(
        warning?.message ?? '',
        new RegExp(`podman ${podman ?? 'of an unknown version'} reads no`),
      );
      assert.match(
        warning?.remedy ?? '',
        new RegExp(`AddDevice=vgpu\\.org/gpu=all to \\[Container\\] in ${quadlet}`),
      );
    }
  });

  it("names the option to add to a user's command", () => {
    const execStart = ['/usr/bin/docker', 'run', '--name', 'o', 'ollama/ollama'];
    const made = plan({ unit: unit({ execStart }), containers: containers({ dropIn: null, podman: null }) });
    assert.deepEqual(warningCodes(made), ['container-without-device']);
    assert.match(made.warnings[0]?.remedy ?? '', /add --device vgpu\.org\/gpu=all to docker run in \/etc\//);
    assert.ok(!changesOf(made).some(({ kind }) => kind === 'restart'), 'a start gives it nothing');
    const asks = unit({ execStart: [...execStart.slice(0, 4), '--device', 'vgpu.org/gpu=all', 'image'] });
    assert.deepEqual(warningCodes(plan({ unit: asks, containers: containers({ dropIn: null }) })), []);
  });

  it('names the obstacle between the verdict and a container', () => {
    const codes = (...words: readonly string[]) =>
      warningCodes(plan({ unit: unit({ execStart: words }), containers: containers({ dropIn: null }) }));
    const device = ['--device', 'vgpu.org/gpu=all'];
    assert.deepEqual(codes('/usr/bin/docker', 'run', ...device, 'image'), ['container-without-name']);
    const detached = ['/usr/bin/docker', 'run', '-d', '--name', 'o', ...device, 'image'];
    assert.deepEqual(codes(...detached), [], 'docker keeps what it prints');
    assert.deepEqual(codes('/usr/bin/docker', 'compose', 'up'), ['container-without-device']);
  });

  it("names the evidence that is missing with a user's podman", async () => {
    const execStart = '/usr/bin/podman run --name o --device vgpu.org/gpu=all image'.split(' ');
    const codes = (changes: Partial<LoadedUnit>) =>
      warningCodes(plan({ unit: unit({ execStart, ...changes }), containers: containers({ dropIn: null }) }));
    assert.deepEqual(codes({ user: 'person' }), [], 'the probe enters the container as that user');
    assert.deepEqual(codes({ user: '', dynamicUser: true }), ['container-of-user']);
    assert.deepEqual(codes({ user: 'root' }), []);
    const docker = ['/usr/bin/docker', ...execStart.slice(1)];
    assert.deepEqual(codes({ user: 'person', execStart: docker }), [], "docker's daemon is root's");
  });

  it('names the vsock that docker forbids, and only where it does', () => {
    const codes = (endpoint: string, ...options: readonly string[]) => {
      const execStart = ['/usr/bin/docker', 'run', '--name', 'o', ...options, 'image'];
      const given = unitFacts({
        name: 'ollama.service',
        unit: { LoadState: 'loaded', Id: 'ollama.service', ActiveState: 'active' },
        service: { ExecStart: [['/usr/bin/docker', execStart]], PrivateNetwork: true },
        dropIns: [],
        fragment: '',
      });
      const made = plan({ unit: given, containers: containers({ dropIn: null }) }, { endpoint });
      return warningCodes(made).filter((code) => code === 'sandbox-blocks-transport');
    };
    assert.deepEqual(codes('vsock:2:14833'), ['sandbox-blocks-transport']);
    assert.deepEqual(codes('vsock:2:14833', '--security-opt', 'seccomp=/etc/own.json'), []);
    assert.deepEqual(codes('vsock:2:14833', '--privileged'), []);
    assert.deepEqual(codes('tcp:10.0.0.1:14833'), [], 'the sandbox of the unit is that of the client');
  });

  it('starts a container again that was started before it was given the device', () => {
    const given = ofQuadlet(['--device', 'vgpu.org/gpu=all']);
    const there = { path: dropIn, state: regular(quadletDropInText), content: quadletDropInText };
    const inContainer = (loaderEnvironment: Readonly<Record<string, string>>) => ({
      ...{ pid: 11, namespacePid: 1, parent: 10, name: 'ollama', startTicks: '1', executable: null },
      ...{ libraries: [], loaderEnvironment },
    });
    const reason = (loaderEnvironment: Readonly<Record<string, string>>) =>
      outdatedReason(
        facts({
          processes: [inContainer(loaderEnvironment)],
          containers: containers({ dropIn: there }),
        }),
        { ...given, activeState: 'active', mainPid: 10 },
        [],
      );
    assert.match(
      reason({}) ?? '',
      /process 11 \(ollama\) was started before its container was given the device/,
    );
    assert.equal(reason({ VGPU_CDI_DEVICE: 'vgpu.org/gpu=all' }), null);
  });

  it('keeps a drop-in that is in force although podman does not say its version', () => {
    const there = { path: dropIn, state: regular(quadletDropInText), content: quadletDropInText };
    const item = {
      ...{ kind: 'file' as const, path: dropIn, sha256: 'ab'.repeat(32), mode: 0o644 },
      ...{ before: absent, backup: null },
    } as const;
    const manifest = {
      ...{ schema: 2 as const, agent: '0.1.0', storeId: '0123456789abcdef', endpoint: 'vsock:2:14833' },
      consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [dropIn] }],
      items: [item],
    } as const;
    for (const device of [[], ['--device', 'vgpu.org/gpu=all']]) {
      const given = { dropIn: there, podman: null };
      const made = plan({ unit: ofQuadlet(device), containers: containers(given), manifest });
      assert.equal(changeAt(made, dropIn), undefined);
    }
  });
});
