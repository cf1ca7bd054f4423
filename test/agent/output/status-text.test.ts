import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Carrier } from '../../../agent/contracts/shim-codes.js';
import { statusText } from '../../../agent/output/status-text.js';
import { styleFor } from '../../../agent/output/style.js';
import { verdict } from './samples.js';

const plain = styleFor({ isTty: false, columns: undefined, wanted: true, env: {} });

function shown(carrier?: Carrier): readonly string[] {
  const unit = { name: 'ollama.service', load: 'loaded', active: 'active (running)' } as const;
  const about = { unit: { ...unit, invocationId: null, restarts: 0 }, drift: [] } as const;
  const told = carrier === undefined ? verdict : { ...verdict, carrier };
  const view = {
    ...about,
    installed: null,
    interrupted: false,
    consumers: [{ ...about, profile: 'ollama', verdict: told }],
    host: { endpoint: 'vsock:2:14833', from: 'default', answer: { kind: 'unasked' } },
    verdict: told,
  } as const;
  return statusText(view, plain)
    .split('\n')
    .filter((line) => line.startsWith('transport'));
}

describe('what status says of the transport', () => {
  it('names what carries the calls', () => {
    assert.deepEqual(shown('rings'), ['transport   rings in memory that the program and the host share']);
    assert.deepEqual(shown('vm-memory'), [
      'transport   rings in the memory that this VM shares with its host',
    ]);
  });

  it('tells of what takes less time than vsock', () => {
    const [line = ''] = shown('vsock');
    assert.match(
      line,
      /^transport {3}vsock; memory that the VM shares .* takes less time: vgpu-agent doctor/,
    );
  });

  it('says nothing where the probe had no session, or does not tell', () => {
    assert.deepEqual(shown(), []);
  });
});
