import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logJudges } from '../../../agent/verdict/log/judge.js';
import { fixtureText, judgeLog, llamaServer, ollama, plainEntry } from './support.js';

const head = (version: string): string =>
  `time=2026-11-21T00:22:29.592Z level=INFO source=routes.go:1990 msg="Listening on 127.0.0.1:11434 (version ${version})"`;
const line = (fields: string): string =>
  `time=2026-11-21T00:22:29.665Z level=INFO source=types.go:32 msg="inference compute" ${fields}`;
const config =
  'time=2026-11-21T00:22:29.000Z level=INFO source=routes.go:1933 msg="server config" env="map[OLLAMA_DEBUG:INFO]"';
const gpu = line(
  'id=0 filter_id=0 library=CUDA compute=9.0 name=CUDA0 description="NVIDIA H100 80GB HBM3" libdirs=ollama,cuda_v13 driver=13.0 pci_id=0000:01:00.0 type=discrete total="79.2 GiB" available="78.7 GiB"',
);
const cpu = line(
  'id=cpu library=cpu compute="" name=cpu description=cpu libdirs=ollama driver="" pci_id="" type="" total="23.5 GiB" available="22.3 GiB"',
);
const vulkan = line(
  'id=0 filter_id=0 library=Vulkan compute=0.0 name=Vulkan0 description="AMD Radeon" libdirs=ollama,vulkan driver=0.0 pci_id=0000:05:00.0 type=iGPU total="8.0 GiB" available="7.0 GiB"',
);

// facts: the field tables of all releases, in order.
const formats: readonly (readonly [version: string, gpu: string, pci: string | null, cpu: string])[] = [
  [
    '0.1.35',
    'id=GPU-1 library=cuda compute=8.9 driver=12.4 name="NVIDIA GeForce RTX 4090" total="23.6 GiB" available="23.2 GiB"',
    null,
    'id=0 library=cpu compute="" driver=0.0 name="" total="31.2 GiB" available="27.9 GiB"',
  ],
  [
    '0.3.6',
    'id=GPU-1 library=cuda compute=8.9 driver=12.4 name="NVIDIA GeForce RTX 4090" total="23.6 GiB" available="23.2 GiB"',
    null,
    'id=0 library=cpu compute="" driver=0.0 name="" total="31.2 GiB" available="27.9 GiB"',
  ],
  [
    '0.3.7',
    'id=GPU-1 library=cuda variant=v12 compute=8.9 driver=12.6 name="NVIDIA GeForce RTX 4090" total="23.6 GiB" available="23.2 GiB"',
    null,
    'id=0 library=cpu variant=avx2 compute="" driver=0.0 name="" total="31.2 GiB" available="27.9 GiB"',
  ],
  [
    '0.12.3',
    'id=GPU-1 library=cuda variant=v13 compute=8.9 driver=13.0 name="NVIDIA GeForce RTX 4090" total="23.6 GiB" available="23.2 GiB"',
    null,
    'id=0 library=cpu variant="" compute="" driver=0.0 name="" total="31.2 GiB" available="27.9 GiB"',
  ],
  [
    '0.12.4',
    'id=GPU-1 library=CUDA compute=8.9 name=CUDA0 description="NVIDIA GeForce RTX 4090" libdirs=ollama,cuda_v13 driver=13.0 pci_id=01:00.0 type=discrete total="23.6 GiB" available="23.2 GiB"',
    '01:00.0',
    'id=cpu library=cpu compute="" name=cpu description=cpu libdirs=ollama driver="" pci_id="" type="" total="31.2 GiB" available="27.9 GiB"',
  ],
  [
    '0.12.8',
    'id=GPU-1 filtered_id="" library=CUDA compute=8.9 name=CUDA0 description="NVIDIA GeForce RTX 4090" libdirs=ollama,cuda_v13 driver=13.0 pci_id=01:00.0 type=discrete total="23.6 GiB" available="23.2 GiB"',
    '01:00.0',
    'id=cpu filtered_id="" library=cpu compute="" name=cpu description=cpu libdirs=ollama driver="" pci_id="" type="" total="31.2 GiB" available="27.9 GiB"',
  ],
  [
    '0.33.0-rc2',
    'id=0 filter_id=0 library=CUDA compute=8.9 name=CUDA0 description="NVIDIA GeForce RTX 4090" libdirs=ollama,cuda_v13 driver=13.0 pci_id=0000:01:00.0 type=discrete total="23.6 GiB" available="23.2 GiB"',
    '0000:01:00.0',
    'id=cpu library=cpu compute="" name=cpu description=cpu libdirs=ollama driver="" pci_id="" type="" total="31.2 GiB" available="27.9 GiB"',
  ],
];

for (const [version, gpuFields, pci, cpuFields] of formats) {
  test(`the line of ${version} is read, GPU and CPU`, () => {
    const onGpu = judgeLog(ollama, [head(version), line(gpuFields)]);
    assert.equal(onGpu.mode, 'gpu');
    assert.deepEqual(onGpu.devices, [
      { library: 'cuda', compute: '8.9', name: 'NVIDIA GeForce RTX 4090', pci },
    ]);
    assert.equal(onGpu.version, version);
    const onCpu = judgeLog(ollama, [head(version), line(cpuFields)]);
    assert.equal(onCpu.mode, 'cpu');
    assert.deepEqual(onCpu.devices, []);
    assert.equal(onCpu.reason, null);
  });
}

test('before 0.1.35 nothing announces a device: undetermined, and the reason says so', () => {
  const findings = judgeLog(ollama, [
    'time=2024-04-26T07:29:48.000Z level=INFO source=routes.go:1143 msg="Listening on [::]:11434 (version 0.1.32)"',
    'time=2024-04-26T07:29:48.910Z level=INFO source=gpu.go:126 msg="Nvidia GPU detected via cudart"',
    'time=2024-04-26T07:29:49.089Z level=INFO source=gpu.go:202 msg="[cudart] CUDART CUDA Compute Capability detected: 6.1"',
  ]);
  assert.equal(findings.mode, 'undetermined');
  assert.equal(findings.reason, 'unsupported-log-version');
  const nameless = judgeLog(ollama, ['level=INFO msg="Nvidia GPU detected via cudart"']);
  assert.equal(nameless.reason, 'unsupported-log-version');
});

test('a build without a version is not taken for an old one', () => {
  assert.equal(judgeLog(ollama, [head('0.0.0'), gpu]).mode, 'gpu');
  assert.equal(judgeLog(ollama, [head('0.0.0')]).reason, 'no-discovery-line');
});

test('reordered and unknown fields do not disturb', () => {
  const fields = gpu.split(/ (?=(?:[^"]*"[^"]*")*[^"]*$)/);
  const turned = [...fields].reverse().join(' ');
  assert.notEqual(turned, gpu);
  assert.equal(judgeLog(ollama, [head('0.40.0'), turned]).mode, 'gpu');
  assert.equal(judgeLog(ollama, [head('0.40.0'), `${gpu} numa=0 "some new"="a b" flags=[x]`]).mode, 'gpu');
});

test('library is compared without case', () => {
  assert.equal(judgeLog(ollama, [gpu.replace('library=CUDA', 'library=Cuda')]).mode, 'gpu');
});

test('lines that only carry library= and compute= announce nothing', () => {
  const lines = [
    head('0.32.9'),
    'level=DEBUG source=runner.go:153 msg="verifying if device is supported" library=CUDA description="NVIDIA H100" compute=9.0 id=0 pci_id=0000:01:00.0',
    'level=DEBUG msg="dropping duplicate device" id=0 library=CUDA compute=9.0',
    'level=INFO msg="gpu memory" id=0 library=CUDA available="78.7 GiB"',
    'level=INFO msg="detected OS VRAM overhead" id=GPU-1 library=cuda compute=8.9 driver=12.6 name="NVIDIA GeForce RTX 4060" overhead="124.9 MiB"',
    'level=INFO msg="inference compute " library=CUDA compute=9.0',
    'level=INFO msg="no inference compute" library=CUDA compute=9.0',
    'level=INFO note="inference compute" library=CUDA compute=9.0',
    'library=CUDA compute=9.0 inference compute',
  ];
  const findings = judgeLog(ollama, lines);
  assert.equal(findings.mode, 'undetermined');
  assert.equal(findings.reason, 'no-discovery-line');
  assert.deepEqual(findings.devices, []);
});

test('Vulkan alone is the CPU for us, and that is said', () => {
  const findings = judgeLog(ollama, [head('0.32.9'), vulkan]);
  assert.equal(findings.mode, 'cpu');
  assert.equal(findings.reason, 'not-cuda');
  assert.deepEqual(findings.devices, [
    { library: 'vulkan', compute: '0.0', name: 'AMD Radeon', pci: '0000:05:00.0' },
  ]);
  assert.match(findings.evidence[0]?.text ?? '', /library=Vulkan/);
});

test('CUDA beside Vulkan is GPU', () => {
  const findings = judgeLog(ollama, [head('0.32.9'), gpu, vulkan]);
  assert.equal(findings.mode, 'gpu');
  assert.deepEqual(
    findings.devices.map(({ library }) => library),
    ['cuda', 'vulkan'],
  );
});

test('several GPUs are all listed; one that is not usable degrades', () => {
  const second = gpu.replace('id=0', 'id=1').replace('0000:01:00.0', '0000:02:00.0');
  const two = judgeLog(ollama, [head('0.32.9'), gpu, second]);
  assert.equal(two.mode, 'gpu');
  assert.deepEqual(
    two.devices.map(({ pci }) => pci),
    ['0000:01:00.0', '0000:02:00.0'],
  );
  const broken = judgeLog(ollama, [head('0.32.9'), gpu, second.replace('compute=9.0', 'compute=0.0')]);
  assert.equal(broken.mode, 'degraded');
});

for (const compute of ['0.0', '""', '9', '9.', '0.5', 'gfx1100', '"9.0 "', '-9.0', '900.0']) {
  test(`CUDA with compute=${compute} is not GPU mode`, () => {
    const findings = judgeLog(ollama, [head('0.32.9'), gpu.replace('compute=9.0', `compute=${compute}`)]);
    assert.equal(findings.mode, 'degraded');
    assert.equal(findings.hint, 'probe-crashed');
  });
}

test('a line without compute= is not GPU mode', () => {
  assert.equal(judgeLog(ollama, [gpu.replace('compute=9.0 ', '')]).mode, 'degraded');
});

test('a simulated device is called so', () => {
  const simulated = judgeLog(ollama, [gpu.replace('HBM3"', 'HBM3 (simulated)"')]);
  assert.equal(simulated.mode, 'gpu');
  assert.equal(simulated.simulated, true);
  assert.equal(judgeLog(ollama, [gpu]).simulated, false);
});

test('an announcement that is cut short or doubled does not count', () => {
  for (const bad of [
    gpu.slice(0, -3),
    gpu.slice(0, gpu.indexOf('driver') + 3),
    `${gpu} library=CUDA`,
    `${gpu} msg=x`,
    `junk ${gpu}`,
  ]) {
    const findings = judgeLog(ollama, [head('0.32.9'), bad]);
    assert.equal(findings.mode, 'undetermined', bad);
  }
  const judge = logJudges(ollama)();
  judge.push({ ...plainEntry(gpu, 'line 1'), truncated: true });
  assert.equal(judge.findings().mode, 'undetermined');
  assert.match(judge.findings().evidence[0]?.text ?? '', /^not counted, the line is truncated/);
});

test('only the last start counts: a GPU line of a former start never does', () => {
  const starts: readonly (readonly string[])[] = [[config, head('0.32.9')], [config], [head('0.32.9')]];
  for (const again of starts) {
    const silent = judgeLog(ollama, [config, head('0.32.9'), gpu, ...again]);
    assert.equal(silent.mode, 'undetermined', again.join());
    assert.deepEqual(silent.devices, []);
    assert.equal(judgeLog(ollama, [config, head('0.32.9'), gpu, ...again, cpu]).mode, 'cpu');
    assert.equal(judgeLog(ollama, [config, head('0.32.9'), cpu, ...again, gpu]).mode, 'gpu');
  }
  // The log begins in the middle of the former start.
  assert.equal(judgeLog(ollama, [gpu, config]).mode, 'undetermined');
  assert.equal(judgeLog(ollama, [gpu, cpu]).mode, 'cpu');
});

test('the server config line of older releases begins a start, though it is no logfmt', () => {
  const old =
    '2025/03/17 09:49:28 routes.go:1230: INFO server config env="map[CUDA_VISIBLE_DEVICES: GPU_DEVICE_ORDINAL:]"';
  assert.equal(judgeLog(ollama, [head('0.6.1'), gpu, old]).mode, 'undetermined');
});

test('without a new start, a GPU announced after the CPU or after the end of discovery does not count', () => {
  assert.equal(judgeLog(ollama, [config, head('0.32.9'), cpu, gpu]).mode, 'cpu');
  const over = 'level=INFO msg="vram-based default context" total_vram="0 B" default_num_ctx=4096';
  const findings = judgeLog(ollama, [config, head('0.32.9'), over, gpu]);
  assert.equal(findings.mode, 'undetermined');
  assert.equal(findings.state, 'decided');
});

test('reasons of a former start do not explain this one', () => {
  const reason =
    'level=WARN msg="NVIDIA driver too old" device="NVIDIA H100" compute=9.0 driver=535 required_driver="550 or newer"';
  assert.equal(judgeLog(ollama, [config, head('0.32.9'), reason, cpu]).reason, 'driver-too-old');
  assert.equal(
    judgeLog(ollama, [config, head('0.32.9'), reason, cpu, config, head('0.32.9'), cpu]).reason,
    null,
  );
});

const reasonLines: readonly (readonly [line: string, reason: string])[] = [
  [
    'msg="version mismatch between driver and cuda driver library - reboot or upgrade may be required: library /usr/lib/libcuda.so.1"',
    'driver-library-mismatch',
  ],
  [
    'msg="error looking up nvidia GPU memory" error="failed to get device context 801"',
    'context-create-failed',
  ],
  ['msg="[0] CUDA GPU is too old. Compute Capability detected: 3.5"', 'architecture-not-compiled'],
  [
    'msg="failure during GPU discovery" OLLAMA_LIBRARY_PATH=[/usr/local/lib/ollama] extra_envs=map[] error="failed to finish discovery before timeout"',
    'discovery-timeout',
  ],
  [
    'msg="failure during llama-server GPU discovery" error="llama-server --list-devices failed: signal: aborted" detail=""',
    'probe-crashed',
  ],
  ['msg="user overrode visible devices" CUDA_VISIBLE_DEVICES=-1', 'devices-hidden-by-environment'],
  ['msg="llama-server discovery: timed out waiting for server startup"', 'discovery-timeout'],
  ['msg="failure during llama-server GPU discovery" error="exit status 127"', 'library-not-found'],
  ['msg="failure during GPU discovery" error="llama-server: CUDA error"', 'driver-init-failed'],
];

for (const [text, reason] of reasonLines) {
  test(`on the CPU, ${text.slice(0, 60)}... means ${reason}`, () => {
    assert.equal(
      judgeLog(ollama, [head('0.13.5'), `level=INFO source=gpu.go:1 ${text}`, cpu]).reason,
      reason,
    );
  });
}

const hintLines: readonly (readonly [line: string, hint: string])[] = [
  ['level=WARN msg="unable to refresh free memory, using old values"', 'discovery-timeout'],
  ['level=WARN msg="could not verify NVIDIA driver compatibility for CUDA"', 'driver-init-failed'],
  ['level=ERROR msg="llama runner terminated" error="exit status 127"', 'library-not-found'],
  [
    'level=INFO msg="Load failed" error="llama-server process has terminated: CUDA error: out of memory"',
    'compute-failed',
  ],
  [
    "ERROR: ld.so: object '/opt/vgpu/current/libcuda.so.1' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
    'preload-ignored',
  ],
  [
    'load_backend: failed to load /usr/local/lib/ollama/cuda_v12/libggml-cuda.so: libcuda.so.1: cannot open shared object file: No such file or directory',
    'library-not-found',
  ],
  [
    'level=DEBUG msg="skipping available library at user\'s request" requested=cpu libDir=/usr/local/lib/ollama/cuda_v13',
    'library-forced-to-cpu',
  ],
  [
    'level=WARN msg="user overrode visible devices" CUDA_VISIBLE_DEVICES=GPU-7',
    'devices-hidden-by-environment',
  ],
  [
    'ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version',
    'driver-too-old',
  ],
];

for (const [text, hint] of hintLines) {
  test(`${text.slice(0, 60)}... hints at ${hint}`, () => {
    const findings = judgeLog(ollama, [head('0.13.5'), text, cpu]);
    assert.equal(findings.hint, hint);
    assert.equal(findings.reason, null);
    assert.ok(findings.evidence.some((item) => item.text === text));
    assert.equal(judgeLog(ollama, [head('0.13.5'), text, gpu]).reason, null);
  });
}

test('the state tells when no more is to come', () => {
  const judge = logJudges(ollama)();
  const states = [config, head('0.32.9'), gpu, 'msg="vram-based default context" total_vram="79.2 GiB"'].map(
    (text) => judge.push(plainEntry(text, 'x')),
  );
  assert.deepEqual(states, ['undecided', 'undecided', 'announced', 'decided']);
  assert.equal(judge.findings().address, '127.0.0.1:11434');
});

test("another invocation's lines begin a new start", () => {
  const judge = logJudges(ollama)();
  judge.push({ ...plainEntry(gpu, '1'), invocationId: 'a'.repeat(32) });
  judge.push({ ...plainEntry(cpu, '2'), invocationId: 'b'.repeat(32) });
  judge.push({ ...plainEntry(gpu, '3'), invocationId: 'b'.repeat(32) });
  assert.equal(judge.findings().mode, 'cpu');
});

test("systemd's word that the process ended makes its lines old", () => {
  const manager = (text: string) => ({ ...plainEntry(text, 'x'), speaker: 'manager' as const });
  const judge = logJudges(ollama)();
  for (const text of [config, head('0.32.9'), gpu]) judge.push(plainEntry(text, 'x'));
  judge.push(manager('ollama.service: Main process exited, code=killed, status=9/KILL'));
  // The start is over, but nothing newer is there yet: it is still the last one.
  assert.equal(judge.findings().mode, 'gpu');
  judge.push(manager('Started ollama.service - Ollama Service.'));
  assert.equal(judge.findings().mode, 'undetermined');
});

test('"Started" that the journal sorts late does not wipe its own start', () => {
  const judge = logJudges(ollama)();
  for (const text of [config, head('0.32.9'), gpu]) judge.push(plainEntry(text, 'x'));
  judge.push({ ...plainEntry('Started ollama.service - Ollama Service.', 'x'), speaker: 'manager' });
  assert.equal(judge.findings().mode, 'gpu');
});

test('millions of announcements do not fill the memory', () => {
  const judge = logJudges(ollama)();
  const bad = gpu.slice(0, -3);
  for (let round = 0; round < 20_000; round += 1)
    judge.push(plainEntry(round % 2 === 0 ? gpu : bad, `line ${round}`));
  assert.ok(judge.findings().evidence.length < 100);
});

// The shapes below are those of llama.cpp's own output (llama.cpp b4568 to b10991).
const llamaGpu = [
  'ggml_cuda_init: found 2 CUDA devices:',
  '  Device 0: NVIDIA H100 80GB HBM3, compute capability 9.0, VMM: yes',
  '  Device 1: NVIDIA H100 80GB HBM3, compute capability 9.0, VMM: yes',
  'load_backend: loaded CUDA backend from /app/libggml-cuda.so',
  'build: 5177 (80982e81) with cc (GCC) 12.2.1 for x86_64-redhat-linux',
  'llama_prepare_model_devices: using device CUDA0 (NVIDIA H100 80GB HBM3) (0000:01:00.0) - 80567 MiB free',
  'llama_prepare_model_devices: using device CUDA1 (NVIDIA H100 80GB HBM3) (0000:02:00.0) - 80567 MiB free',
  'load_tensors: offloaded 33/33 layers to GPU',
  'main: model loaded',
  'main: server is listening on http://127.0.0.1:8080 - starting the main loop',
];

test("llama-server's devices are put together from its two kinds of lines", () => {
  const findings = judgeLog(llamaServer, llamaGpu);
  assert.equal(findings.mode, 'gpu');
  assert.deepEqual(findings.devices, [
    { library: 'cuda', compute: '9.0', name: 'NVIDIA H100 80GB HBM3', pci: '0000:01:00.0' },
    { library: 'cuda', compute: '9.0', name: 'NVIDIA H100 80GB HBM3', pci: '0000:02:00.0' },
  ]);
  assert.equal(findings.address, 'http://127.0.0.1:8080');
  assert.equal(findings.state, 'decided');
});

test("llama-server's newer lines, with times before them, are read", () => {
  const findings = judgeLog(llamaServer, [
    '0.031 I main: build = 10991 (930e2fa59)',
    '0.180 I   Device 0: NVIDIA GeForce RTX 5090 (simulated), compute capability 12.0, VMM: yes, VRAM: 32579 MiB',
    '0.410 I llama_prepare_model_devices: using device CUDA0 (NVIDIA GeForce RTX 5090 (simulated)) (0000:01:00.0) - 30991 MiB free',
  ]);
  assert.equal(findings.mode, 'gpu');
  assert.equal(findings.simulated, true);
  assert.deepEqual(findings.devices, [
    { library: 'cuda', compute: '12.0', name: 'NVIDIA GeForce RTX 5090 (simulated)', pci: '0000:01:00.0' },
  ]);
});

test('llama-server that leaves every layer on the CPU is degraded', () => {
  const findings = judgeLog(
    llamaServer,
    llamaGpu.map((text) => text.replace('33/33', '0/33')),
  );
  assert.equal(findings.mode, 'degraded');
  assert.equal(findings.reason, 'layers-not-offloaded');
});

test('llama-server without a GPU is on the CPU, with the reason where it prints one', () => {
  const none = 'warning: no usable GPU found, --gpu-layers option will be ignored';
  assert.equal(judgeLog(llamaServer, [none]).mode, 'cpu');
  const failed = 'ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected';
  const findings = judgeLog(llamaServer, [failed, none]);
  assert.equal(findings.mode, 'cpu');
  assert.equal(findings.reason, 'no-device');
  // All that Debian's says where no --gpu-layers is given.
  const alone = judgeLog(llamaServer, [
    `0.00.102.404 E ${failed}`,
    '0.00.295.126 I srv  llama_server: model loaded',
  ]);
  assert.deepEqual([alone.mode, alone.reason], ['cpu', 'no-device']);
  assert.equal(judgeLog(llamaServer, [...llamaGpu, failed]).mode, 'cpu', 'a start without one follows');
  assert.equal(judgeLog(llamaServer, [failed, ...llamaGpu]).mode, 'gpu');
  // In a prompt it may begin a start, but does not name the CPU.
  assert.equal(judgeLog(llamaServer, [...llamaGpu, `prompt: ${failed}`]).mode, 'undetermined');
});

test("llama-server's address is read from its older and its newer line", () => {
  const newer = '0.00.298.372 I srv  llama_server: listening on http://127.0.0.1:9931';
  assert.equal(judgeLog(llamaServer, [newer]).address, 'http://127.0.0.1:9931');
  assert.equal(judgeLog(llamaServer, llamaGpu).address, 'http://127.0.0.1:8080');
});

test('a second start of llama-server replaces the first', () => {
  const none = 'warning: no usable GPU found, --gpu-layers option will be ignored';
  assert.equal(judgeLog(llamaServer, [...llamaGpu, none]).mode, 'cpu');
  assert.equal(judgeLog(llamaServer, [...llamaGpu, 'build: 5177 (80982e81) with cc']).mode, 'undetermined');
  assert.equal(judgeLog(llamaServer, [...llamaGpu, ...llamaGpu]).devices.length, 2);
});

test('a prompt in the log that imitates a device line does not count', () => {
  const lie = 'prompt:   Device 0: NVIDIA H100, compute capability 9.0, VMM: yes';
  const none = 'warning: no usable GPU found, --gpu-layers option will be ignored';
  assert.equal(judgeLog(llamaServer, [none, 'main: model loaded', lie]).mode, 'cpu');
  assert.equal(judgeLog(llamaServer, ['main: model loaded', lie]).mode, 'undetermined');
});

test('a fixture after another one is judged as the last one alone', () => {
  const both = `${fixtureText('0.32.9_gpu_model-load_debug0')}\n${fixtureText('0.11.11_cuinit999_debug1')}`;
  const findings = judgeLog(ollama, both.split('\n'));
  assert.equal(findings.mode, 'cpu');
  assert.equal(findings.reason, 'driver-init-failed');
  assert.equal(findings.version, '0.11.11');
  assert.equal(findings.starts, 2);
});
