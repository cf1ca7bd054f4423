import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readinessUrls } from '../../../agent/verdict/watch-readiness.js';

// Left: as one may write OLLAMA_HOST, or as the log names it. Right: what is asked.
const cases: readonly (readonly [address: string, urls: readonly string[]])[] = [
  ['', ['http://127.0.0.1:11434/v']],
  ['127.0.0.1:11434', ['http://127.0.0.1:11434/v']],
  ['0.0.0.0', ['http://127.0.0.1:11434/v']],
  ['0.0.0.0:8000', ['http://127.0.0.1:8000/v']],
  [':8000', ['http://127.0.0.1:8000/v']],
  ['192.168.1.5', ['http://192.168.1.5:11434/v']],
  ['gpu.example:9', ['http://gpu.example:9/v']],
  ['http://0.0.0.0:11434', ['http://127.0.0.1:11434/v']],
  ['http://example', ['http://example:80/v']],
  ['https://example', ['https://example:443/v']],
  ['HTTPS://example:8443/ollama/', ['https://example:8443/v']],
  ['[::1]:11434', ['http://[::1]:11434/v']],
  ['[::1]', ['http://[::1]:11434/v']],
  ['::1', ['http://[::1]:11434/v']],
  ['fe80::2', ['http://[fe80::2]:11434/v']],
  ['[::]:11434', ['http://127.0.0.1:11434/v', 'http://[::1]:11434/v']],
  ['::', ['http://127.0.0.1:11434/v', 'http://[::1]:11434/v']],
  ['"0.0.0.0:5000"', ['http://127.0.0.1:5000/v']],
  ["  '127.0.0.1'  ", ['http://127.0.0.1:11434/v']],
  ['127.0.0.1:99999', ['http://127.0.0.1:11434/v']],
  ['127.0.0.1:http', ['http://127.0.0.1:11434/v']],
  ['127.0.0.1:65535', ['http://127.0.0.1:65535/v']],
  ['127.0.0.1:65536', ['http://127.0.0.1:11434/v']],
  ['127.0.0.1:0', ['http://127.0.0.1:11434/v']],
  ['127.0.0.1:-5', ['http://127.0.0.1:11434/v']],
  ['127.0.0.1:80.5', ['http://127.0.0.1:11434/v']],
  ['""x""', ['http://x:11434/v']],
  ['" x "', ['http://x:11434/v']],
  [`a"b"c`, ['http://a"b"c:11434/v']],
  ['x/http://y', ['http://x:11434/v']],
  ['127.0.0.1:', ['http://127.0.0.1:11434/v']],
];

for (const [address, urls] of cases) {
  test(`${JSON.stringify(address)} is asked at ${urls.join(' or ')}`, () => {
    assert.deepEqual(readinessUrls(address, '127.0.0.1:11434', '/v'), urls);
    if (!address.includes('a"b')) for (const url of urls) assert.ok(URL.canParse(url));
  });
}

test('without a host the default one is asked, with a port alone this machine', () => {
  assert.deepEqual(readinessUrls('', 'gpu.example:9', '/v'), ['http://gpu.example:9/v']);
  assert.deepEqual(readinessUrls(':5', 'gpu.example:9', '/v'), ['http://127.0.0.1:5/v']);
  assert.deepEqual(readinessUrls('', '', '/v'), ['http://127.0.0.1:80/v']);
});
