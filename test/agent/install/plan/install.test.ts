import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { MachineFacts } from '../../../../agent/contracts/facts.js';
import { guestConfText, loaderConfText } from '../../../../agent/install/plan/our-files.js';
import { cdiFile, cdiNvidiaFile } from '../../../../agent/lib/paths.js';
import {
  absent,
  candidate,
  candidates,
  changeAt,
  changesOf,
  facts,
  linkTo,
  multiarch,
  owner,
  plan,
  refusalCodes,
  regular,
  tracerManifest,
  unit,
  warningCodes,
} from './support.js';

function away(endpoint: string): MachineFacts['host'] {
  return { endpoint, from: 'flag', answer: { kind: 'unreachable', message: 'refused', word: null } };
}

function installed(profile: string, endpoint: string): MachineFacts['manifest'] {
  const consumers = [{ profile, unit: `${profile}.service`, links: [] }];
  return { schema: 2, agent: '', consumers, storeId: '', endpoint, items: [] };
}

describe('the order of an install', () => {
  it('creates each file before another one refers to it', () => {
    const steps = changesOf(plan()).map((change) => ('path' in change ? change.path : change.kind));
    assert.deepEqual(steps, [
      '/opt/vgpu',
      '/opt/vgpu/versions',
      'store',
      '/opt/vgpu/current',
      '/etc/vgpu/guest.conf',
      '/etc/ld.so.conf.d/000-vgpu.conf',
      `${multiarch}/libcuda.so`,
      `${multiarch}/libcuda.so.1`,
      `${multiarch}/libnvidia-ml.so`,
      `${multiarch}/libnvidia-ml.so.1`,
      'ldconfig',
      '/etc/systemd/system/ollama.service.d/50-vgpu.conf',
      'daemon-reload',
      'restart',
    ]);
  });

  it('gives every change a reason in words', () => {
    for (const change of changesOf(plan())) assert.match(change.reason, /^\S.{10,}[^.]$/, change.kind);
  });

  it('is pure: the facts are as they were', () => {
    const given = facts();
    const copy = structuredClone(given);
    plan(given);
    assert.deepEqual(given, copy);
  });

  it('leaves the restart out when it is not wanted', () => {
    assert.equal(
      changesOf(plan({}, { restart: false })).some((change) => change.kind === 'restart'),
      false,
    );
  });
});

describe('refusals', () => {
  const name = 'ollama.service';
  const cases: readonly (readonly [string, Parameters<typeof plan>[0], string])[] = [
    ['a unit that is not there', { unit: { kind: 'absent', name } }, 'unit-absent'],
    [
      'a masked unit',
      { unit: { kind: 'masked', name, path: '/etc/systemd/system/ollama.service' } },
      'unit-masked',
    ],
    [
      'a unit that systemd cannot load',
      { unit: { kind: 'bad', name, loadState: 'bad-setting', message: 'no ExecStart' } },
      'unit-bad',
    ],
    [
      'a real GPU that works',
      { realGpu: { kind: 'present', works: true, evidence: 'cuInit' } },
      'real-gpu-works',
    ],
    [
      'a 32-bit machine',
      { distribution: { ...facts().distribution, architecture: 'i686' } },
      'unsupported-architecture',
    ],
    [
      '32-bit programs on a 64-bit kernel',
      { distribution: { ...facts().distribution, multiarch: 'i386-linux-gnu' } },
      'unsupported-architecture',
    ],
    [
      'another architecture',
      { distribution: { ...facts().distribution, architecture: 'aarch64' } },
      'unsupported-architecture',
    ],
    [
      'a store that is a link',
      { store: { root: linkTo('/mnt'), current: absent, versions: [] } },
      'store-not-ours',
    ],
    [
      'a current that is a directory',
      {
        store: {
          root: absent,
          current: { kind: 'directory', empty: true, mode: 0o755, ...owner },
          versions: [],
        },
      },
      'store-not-ours',
    ],
    [
      'a current of somebody else',
      { store: { root: absent, current: linkTo('/mnt/theirs'), versions: [] } },
      'store-not-ours',
    ],
    [
      'a drop-in that is switched off',
      { dropIn: { ...facts().dropIn, state: linkTo('/dev/null') } },
      'file-masked',
    ],
    [
      'a CDI file that is switched off',
      {
        containers: {
          wanted: true,
          spec: { path: cdiFile, state: linkTo('/dev/null'), content: null },
          nvidia: { path: cdiNvidiaFile, state: absent, content: null },
          nvidiaFrom: '/etc/cdi/nvidia.yaml',
          dropIn: null,
          podman: null,
        },
      },
      'file-masked',
    ],
    [
      'a directory in the place of guest.conf',
      {
        guestConf: { ...facts().guestConf, state: { kind: 'directory', empty: true, mode: 0o755, ...owner } },
      },
      'directory-in-the-way',
    ],
    [
      'a full directory in the place of a link',
      {
        candidates: candidates([
          candidate(`${multiarch}/libcuda.so.1`, {
            state: { kind: 'directory', empty: false, mode: 0o755, ...owner },
          }),
        ]),
      },
      'directory-in-the-way',
    ],
    [
      'a socket in the place of a link',
      {
        candidates: candidates([
          candidate(`${multiarch}/libcuda.so.1`, { state: { kind: 'other', type: 'socket', ...owner } }),
        ]),
      },
      'thing-in-the-way',
    ],
  ];
  for (const [what, given, code] of cases) {
    it(`meets ${what}`, () => {
      const made = plan(given);
      assert.deepEqual(refusalCodes(made), [code]);
      assert.ok(made.kind === 'refused' && made.refusals.every((refusal) => refusal.remedy.length > 5));
    });
  }

  it('meets an address that is none', () => {
    assert.deepEqual(refusalCodes(plan({}, { endpoint: 'serial:/dev/ttyS0' })), ['bad-endpoint']);
  });

  it('tells all of them at once', () => {
    const made = plan({
      unit: { kind: 'absent', name },
      realGpu: { kind: 'present', works: true, evidence: 'cuInit' },
    });
    assert.deepEqual(refusalCodes(made), ['unit-absent', 'real-gpu-works']);
  });

  it('refuses an address where no host answers, unless this consumer has it already or the caller insists', () => {
    const endpoint = 'vsock:2:14833';
    const host = away(endpoint);
    const conf = (content: string) => ({ path: '/etc/vgpu/guest.conf', state: regular(), content });
    for (const [changes, refused] of [
      [{}, true],
      [{ manifest: installed('ollama', 'unix:/former') }, true],
      [{ manifest: installed('llama-server', endpoint) }, true],
      [{ guestConf: conf(`host=${endpoint}\n`) }, true],
      [{ manifest: installed('ollama', endpoint) }, false],
      [{ manifest: installed('ollama', 'unix:/former'), guestConf: conf(`host=${endpoint}\n`) }, false],
      [{ host: away('unix:/another') }, false],
      [{ host: { ...host, answer: { kind: 'unasked' } } }, false],
    ] as const) {
      const made = plan({ host, ...changes }, { endpoint });
      assert.deepEqual(refusalCodes(made), refused ? ['host-unreachable'] : [], JSON.stringify(changes));
      const insisted = plan({ host, ...changes }, { endpoint, allowUnreachable: true });
      assert.deepEqual(refusalCodes(insisted), []);
    }
  });

  it('lets --force hide a real GPU, and says so', () => {
    const made = plan({ realGpu: { kind: 'present', works: true, evidence: 'cuInit' } }, { force: true });
    assert.deepEqual(warningCodes(made), ['real-gpu-hidden']);
  });
});

describe('guest.conf', () => {
  const present = (content: string, mode = 0o644) => ({
    guestConf: {
      path: '/etc/vgpu/guest.conf',
      state: { ...regular(content), mode } as ReturnType<typeof regular>,
      content,
    },
  });

  it('is left alone when it names the host already, however it is written', () => {
    const made = plan(present('# mine\n host = vsock:2:14833 \nlog=x\n'));
    assert.equal(changeAt(made, '/etc/vgpu/guest.conf'), undefined);
  });

  it('keeps everything else of the text when the host changes', () => {
    const change = changeAt(plan(present('# mine\nhost=vsock:2:1\nlog=x\n')), '/etc/vgpu/guest.conf');
    assert.equal(change?.kind === 'write-file' && change.content, '# mine\nhost=vsock:2:14833\nlog=x\n');
  });

  it('gets a host line when it has none, even without a last newline', () => {
    const change = changeAt(plan(present('log=x')), '/etc/vgpu/guest.conf');
    assert.equal(change?.kind === 'write-file' && change.content, 'log=x\nhost=vsock:2:14833\n');
  });

  it('is made readable when the service’s user could not read it', () => {
    const change = changeAt(plan(present('host=vsock:2:14833\n', 0o600)), '/etc/vgpu/guest.conf');
    assert.equal(change?.kind === 'write-file' && change.mode, 0o644);
    assert.match(String(change?.reason), /mode is 0600/);
  });

  it('takes the address that was found when none is given', () => {
    const made = plan(
      { host: { endpoint: 'unix:/run/x.sock', from: 'environment', answer: { kind: 'unasked' } } },
      { endpoint: null },
    );
    const change = changeAt(made, '/etc/vgpu/guest.conf');
    assert.equal(change?.kind === 'write-file' && change.content, guestConfText('unix:/run/x.sock'));
  });
});

describe('the restart', () => {
  const done = {
    guestConf: { path: '/etc/vgpu/guest.conf', state: regular(), content: guestConfText('vsock:2:14833') },
    loaderConf: { path: '/etc/ld.so.conf.d/000-vgpu.conf', state: regular(), content: loaderConfText },
  };

  it('starts a unit that does not run or has failed, and says why', () => {
    for (const activeState of ['inactive', 'failed']) {
      const made = plan({ ...done, unit: unit({ activeState, mainPid: 0 }) });
      assert.equal(changesOf(made).at(-1)?.kind, 'restart');
    }
  });
});

describe('warnings', () => {
  const sandbox = unit().sandbox;
  const cases: readonly (readonly [string, Parameters<typeof unit>[0], string | null, string?])[] = [
    [
      'output that goes into a file',
      { standardOutput: 'append:/var/log/o.log', standardError: 'append:/var/log/o.log' },
      'output-bypasses-journal',
    ],
    ['output that goes nowhere', { standardError: 'null' }, 'output-bypasses-journal'],
    ['output to the journal and the console', { standardOutput: 'journal+console' }, null],
    [
      'a list of families without vsock',
      { sandbox: { ...sandbox, restrictAddressFamilies: { deny: false, families: ['AF_INET', 'AF_UNIX'] } } },
      'sandbox-blocks-transport',
    ],
    [
      'a list of families with vsock',
      { sandbox: { ...sandbox, restrictAddressFamilies: { deny: false, families: ['AF_VSOCK'] } } },
      null,
    ],
    [
      'a list that forbids vsock',
      { sandbox: { ...sandbox, restrictAddressFamilies: { deny: true, families: ['AF_VSOCK'] } } },
      'sandbox-blocks-transport',
    ],
    [
      'a list that forbids another',
      { sandbox: { ...sandbox, restrictAddressFamilies: { deny: true, families: ['AF_PACKET'] } } },
      null,
    ],
    ['a private network, to a vsock host', { sandbox: { ...sandbox, privateNetwork: true } }, null],
    [
      'a private network, to a tcp host',
      { sandbox: { ...sandbox, privateNetwork: true } },
      'sandbox-blocks-transport',
      'tcp:127.0.0.1:14833',
    ],
    [
      'a hidden socket',
      { sandbox: { ...sandbox, inaccessiblePaths: ['-/run/vgpu'] } },
      'sandbox-blocks-transport',
      'unix:/run/vgpu/hostd.sock',
    ],
    [
      'an empty file system over the store',
      { sandbox: { ...sandbox, temporaryFileSystem: ['/opt:ro'] } },
      'sandbox-blocks-transport',
    ],
    [
      'another root directory',
      { sandbox: { ...sandbox, rootDirectory: '/srv/ollama' } },
      'sandbox-blocks-transport',
    ],
    ['hidden devices', { environment: { CUDA_VISIBLE_DEVICES: '-1' } }, 'devices-hidden-by-environment'],
    ['the first device chosen', { environment: { CUDA_VISIBLE_DEVICES: '0' } }, null],
    [
      'a library that is forced',
      { environment: { OLLAMA_LLM_LIBRARY: 'cpu_avx2' } },
      'library-forced-to-cpu',
    ],
    [
      'a device by its name',
      { environment: { CUDA_VISIBLE_DEVICES: 'GPU-1' } },
      'devices-hidden-by-environment',
    ],
    [
      'models without layers on the GPU',
      { environment: { LLAMA_ARG_N_GPU_LAYERS: '0' } },
      'library-forced-to-cpu',
    ],
    [
      'a file of variables that hides devices',
      { environmentFileContents: [{ path: '/etc/default/ollama', content: 'CUDA_VISIBLE_DEVICES=""\n' }] },
      'devices-hidden-by-environment',
    ],
    [
      'a file of variables that sets ours',
      { environmentFileContents: [{ path: '/etc/default/ollama', content: 'LD_PRELOAD=/x.so\n' }] },
      'environment-overridden',
    ],
    [
      'a unit that unsets ours',
      { fragmentContent: '[Service]\nUnsetEnvironment=LD_PRELOAD\n' },
      'environment-overridden',
    ],
  ];
  for (const [what, changes, code, endpoint] of cases) {
    it(`${code === null ? 'says nothing of' : 'tells of'} ${what}`, () => {
      const made = plan({ unit: unit(changes) }, endpoint === undefined ? {} : { endpoint });
      const transport = endpoint?.startsWith('tcp:') === true ? ['tcp-transport'] : [];
      assert.deepEqual(warningCodes(made), [...(code === null ? [] : [code]), ...transport]);
      for (const warning of made.warnings) assert.ok(warning.remedy !== null && warning.remedy.length > 5);
    });
  }

  it('tells of a user that does not exist, a silent host, a run cut short, a second consumer', () => {
    const changes = {
      serviceUser: null,
      host: away('vsock:2:14833'),
      interrupted: true,
      manifest: installed('llama-server', 'unix:/former'),
    };
    assert.deepEqual(warningCodes(plan(changes, { allowUnreachable: true })), [
      'interrupted-run',
      'host-for-all',
      'host-unreachable',
      'service-user-missing',
    ]);
  });

  it('tells of an older version in the place of a newer one, and of no other', () => {
    for (const [agent, warns] of [
      ['99.0.0', true],
      ['0.0.1', false],
      ['unknown', false],
    ] as const) {
      const made = plan({ manifest: { ...tracerManifest, agent, endpoint: 'vsock:2:14833' } });
      assert.equal(warningCodes(made).includes('downgrade'), warns, agent);
    }
  });

  it('tells of a loader configuration that sorts before ours', () => {
    const made = plan({
      loader: { cache: [], directories: [{ path: '/opt/first', from: '/etc/ld.so.conf.d/0-first.conf' }] },
      candidates: candidates([candidate('/opt/first/libcuda.so.1', { state: regular(), vendor: 'nvidia' })]),
    });
    assert.deepEqual(warningCodes(made), ['loader-prefers-another']);
  });
});
