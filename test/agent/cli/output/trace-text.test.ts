import assert from 'node:assert/strict';
import { test } from 'node:test';
import { traceText } from '../../../../agent/cli/output/doctor-text.js';
import { styleFor } from '../../../../agent/lib/text.js';
import { line, program, toOurs, traced } from '../../verdict/doctor/trace/lines.js';

test('a person sees programs that did the same together, nothing that a terminal obeys, and no long lines', () => {
  const plain = styleFor({ isTty: true, columns: 80, wanted: false, env: {} });
  const same = [7, 8].map((pid) => (program + toOurs).replaceAll('pid=7', `pid=${pid}`)).join('');
  const trace = traced(`${same}${line(9, 'event=process program=/usr/local/bin/ollama')}`);
  assert.deepEqual(traceText(trace, plain), [
    'one traced start (5 lines of the tracer)',
    '  llama-server (processes 7, 8)',
    "    the symbol cuInit of libggml-cuda.so -> vgpu-agent's libcuda.so.1",
    '  ollama (process 9)',
    '    never opened libcuda',
    '',
  ]);
  const evil = traced(
    line(7, `event=dlsym caller=/x of=default symbol=cu\u009bInit library="/tmp/a b ${'c'.repeat(60)}"`),
  );
  const lines = traceText(evil, plain).join('\n').split('\n');
  assert.ok(
    lines.every((one) => one.length <= 80 && !one.includes('\u009b')),
    lines.join('\n'),
  );
  assert.deepEqual(traceText(null, plain), []);
});
