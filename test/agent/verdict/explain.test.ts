import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { maxLineBytes } from '../../../agent/verdict/log/entry.js';
import { explainLog } from '../../../agent/verdict/log/judge.js';
import { random } from './random.js';
import { fixtureText, llamaServer, manifest, ollama } from './support.js';

function judge(text: string | Buffer | Iterable<Buffer | string>) {
  const chunks = typeof text === 'string' || Buffer.isBuffer(text) ? [text] : text;
  return explainLog(ollama, Readable.from(chunks));
}

const names = [
  '0.32.9_gpu-mode_debug0',
  '0.13.5_gpu-mode_debug2',
  '0.11.11_cuinit3_debug1',
  '0.32.9_v12dir-driver535_debug0',
  '0.32.9_native-probe-crash_debug0',
];

const prefixes: Readonly<Record<string, (line: string) => string>> = {
  'journalctl -o short': (line) => `Nov 21 08:00:00 host ollama[123]: ${line}`,
  'journalctl -o short-precise': (line) => `Nov  1 08:00:00.123456 host.example ollama[123]: ${line}`,
  'journalctl -o short-iso': (line) => `2026-11-21T08:00:00+0100 host ollama[123]: ${line}`,
  'journalctl -o short-iso-precise': (line) => `2026-11-21T08:00:00.123456+01:00 host ollama[123]: ${line}`,
  'journalctl -o short-full': (line) => `Sat 2026-11-21 08:00:00 UTC host ollama[123]: ${line}`,
  'journalctl -o short-unix': (line) => `1795248000.123456 host ollama[123]: ${line}`,
  'journalctl -o short-monotonic': (line) => `[   12.123456] host ollama[123]: ${line}`,
  'journalctl --no-hostname': (line) => `Nov 21 08:00:00 ollama[123]: ${line}`,
  'journalctl -o with-unit': (line) => `Sat 2026-11-21 08:00:00 UTC host ollama.service[123]: ${line}`,
  'docker compose logs': (line) => `ollama-1  | ${line}`,
  'docker compose up in a journal': (line) => `\u001b[2Kollama-1  | ${line}`,
  'docker compose up in a journal, short': (line) =>
    `Nov 21 08:00:00 host docker[123]: \u001b[2Kollama-1  | ${line}`,
  'docker compose up in a journal, as JSON': (line) =>
    JSON.stringify({
      SYSLOG_IDENTIFIER: 'docker',
      MESSAGE: [...Buffer.from(`\u001b[2Kollama-1  | ${line}`)],
    }),
  'a file from Windows': (line) => `${line}\r`,
};

for (const [format, wrap] of Object.entries(prefixes)) {
  test(`${format} is judged as the bare log`, async () => {
    for (const name of names) {
      const bare = await judge(fixtureText(name));
      const wrapped = await judge(fixtureText(name).split('\n').map(wrap).join('\n'));
      assert.deepEqual(
        {
          mode: wrapped.mode,
          devices: wrapped.devices,
          reason: wrapped.reason,
          version: wrapped.version,
          hint: wrapped.hint,
        },
        {
          mode: bare.mode,
          devices: bare.devices,
          reason: bare.reason,
          version: bare.version,
          hint: bare.hint,
        },
        name,
      );
    }
  });
}

function json(line: string, fields: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({
    MESSAGE: line,
    _PID: '123',
    SYSLOG_IDENTIFIER: 'ollama',
    _SYSTEMD_UNIT: 'ollama.service',
    _SYSTEMD_INVOCATION_ID: 'a'.repeat(32),
    ...fields,
  });
}

test('journalctl -o json is judged as the bare log, for all 76', async () => {
  for (const { file } of manifest()) {
    const text = fixtureText(file.replace(/^ollama-|\.log$/g, ''));
    const bare = await judge(text);
    const wrapped = await judge(
      text
        .split('\n')
        .map((line) => json(line))
        .join('\n'),
    );
    assert.deepEqual(
      [wrapped.mode, wrapped.devices, wrapped.reason],
      [bare.mode, bare.devices, bare.reason],
      file,
    );
  }
});

test('MESSAGE as bytes, as a list, as null and of several lines is read', async () => {
  const text = fixtureText('0.32.9_gpu-mode_debug0').trim();
  const bytes = [...Buffer.from(text), 0xff];
  assert.equal((await judge(json('', { MESSAGE: bytes }))).mode, 'gpu');
  assert.equal((await judge(json('', { MESSAGE: [text, 'x'] }))).mode, 'gpu');
  assert.equal((await judge(json('', { MESSAGE: null }))).mode, 'undetermined');
  assert.equal((await judge(json(text))).mode, 'gpu');
});

test('in JSON, another invocation is another start', async () => {
  const gpu = fixtureText('0.32.9_gpu-mode_debug0')
    .split('\n')
    .filter((line) => line.includes('inference compute'));
  const cpu = fixtureText('0.32.9_count0_debug0')
    .split('\n')
    .filter((line) => line.includes('inference compute'));
  const text = [
    ...gpu.map((line) => json(line)),
    ...cpu.map((line) => json(line, { _SYSTEMD_INVOCATION_ID: 'b'.repeat(32) })),
  ];
  assert.equal((await judge(text.join('\n'))).mode, 'cpu');
  assert.equal((await judge(text.reverse().join('\n'))).mode, 'gpu');
});

test('a restart in journalctl -o short whose new start says nothing is undetermined', async () => {
  const before = fixtureText('0.32.9_gpu-mode_debug0')
    .split('\n')
    .map((line) => `Nov 21 08:00:00 host ollama[123]: ${line}`);
  const text = [
    ...before,
    'Nov 21 08:00:05 host systemd[1]: ollama.service: Main process exited, code=exited, status=1/FAILURE',
    'Nov 21 08:00:08 host systemd[1]: Started ollama.service - Ollama Service.',
    'Nov 21 08:00:08 host ollama[130]: Error: listen tcp 127.0.0.1:11434: bind: address already in use',
  ];
  assert.equal((await judge(text.join('\n'))).mode, 'undetermined');
  const rebooted = [
    ...before,
    '-- Boot 0123456789abcdef0123456789abcdef --',
    'Nov 21 09:00:00 host systemd[1]: Started ollama.service - Ollama Service.',
  ];
  assert.equal((await judge(rebooted.join('\n'))).mode, 'undetermined');
});

test('another process of llama-server is another start', async () => {
  const device = '  Device 0: NVIDIA H100, compute capability 9.0, VMM: yes';
  const text = `Nov 21 08:00:00 host llama-server[10]: ${device}\nNov 21 08:01:00 host llama-server[20]: build: 5177 (80982e81) with cc\n`;
  assert.equal((await explainLog(llamaServer, Readable.from([text]))).mode, 'undetermined');
});

test('wherever the chunks end, the verdict is the same', async () => {
  const bytes = Buffer.from(fixtureText('0.32.9_gpu_model-load_debug0'));
  const whole = await judge(bytes);
  const next = random(5);
  for (let round = 0; round < 30; round += 1) {
    const chunks: Buffer[] = [];
    for (let at = 0; at < bytes.length; ) {
      const end = at + 1 + next(round === 0 ? 1 : 4_000);
      chunks.push(bytes.subarray(at, end));
      at = end;
    }
    assert.deepEqual(await judge(chunks), whole);
  }
});

test('evidence names its line', async () => {
  const text = fixtureText('0.32.9_v12dir-driver535_debug0');
  const findings = await judge(text);
  const number = text.split('\n').findIndex((line) => line.includes('msg="inference compute"')) + 1;
  assert.equal(findings.evidence[0]?.source, `line ${number}`);
  assert.match(findings.evidence[0]?.text ?? '', /library=cpu/);
  assert.ok(findings.evidence.some(({ text: quoted }) => quoted.includes('NVIDIA driver too old')));
});

test('an empty log is undetermined', async () => {
  for (const text of ['', '\n', '\n\n\n', '\0\0\0']) {
    const findings = await judge(text);
    assert.equal(findings.mode, 'undetermined');
    assert.equal(findings.reason, 'no-discovery-line');
  }
});

test('a line without an end is cut and does not count', async () => {
  const gpu =
    fixtureText('0.32.9_gpu-mode_debug0')
      .split('\n')
      .find((line) => line.includes('inference compute')) ?? '';
  const padded = `${gpu} padding=${'x'.repeat(maxLineBytes)}`;
  const findings = await judge(`${padded}\n`);
  assert.equal(findings.mode, 'undetermined');
  assert.equal((await judge(`${'x'.repeat(maxLineBytes * 3)}\n${gpu}\n`)).mode, 'gpu');
});

test('half a JSON entry announces nothing', async () => {
  const device = '  Device 0: NVIDIA H100, compute capability 9.0, VMM: yes';
  const half = json(device).slice(0, -5);
  assert.equal((await explainLog(llamaServer, Readable.from([half]))).mode, 'undetermined');
});

test('a stream that fails rejects with its error', async () => {
  async function* broken(): AsyncGenerator<string> {
    yield 'x\n';
    throw new Error('read failed');
  }
  await assert.rejects(explainLog(ollama, broken()), /read failed/);
});

test('24 MB are judged in a heap of 24 MB, so nothing is kept of them', () => {
  const program = `
    import { Readable } from 'node:stream';
    import { explainLog } from '${packageRoot()}/dist/agent/verdict/log/judge.js';
    import { loadProfile } from '${packageRoot()}/dist/agent/profile/load.js';
    import { readFileSync } from 'node:fs';
    const noise = readFileSync(0);
    const rounds = Math.ceil((24 * 1024 * 1024) / noise.length);
    const chunks = function* () {
      for (let round = 0; round < rounds; round += 1) yield noise;
    };
    const { mode, starts } = await explainLog(loadProfile('ollama'), Readable.from(chunks()));
    console.log(mode, starts === rounds);
  `;
  // A process of its own: node:test follows each promise, which takes ten times as long as the work.
  const options = ['--max-old-space-size=24', '--input-type=module', '--eval', program];
  const input = `${fixtureText('0.32.9_gpu_model-load_debug0')}\n`;
  const ran = spawnSync(process.execPath, options, { input, encoding: 'utf8' });
  assert.equal(ran.stdout, 'gpu true\n', ran.stderr);
});
