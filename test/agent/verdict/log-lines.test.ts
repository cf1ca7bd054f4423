/** From the bytes of a log to its entries: what journalctl, syslog and docker put around a line is taken away. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  entriesOfJson,
  entryOfLine,
  type LogEntry,
  maxLineBytes,
  readEntries,
} from '../../../agent/verdict/log/entry.js';
import { explainLog } from '../../../agent/verdict/log/judge.js';
import { ollama } from './support.js';

async function read(...chunks: readonly (Buffer | string)[]): Promise<readonly LogEntry[]> {
  const stream = async function* (): AsyncIterable<Buffer | string> {
    yield* chunks;
  };
  const entries: LogEntry[] = [];
  for await (const entry of readEntries(stream())) entries.push(entry);
  return entries;
}
const texts = async (...chunks: readonly (Buffer | string)[]): Promise<readonly string[]> =>
  (await read(...chunks)).map(({ text }) => text);

test('each line is an entry with its number, a blank one too', async () => {
  assert.deepEqual(await texts('a\n\nb\n'), ['a', '', 'b']);
  assert.deepEqual(await texts('a\nb'), ['a', 'b']);
  assert.deepEqual(await texts(''), []);
  assert.deepEqual(
    (await read('a\n', 'b\nc')).map(({ source, truncated }) => [source, truncated]),
    [
      ['line 1', false],
      ['line 2', false],
      ['line 3', false],
    ],
  );
});

test('a carriage return is part of the end of a line only', async () => {
  assert.deepEqual(await texts('a\r\nb\rc\r\n\r\n'), ['a', 'b\rc', '']);
});

test('a line may come in pieces, and a piece may end within a character', async () => {
  const bytes = Buffer.from('one é two\nthree\n');
  for (let at = 0; at <= bytes.length; at += 1)
    assert.deepEqual(await texts(bytes.subarray(0, at), bytes.subarray(at)), ['one é two', 'three']);
  assert.deepEqual(await texts('one ', 'é', ' two\nth', 'ree'), ['one é two', 'three']);
});

test('64 KiB of a longer line are kept, and that is reported; the next line is whole', async () => {
  const whole = 'x'.repeat(maxLineBytes);
  const cut = async (...chunks: readonly string[]) =>
    (await read(...chunks)).map(({ text, truncated }) => [text.length, truncated]);
  assert.deepEqual(await cut(`${whole}\nb\n`), [
    [maxLineBytes, false],
    [1, false],
  ]);
  const longer = [
    [maxLineBytes, true],
    [1, false],
  ];
  assert.deepEqual(await cut(`${whole}y\nb\n`), longer);
  assert.deepEqual(await cut(whole, 'y', 'y', '\nb'), longer);
  assert.deepEqual(await cut('x', whole, '\nb'), longer);
  assert.deepEqual(await cut(whole, '\nb'), [
    [maxLineBytes, false],
    [1, false],
  ]);
  assert.deepEqual(await cut(`${whole}y`), [[maxLineBytes, true]], 'at the end of the stream');
});

test('a line of JSON is read as journalctl writes it, with the separator of json-seq or without', async () => {
  const record = JSON.stringify({ MESSAGE: 'hello', _PID: '7' });
  for (const line of [record, `\u001e${record}`]) {
    const [entry] = await read(`${line}\n`);
    assert.deepEqual([entry?.text, entry?.pid, entry?.truncated], ['hello', 7, false]);
  }
  assert.deepEqual(await texts(`\u001eplain\nend\u001e\n`), ['plain', 'end\u001e']);
});

test('JSON that is cut, or is no entry of a journal, is a line of which something is missing', async () => {
  const record = JSON.stringify({ MESSAGE: 'hello' });
  for (const line of [record.slice(0, -2), '{"x":1}']) {
    const [entry] = await read(`${line}\n`);
    assert.deepEqual([entry?.text, entry?.truncated], [line, true]);
  }
  const [long] = await read(`${JSON.stringify({ MESSAGE: 'x'.repeat(maxLineBytes) })}\n`);
  assert.deepEqual([long?.text.length, long?.truncated], [maxLineBytes, true]);
  assert.deepEqual(await texts('not {"MESSAGE":"x"}\n'), ['not {"MESSAGE":"x"}']);
});

const stamps = [
  'Nov 21 08:00:00 host ',
  'Nov  1 08:00:00.123456 host.example ',
  '2026-11-21T08:00:00+0100 host ',
  '2026-11-21T08:00:00.123456+01:00 host ',
  '2026-11-21T08:00:00Z host ',
  'Sat 2026-11-21 08:00:00 UTC host ',
  '1795248000.123456 host ',
  '[   12.123456] host ',
  'Nov 21 08:00:00 ',
];

test('the prefix of a line from a journal or a syslog is removed', () => {
  for (const stamp of stamps) {
    const entry = (line: string) => {
      const { text, pid, speaker } = entryOfLine(`${stamp}${line}`, 'x', false);
      return [text, pid, speaker];
    };
    assert.deepEqual(entry('ollama[123]: hello: you'), ['hello: you', 123, 'consumer'], stamp);
    assert.deepEqual(entry('ollama: hello'), ['hello', null, 'consumer'], stamp);
    assert.deepEqual(entry('ollama[123]:'), ['', 123, 'consumer'], stamp);
    assert.deepEqual(entry('systemd[1]: Started x.'), ['Started x.', 1, 'manager'], stamp);
    assert.deepEqual(entry('docker[9]: web-1  | hello'), ['hello', 9, 'consumer'], stamp);
    assert.deepEqual(entry('docker-compose[9]: web-1  | hello'), ['hello', 9, 'consumer'], stamp);
    assert.deepEqual(entry('other[9]: web-1  | hello'), ['web-1  | hello', 9, 'consumer'], stamp);
  }
});

test('text that only resembles such a prefix belongs to the line', () => {
  for (const line of [
    'time=2026-11-21T00:22:29.592Z level=INFO msg="x"',
    '2026-11-21T08:00:00Z',
    'x Nov 21 08:00:00 host ollama[123]: hello',
    'Nov 21 08:00:00 host ollama[123] hello',
    'Nov 21 08:00:00 host ollama[123]:hello',
    'Nov 21 08:00:00 host ollama[12345678901]: hello',
  ])
    assert.deepEqual(entryOfLine(line, 'line 1', true), {
      ...{ source: 'line 1', invocationId: null, truncated: true },
      ...{ text: line, pid: null, speaker: 'consumer' },
    });
});

test("a compose service's name before a line is taken away, with its colours", () => {
  for (const line of ['web-1  | hello', '\u001b[2Kweb-1  | hello', '\u001b[36mweb_1 |\u001b[0m hello'])
    assert.equal(entryOfLine(line, 'x', false).text, 'hello', JSON.stringify(line));
  assert.equal(entryOfLine('web-1  |', 'x', false).text, '');
  for (const line of ['a b | hello', 'web-1| hello', '| hello', 'web-1 |hello'])
    assert.equal(entryOfLine(line, 'x', false).text, line);
});

test('the line between two boots is recognised', () => {
  for (const line of ['-- Reboot --', `-- Boot ${'0a'.repeat(16)} --`]) {
    const { text, pid, speaker } = entryOfLine(line, 'x', false);
    assert.deepEqual([text, pid, speaker], [line, null, 'boundary']);
  }
  for (const line of [
    '-- Boot 0a --',
    `-- Boot ${'zz'.repeat(16)} --`,
    'x -- Reboot --',
    '-- Reboot -- x',
    '-- No entries --',
  ])
    assert.equal(entryOfLine(line, 'x', false).speaker, 'consumer', line);
});

const ofJson = (record: unknown) => entriesOfJson(JSON.stringify(record), 'line 3');

test('an entry of the journal has its process, its start and its lines', () => {
  const invocation = 'a'.repeat(32);
  const record = { MESSAGE: 'one\ntwo', _PID: '12', _SYSTEMD_INVOCATION_ID: invocation };
  const common = {
    source: 'line 3',
    invocationId: invocation,
    pid: 12,
    speaker: 'consumer',
    truncated: false,
  };
  assert.deepEqual(ofJson(record), [
    { ...common, text: 'one' },
    { ...common, text: 'two' },
  ]);
  const [bare] = ofJson({ MESSAGE: 'x', _SYSTEMD_INVOCATION_ID: [1] }) ?? [];
  assert.deepEqual([bare?.pid, bare?.invocationId], [null, null]);
  for (const pid of ['0', '-1', '1.5', 'x', ''])
    assert.equal(ofJson({ MESSAGE: 'x', _PID: pid })?.[0]?.pid, null, pid);
});

test('systemd speaks in an entry of process 1 under its name', () => {
  const speaker = (fields: object) => ofJson({ MESSAGE: 'x', ...fields })?.[0]?.speaker;
  assert.equal(speaker({ _PID: '1', SYSLOG_IDENTIFIER: 'systemd' }), 'manager');
  assert.equal(speaker({ _PID: '2', SYSLOG_IDENTIFIER: 'systemd' }), 'consumer', 'the manager of a user');
  assert.equal(speaker({ _PID: '1', SYSLOG_IDENTIFIER: 'kernel' }), 'consumer');
});

test("in an entry of docker the service's name is taken away, in others it is the text", () => {
  const text = (identifier: string) =>
    ofJson({ MESSAGE: 'web-1  | hello', SYSLOG_IDENTIFIER: identifier })?.[0]?.text;
  assert.equal(text('docker'), 'hello');
  assert.equal(text('docker-compose'), 'hello');
  assert.equal(text('ollama'), 'web-1  | hello');
});

test('a message is a text, bytes, or a list of these; null has nothing', () => {
  const said = (message: unknown) => ofJson({ MESSAGE: message })?.map(({ text }) => text);
  assert.deepEqual(said('é'), ['é']);
  assert.deepEqual(said([...Buffer.from('é')]), ['é']);
  assert.deepEqual(said(['one', [...Buffer.from('two')], null]), ['one', 'two']);
  assert.deepEqual(said([7, 'one']), ['one'], 'a number among texts is none');
  assert.deepEqual(said([null]), []);
  assert.deepEqual(said([]), []);
  assert.deepEqual(said(null), []);
  assert.deepEqual(said(7), []);
  assert.deepEqual(said({ x: 1 }), []);
});

test('text that is not a journal entry is reported as such', () => {
  for (const record of [{}, { message: 'x' }, null, 7, 'MESSAGE', [1]])
    assert.equal(ofJson(record), null, JSON.stringify(record));
  assert.equal(entriesOfJson('{"MESSAGE":', 'x'), null);
});

test('a log from a file is judged to its end', async () => {
  const stream = async function* (): AsyncIterable<string> {
    yield 'time=2026-11-21T00:22:29.000Z level=INFO source=routes.go:1933 msg="server config" env="map[]"\n';
    yield 'time=2026-11-21T00:22:29.665Z level=INFO source=types.go:32 msg="inference compute" library=cpu compute=""';
  };
  const findings = await explainLog(ollama, stream());
  assert.deepEqual([findings.mode, findings.entries], ['cpu', 2]);
});

const said =
  'time=2026-10-05T09:00:13.600+02:00 level=INFO source=types.go:32 msg="inference compute" library=CUDA';
const cuda = 'ggml_cuda_init: found 1 CUDA devices';

test("journalctl's times are told in any language", () => {
  for (const stamp of [
    'févr. 03 22:46:04',
    'feb 03 22:46:04.123456',
    '2月 03 22:46:04',
    ' 2月 03 22:46:04',
    'фев  3 22:46:04',
    'thg 2 03 22:46:04',
    'mar. 2026-02-03 22:46:04 CET',
    '火 2026-02-03 22:46:04 JST',
  ]) {
    const entry = entryOfLine(`${stamp} vm1 ollama[563895]: ${said}`, 'line 1', false);
    assert.deepEqual([entry.text, entry.pid], [said, 563_895], stamp);
    assert.equal(entryOfLine(`${stamp} vm1 systemd[1]: Started x`, 'line 1', false).speaker, 'manager');
  }
});

test('the times of docker logs -t are taken away, and nothing of the line', () => {
  for (const stamp of [
    '2026-02-03T22:46:04.123456789Z',
    '2026-02-03T22:46:04.1234Z',
    '2026-02-03T22:46:04Z',
    '2026-02-03T22:46:04.123456789+01:00',
  ]) {
    for (const text of [said, cuda, `0.00.000.100 I ${cuda}`, 'load_backend: loaded CUDA backend'])
      assert.equal(entryOfLine(`${stamp} ${text}`, 'line 1', false).text, text);
    assert.equal(entryOfLine(`ollama-1  | ${stamp} ${said}`, 'line 1', false).text, said);
  }
  const syslog = `2026-02-03T22:46:04.123456Z vm1 ollama[7]: ${cuda}`;
  assert.equal(entryOfLine(syslog, 'line 1', false).text, cuda);
});
