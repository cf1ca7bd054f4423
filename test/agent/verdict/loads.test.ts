/** Where a model went that was loaded after the devices were announced: newer than the announcement. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import type { LoadRule } from '../../../agent/profile/types.js';
import {
  afterLine,
  type LoadFindings,
  loadError,
  newestLoad,
  noLoads,
} from '../../../agent/verdict/log/findings.js';
import { logJudges } from '../../../agent/verdict/log/judge.js';
import { judgeLog, llamaServer, ollama } from './support.js';

const device =
  'time=2026-11-22T12:46:34.573Z level=INFO source=types.go:32 msg="inference compute" id=0 filter_id=0 library=CUDA compute=9.0 name=CUDA0 description="NVIDIA H100 80GB HBM3" libdirs=ollama,cuda_v12 driver=13.0 pci_id=0000:01:00.0 type=discrete total="79.2 GiB" available="79.2 GiB"';
const begin = 'load_tensors: loading model tensors, this can take a while... (load_mode = mmap)';
const all = 'load_tensors: offloaded 3/3 layers to GPU';
const some = 'load_tensors: offloaded 2/3 layers to GPU';
const none = 'load_tensors: offloaded 0/3 layers to GPU';
const mapped = 'load_tensors:   CPU_Mapped model buffer size =     0.60 MiB';
const amx = 'load_tensors:          AMX model buffer size =     0.67 MiB';
const cuda = 'load_tensors:        CUDA0 model buffer size =     0.68 MiB';
const failed = '0.00.158.482 E ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected';
const short =
  'common_params_fit_impl: cannot meet free memory target of 1024 MiB, need to reduce device memory by 963 MiB';
const onGpu = [begin, all, mapped, cuda];
const onCpu = [failed, begin, amx, mapped];

function judged(...lines: readonly string[]): readonly [string, string | null] {
  const { mode, reason } = judgeLog(ollama, [device, ...lines]);
  return [mode, reason];
}

test('a model that is loaded on the GPU leaves the verdict as it is', () => {
  assert.deepEqual(judged(...onGpu), ['gpu', null]);
});

test('a later model on the CPU outweighs the line of the start', () => {
  assert.deepEqual(judged(...onGpu, ...onCpu), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(begin, mapped), ['degraded', 'model-on-cpu']);
});

test("ggml's failure behind llama.cpp's time and level is seen, and is enough", () => {
  assert.deepEqual(judged(failed), ['degraded', 'model-on-cpu']);
  const { evidence } = judgeLog(ollama, [device, failed]);
  assert.ok(
    evidence.some(({ text, weight }) => text.includes('failed to initialize') && weight === 'against'),
  );
});

test('every expression of a profile for a line at its begin fits behind that prefix too', () => {
  const hints = judgeLog(ollama, [failed]);
  assert.equal(hints.hint, 'no-device');
  assert.equal(judgeLog(ollama, [`x ${failed}`]).hint, null, 'the prefix is one only at the begin of a line');
});

test('a still later model on the GPU is the newest', () => {
  assert.deepEqual(judged(...onCpu, ...onGpu), ['gpu', null]);
});

test('a load that has only begun says nothing yet: the one before it counts', () => {
  assert.deepEqual(judged(...onCpu, begin), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(...onGpu, begin), ['gpu', null]);
});

test('a message about short device memory belongs to the load that follows, in any order of its first lines', () => {
  const shortOf = (...lines: readonly string[]): string | null | undefined => {
    const { load } = judgeLog(ollama, [device, ...lines]);
    return load?.short === null ? null : load?.short.text;
  };
  assert.equal(shortOf(short, begin, some), short);
  assert.equal(shortOf(...onGpu, short, begin, some), short);
  assert.equal(shortOf(short, some, mapped), short);
  assert.equal(shortOf(short, begin, some, ...onGpu), null, 'the newest load was not short of it');
  assert.equal(shortOf(...onGpu, short), null, 'what is loading now lies nowhere yet');
  assert.deepEqual(judged(short), ['gpu', null], 'it may fit all the same, with a smaller context');
});

test('layers on the CPU degrade, some of them as all', () => {
  assert.deepEqual(judged(begin, some, mapped, cuda), ['degraded', 'layers-not-offloaded']);
  assert.deepEqual(judged(begin, none, mapped), ['degraded', 'layers-not-offloaded']);
});

test('attempts during discovery are older than the devices that it found', () => {
  assert.equal(judgeLog(ollama, [failed, device]).mode, 'gpu');
  assert.equal(judgeLog(ollama, [failed, begin, mapped, device]).load, null);
});

test('a start on the CPU keeps its own reason', () => {
  const cpu = device.replace('library=CUDA compute=9.0', 'library=cpu compute=""');
  const findings = judgeLog(ollama, [cpu, begin, mapped]);
  assert.deepEqual([findings.mode, findings.reason], ['cpu', null]);
});

test("the Ollama engine's own words, and those of older servers, are read", () => {
  const engine =
    'time=2026-11-22T12:46:34.573Z level=INFO source=ggml.go:494 msg="offloaded 20/33 layers to GPU"';
  assert.deepEqual(judged(engine), ['degraded', 'layers-not-offloaded']);
  assert.deepEqual(judged('llm_load_tensors: offloaded 33/33 layers to GPU'), ['gpu', null]);
  assert.deepEqual(judged('llm_load_tensors:        CPU buffer size =  3647.87 MiB'), [
    'degraded',
    'model-on-cpu',
  ]);
});

test('a line that was cut short places nothing', () => {
  const judge = logJudges(ollama)();
  for (const [text, truncated] of [
    [device, false],
    [failed, true],
  ] as const) {
    judge.push({ text, source: 'x', invocationId: null, pid: null, speaker: 'consumer', truncated });
  }
  assert.equal(judge.findings().load, null);
});

test('llama-server tells its model the same way', () => {
  const start = [
    'ggml_cuda_init: found 1 CUDA devices (Total VRAM: 81079 MiB):',
    '  Device 0: NVIDIA H100 80GB HBM3, compute capability 9.0, VMM: yes',
  ];
  assert.equal(judgeLog(llamaServer, [...start, ...onGpu]).mode, 'gpu');
  assert.deepEqual(judgeLog(llamaServer, [...start, begin, none, mapped]).reason, 'layers-not-offloaded');
});

test('weights that are all in main memory degrade, whatever number of layers is called offloaded', () => {
  assert.deepEqual(judged(begin, all, mapped), ['degraded', 'model-on-cpu']);
});

test('a KV cache in main memory is a part on the CPU, and is named', () => {
  const cache = 'llama_kv_cache_unified:        CPU KV buffer size =     2.00 MiB';
  assert.deepEqual(judged(...onGpu, cache), ['degraded', 'layers-not-offloaded']);
  const { evidence } = judgeLog(ollama, [device, ...onGpu, cache]);
  assert.ok(evidence.some(({ text }) => text === 'the KV cache is on the CPU'));
  assert.deepEqual(judged(...onGpu, cache.replace('CPU KV', 'CUDA0 KV')), ['gpu', null]);
});

/** llama-server as a router: it starts a child for each model, and shows their lines behind their ports. */
const router = [
  '0.00.000.100 I ggml_cuda_init: found 1 CUDA devices (Total VRAM: 24112 MiB):',
  '0.00.000.110 I   Device 0: NVIDIA RTX A5000, compute capability 8.6, VMM: yes, VRAM: 24112 MiB',
  '0.00.056.149 I srv  llama_server: router server is listening on http://127.0.0.1:8080',
];
const child = (port: number, name: string, ...lines: readonly string[]): readonly string[] => [
  `0.07.940.110 I srv          load: spawning server instance with name=${name} on port ${port}`,
  ...router
    .slice(0, 2)
    .concat(lines)
    .map(
      (line) => `[${String(port).padStart(5)}] ${line.startsWith('0.') ? line : `0.01.000.100 I ${line}`}`,
    ),
];
const gone = (name: string): string =>
  `0.09.000.000 I srv    operator(): instance name=${name} exited with status 0`;

test('what the children of a router have loaded decides: all of them, as long as they live', () => {
  const gpu = child(8081, 'a', ...onGpu);
  const cpu = child(45895, 'b', begin, none, mapped);
  const by = (...lines: readonly string[]): readonly [string, string | null] => {
    const { mode, reason } = judgeLog(llamaServer, [...router, ...lines]);
    return [mode, reason];
  };
  const onCpuOnly = ['degraded', 'layers-not-offloaded'];
  assert.deepEqual(by(), ['gpu', null]);
  assert.deepEqual(by(...gpu), ['gpu', null]);
  assert.deepEqual(by(...cpu), onCpuOnly);
  assert.deepEqual(by(...gpu, gone('a'), ...cpu), onCpuOnly, 'it was replaced');
  assert.deepEqual(by(...cpu, gone('b'), ...gpu), ['gpu', null], 'it is gone');
  assert.deepEqual(by(...cpu, ...gpu), onCpuOnly, 'one of each, the GPU last');
  const { evidence } = judgeLog(llamaServer, [...router, ...gpu, ...cpu]);
  assert.ok(evidence.some(({ text }) => text === 'mixed: 1 of 2 loaded models is wholly on the GPU'));
  assert.deepEqual(by(...child(1, 'c', failed)), ['degraded', 'model-on-cpu']);
});

// Journals of a real Ollama 0.32.9 (other lines left out) that were called GPU while a model ran on the CPU.
for (const [name, says] of [
  ['host-lost', 'the host was killed under a loaded model and came back'],
  ['session-refused', 'the third model got no session: hostd.conf allows two'],
] as const) {
  test(`a real journal: ${says}`, () => {
    const text = readFileSync(path.join(packageRoot(), `test/fixtures/ollama-loads/${name}.log`), 'utf8');
    const findings = judgeLog(ollama, text.split('\n'));
    assert.deepEqual([findings.mode, findings.reason], ['degraded', 'model-on-cpu']);
    const against = findings.evidence.filter(({ weight }) => weight === 'against').map((one) => one.text);
    assert.ok(against.some((line) => /^\d\.\d\d\..* E ggml_cuda_init: failed to initialize CUDA/.test(line)));
    assert.ok(against.some((line) => line.includes('CPU_Mapped model buffer size')));
  });
}

/** The findings after these words; a word may carry layers: `layers 2/3`. */
function after(...words: readonly string[]): LoadFindings | null {
  let loads = noLoads;
  words.forEach((word, at) => {
    const [says = '', layers = ''] = word.split(' ');
    const [gpu, of] = layers === '' ? [undefined, undefined] : layers.split('/');
    const quote = { kind: 'log-line', text: word, source: `line ${at}` } as const;
    loads = afterLine(loads, says as LoadRule['says'], { gpu, all: of }, quote);
  });
  return newestLoad(loads);
}

test('the words of one load together place it', () => {
  const placed: readonly (readonly [string, LoadFindings['outcome'] | null])[] = [
    ['', null],
    ['begin', null],
    ['gpu', 'gpu'],
    ['cpu', 'cpu'],
    ['failed', 'cpu'],
    ['cpu,gpu', 'gpu'],
    ['gpu,cpu', 'gpu'],
    ['failed,begin,cpu', 'cpu'],
    ['failed,begin,gpu', 'gpu'],
    ['layers 3/3', 'gpu'],
    ['layers 0/3', 'cpu'],
    ['layers 1/3', 'partly'],
    ['layers 0/3,gpu', 'cpu'],
    ['layers 3/3,cpu', 'cpu'],
    ['layers 3/3,cpu,gpu', 'gpu'],
    ['layers 3/3,cpu,gpu,cache-cpu', 'partly'],
    ['gpu,cache-cpu', 'partly'],
    ['layers 0/3,cache-cpu', 'cpu'],
    ['cpu,cache-cpu', 'cpu'],
    ['cache-cpu', null],
    ['layers 4/3', null],
    ['layers 0/0', null],
    ['layers', null],
  ];
  for (const [words, outcome] of placed)
    assert.equal(after(...words.split(',').filter((one) => one !== ''))?.outcome ?? null, outcome, words);
});

test('a load that failed is told until the next one begins, and places nothing', () => {
  const failed = (...words: readonly LoadRule['says'][]): string | null => {
    const quote = (text: string) => ({ kind: 'log-line', text, source: 'line 1' }) as const;
    const loads = words.reduce((before, says) => afterLine(before, says, {}, quote(says)), noLoads);
    return loadError(loads)?.text ?? null;
  };
  assert.equal(failed('begin', 'gpu', 'error'), 'error');
  assert.equal(failed('error', 'error'), 'error');
  for (const next of ['begin', 'gpu', 'failed', 'short'] as const) assert.equal(failed('error', next), null);
  assert.equal(after('error'), null);
  assert.equal(after('begin', 'gpu', 'begin', 'error')?.outcome, 'gpu', 'of the one before');
});

test('another load begins with its own words, not with what belongs to the one before', () => {
  const placed: readonly (readonly [string, LoadFindings['outcome']])[] = [
    ['gpu,failed', 'cpu'],
    ['gpu,begin,cpu', 'cpu'],
    ['cpu,begin,gpu', 'gpu'],
    ['cpu,begin', 'cpu'],
    ['layers 3/3,layers 0/3', 'cpu'],
    ['layers 0/3,failed,begin,gpu', 'gpu'],
    ['gpu,begin,begin', 'gpu'],
    ['begin,gpu,begin,failed', 'cpu'],
  ];
  for (const [words, outcome] of placed) assert.equal(after(...words.split(','))?.outcome, outcome, words);
});

test('the last four lines that place a load are kept', () => {
  const found = after('failed', 'begin', 'cpu', 'cpu', 'cpu', 'cpu');
  assert.deepEqual(
    found?.quotes.map(({ source }) => source),
    ['line 2', 'line 3', 'line 4', 'line 5'],
  );
  assert.equal(found?.failed, true);
  assert.deepEqual(after('begin', 'layers 1/3')?.layers, { gpu: 1, all: 3 });
});

test('a count of layers that cannot be one says nothing', () => {
  const quote = { kind: 'log-line', text: 'x', source: 'line 1' } as const;
  for (const groups of [
    { gpu: '4', all: '3' },
    { gpu: '0', all: '0' },
    { gpu: 'x', all: '3' },
    { all: '3' },
    { gpu: '3' },
    {},
  ])
    assert.equal(afterLine(noLoads, 'layers', groups, quote), noLoads, JSON.stringify(groups));
  assert.deepEqual(newestLoad(afterLine(noLoads, 'layers', { gpu: '3', all: '3' }, quote))?.layers, {
    gpu: 3,
    all: 3,
  });
  const onGpu = newestLoad(afterLine(noLoads, 'gpu', { gpu: '3', all: '3' }, quote));
  assert.equal(onGpu?.layers, null, 'another line that has two numbers counts none');
});
