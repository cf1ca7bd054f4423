/** Promise: false `gpu` verdicts: none. CPU logs are cut, shuffled, mixed and flipped; the verdict must never be `gpu`. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { random } from './random.js';
import { fixtureText, judgeLog, manifest, ollama } from './support.js';

const rounds = Number(process.env['VGPU_TEST_ROUNDS'] ?? 60);
const gpuLog = fixtureText('0.32.9_gpu_model-load_debug0').split('\n');

type Mutation = (lines: string[], next: (below: number) => number) => string[];

const mutations: Readonly<Record<string, Mutation>> = {
  'lines cut at a random place': (lines, next) =>
    lines.map((line) => (next(3) === 0 ? line.slice(0, next(line.length + 1)) : line)),
  'lines shuffled': (lines, next) => {
    const shuffled = [...lines];
    for (let at = shuffled.length - 1; at > 0; at -= 1) {
      const other = next(at + 1);
      [shuffled[at], shuffled[other]] = [shuffled[other] ?? '', shuffled[at] ?? ''];
    }
    return shuffled;
  },
  'lines dropped': (lines, next) => lines.filter(() => next(4) !== 0),
  'lines run together': (lines, next) => {
    const joined: string[] = [];
    for (const line of lines) {
      if (next(4) === 0 && joined.length > 0) joined[joined.length - 1] += line;
      else joined.push(line);
    }
    return joined;
  },
  'lines cut and run together': (lines, next) => {
    const joined: string[] = [];
    for (const line of lines) {
      const cut = next(3) === 0 ? line.slice(0, next(line.length + 1)) : line;
      if (next(3) === 0 && joined.length > 0) joined[joined.length - 1] += cut;
      else joined.push(cut);
    }
    return joined;
  },
  'single bytes changed': (lines, next) =>
    lines.map((line) => {
      const bytes = Buffer.from(line);
      for (let count = next(4); count > 0 && bytes.length > 0; count -= 1)
        bytes[next(bytes.length)] = next(256);
      return bytes.toString('utf8');
    }),
  'fields of other lines mixed in': (lines, next) => {
    const words = lines.flatMap((line) => line.split(' '));
    return lines.map((line) => {
      const parts = line.split(' ');
      for (let count = next(5); count > 0; count -= 1)
        parts.splice(next(parts.length + 1), 0, words[next(words.length)] ?? '');
      return parts.join(' ');
    });
  },
  'a former start on the GPU before it': (lines, next) => [...gpuLog.slice(next(40)), ...lines],
  'a former start on the GPU before it, this one cut off early': (lines, next) => {
    const begin = lines.findIndex((line) => line.includes('msg="server config"'));
    return [...gpuLog, ...lines.slice(0, begin + 1 + next(lines.length - begin))];
  },
};

const cpuLogs = manifest().filter(({ mode }) => mode === 'cpu');

test('there are CPU logs to try', () => {
  assert.ok(cpuLogs.length > 40);
});

for (const [name, mutate] of Object.entries(mutations)) {
  test(`a CPU log is never judged gpu: ${name}`, () => {
    const next = random(name.length * 7919);
    for (const { file } of cpuLogs) {
      const lines = fixtureText(file.replace(/^ollama-|\.log$/g, '')).split('\n');
      for (let round = 0; round < rounds / 10; round += 1) {
        const mutated = mutate([...lines], next);
        const findings = judgeLog(ollama, mutated);
        assert.notEqual(
          findings.mode,
          'gpu',
          `${file}, round ${round}:\n${mutated.filter((line) => line.includes('inference compute')).join('\n')}`,
        );
      }
    }
  });
}

test('a degraded log is never judged gpu, cut wherever it is', () => {
  const next = random(99);
  const lines = fixtureText('0.32.9_native-probe-crash_debug1').split('\n');
  for (let round = 0; round < rounds; round += 1) {
    for (const mutate of Object.values(mutations).slice(0, 5)) {
      assert.notEqual(judgeLog(ollama, mutate([...lines], next)).mode, 'gpu');
    }
  }
});

test('every prefix of a GPU announcement is something else than gpu, until it is whole', () => {
  const line = gpuLog.find((text) => text.includes('msg="inference compute"')) ?? '';
  const compute = line.indexOf('compute=9.0') + 'compute=9.0'.length;
  assert.ok(compute > 20);
  for (let end = 0; end < compute; end += 1) {
    assert.notEqual(judgeLog(ollama, [line.slice(0, end)]).mode, 'gpu', line.slice(0, end));
  }
});
