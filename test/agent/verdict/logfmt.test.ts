import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseLogfmt } from '../../../agent/verdict/log/logfmt.js';
import { random } from './random.js';

function fieldsOf(line: string): Readonly<Record<string, string>> {
  const parsed = parseLogfmt(line);
  assert.equal(parsed.kind, 'record', line);
  return parsed.kind === 'record' ? Object.fromEntries(parsed.fields) : {};
}

test('plain and quoted keys and values are read', () => {
  assert.deepEqual(
    fieldsOf(
      'time=2026-11-21T00:39:52.009Z level=INFO msg="entering low vram mode" "total vram"="0 B" empty= q=""',
    ),
    {
      time: '2026-11-21T00:39:52.009Z',
      level: 'INFO',
      msg: 'entering low vram mode',
      'total vram': '0 B',
      empty: '',
      q: '',
    },
  );
});

test("every escape of Go's strconv.Quote is undone", () => {
  assert.deepEqual(fieldsOf('a="\\a\\b\\f\\n\\r\\t\\v\\\\\\"\\\'" b="\\x41\\u00e9\\U0001F600\\101"'), {
    a: '\x07\b\f\n\r\t\v\\"\'',
    b: 'Aé😀A',
  });
});

test('escaped bytes that form one UTF-8 character become it, others the replacement', () => {
  assert.deepEqual(fieldsOf('a="\\xc3\\xa9" b="\\xff" c="\\303\\251"'), { a: 'é', b: '\uFFFD', c: 'é' });
});

test('a value may hold what slog leaves unquoted', () => {
  assert.deepEqual(fieldsOf('elapsed=78.969µs path=/a/b=c libDirs=[/usr/local/lib/ollama]'), {
    elapsed: '78.969µs',
    path: '/a/b=c',
    libDirs: '[/usr/local/lib/ollama]',
  });
});

test('a line that ends inside a quote or an escape was cut', () => {
  for (const line of ['msg="inference', 'a=1 msg="x\\', 'msg="x\\u00', 'msg="x\\1', '"key']) {
    assert.equal(parseLogfmt(line).kind, 'cut', line);
  }
});

test('text that is not a record is not taken for one', () => {
  const lines = [
    '',
    '   ',
    'load_backend: loaded CPU backend from /usr/local/lib/ollama/libggml-cpu.so',
    '[GIN] 2026/11/21 - 00:31:53 | 200 | GET "/api/ps"',
    'a=1 bare b=2',
    'a="x"b=2',
    'msg="first time=1 msg="inference compute" library=CUDA compute=9.0',
    '=1',
    'a=1"2',
    'a="\\q"',
    'a="\\u00zz"',
    'a="\\U00110000"',
    '{"version":"0.13.5"}',
  ];
  for (const line of lines) assert.equal(parseLogfmt(line).kind, 'plain', line);
});

test('an octal escape has three octal digits, and the last code point is one', () => {
  assert.deepEqual(fieldsOf('a="\\000\\077\\060x" b="\\U0010ffff"'), { a: '\u0000?0x', b: '\u{10ffff}' });
  for (const code of ['181', '118', '8', '9', '/', ':'])
    assert.equal(parseLogfmt(`a="\\${code}   "`).kind, 'plain', code);
  assert.equal(parseLogfmt('a="\\11').kind, 'cut');
});

test('a bare word has no control character', () => {
  assert.equal(parseLogfmt('a=x\u001fy').kind, 'plain');
  assert.equal(parseLogfmt('a\u0001=x').kind, 'plain');
  assert.deepEqual(fieldsOf('a=x!'), { a: 'x!' });
});

test('a record has up to 256 fields', () => {
  const record = (count: number) => Array.from({ length: count }, (_, index) => `k${index}=v`).join(' ');
  assert.equal(Object.keys(fieldsOf(record(256))).length, 256);
  assert.deepEqual(parseLogfmt(record(257)), { kind: 'plain' });
});

test('a repeated key is reported', () => {
  const parsed = parseLogfmt('msg=a library=cpu msg=b');
  assert.equal(parsed.kind, 'record');
  if (parsed.kind === 'record') {
    assert.equal(parsed.fields.get('msg'), 'a');
    assert.deepEqual([...parsed.repeated], ['msg']);
  }
});

test('a huge line is read in linear time', () => {
  const line = `msg="${'\\x41'.repeat(250_000)}" ${'k=v '.repeat(200)}`;
  const start = performance.now();
  parseLogfmt(line);
  parseLogfmt('"'.repeat(1_000_000));
  parseLogfmt(' '.repeat(1_000_000));
  assert.ok(performance.now() - start < 20_000);
});

/** As strconv.Quote would: for the round trip. */
function goQuote(text: string): string {
  let quoted = '';
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if (character === '"' || character === '\\') quoted += `\\${character}`;
    else if (code < 0x20 || code === 0x7f) quoted += `\\x${code.toString(16).padStart(2, '0')}`;
    else if (code > 0xffff) quoted += `\\U${code.toString(16).padStart(8, '0')}`;
    else if (code > 0x7e) quoted += `\\u${code.toString(16).padStart(4, '0')}`;
    else quoted += character;
  }
  return `"${quoted}"`;
}

test('every text that is quoted as Go does it is read back (2000 random texts)', () => {
  const next = random(17);
  const alphabet = ['a', ' ', '=', '"', '\\', '\n', '\t', 'é', '😀', "'", '\x7f', 'x41'];
  for (let round = 0; round < 2_000; round += 1) {
    const text = Array.from({ length: next(20) }, () => alphabet[next(alphabet.length)] ?? '').join('');
    assert.deepEqual(fieldsOf(`k=${goQuote(text)} after=1`), { k: text, after: '1' });
  }
});

test('random bytes never throw and never hang (20000 lines)', () => {
  const next = random(4);
  const alphabet = 'a=" \\x4u1\n\u0000é[]';
  for (let round = 0; round < 20_000; round += 1) {
    parseLogfmt(Array.from({ length: next(40) }, () => alphabet[next(alphabet.length)] ?? '').join(''));
  }
});
