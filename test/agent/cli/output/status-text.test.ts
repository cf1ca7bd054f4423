import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { statusText } from '../../../../agent/cli/output/status-text.js';
import type { Carrier } from '../../../../agent/contracts/shim-codes.js';
import { allInOne, statusView } from '../../../../agent/install/pipeline/status-view.js';
import { styleFor } from '../../../../agent/lib/text.js';
import { settled } from '../../install/plan/settled.js';
import { ollama } from '../../verdict/support.js';
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

describe('the transport in status', () => {
  it('names what carries the calls', () => {
    assert.deepEqual(shown('rings'), ['transport   rings in memory that the program and the host share']);
    assert.deepEqual(shown('vm-memory'), [
      'transport   rings in the memory that this VM shares with its host',
    ]);
  });

  it('names the transport that is faster than vsock', () => {
    const [line = ''] = shown('vsock');
    assert.match(
      line,
      /^transport {3}vsock; memory shared between VM and host is faster: vgpu-agent doctor shows/,
    );
  });

  it('names the transport that is faster than TCP, or than a socket without rings', () => {
    assert.match(shown('tcp').join(), /TCP; vsock is faster if that host runs this VM: sudo/);
    assert.match(shown('unix').join(), /a unix socket, without rings; rings in shared memory are faster/);
  });

  it('says nothing where the probe had no session, or does not tell', () => {
    assert.deepEqual(shown(), []);
  });
});

const textOf = (changes: Partial<ReturnType<typeof settled>>): string =>
  statusText(statusView(ollama, { ...settled(), ...changes }, null, null), plain).replaceAll(/\s+/g, ' ');

describe('status after a killed run', () => {
  it('names an interrupted run and the command that finishes it', () => {
    assert.doesNotMatch(textOf({}), /warning/);
    assert.match(textOf({ interrupted: true }), /warning: an install or uninstall was interrupted; the next/);
  });
});

describe('status where the service was not asked', () => {
  const view = statusView(ollama, settled(), null, null);
  const shown = (configProblem: string | null): string => statusText({ ...view, configProblem }, plain);

  it('names a mistake in agent.json, and claims nothing about the service', () => {
    const text = shown('/etc/vgpu-agent/agent.json:\n  line 1, host: no');
    assert.match(
      text,
      /^agent\.json {2}is not valid: \/etc\/vgpu-agent\/agent\.json:\n {12} *line 1, host: no$/m,
    );
    assert.doesNotMatch(text, /^agent |in force/m);
    assert.doesNotMatch(shown(null), /agent\.json/);
  });
});

describe('status for a consumer that is not installed', () => {
  const machine = settled();
  const { manifest } = machine;
  const others = manifest && {
    ...manifest,
    consumers: [{ profile: 'llama-server', unit: 'llama-server.service', links: [] }],
  };

  it('does not show the installation of another consumer', () => {
    for (const text of [textOf({ manifest: others }), textOf({ manifest: null })]) {
      assert.match(text, /^installed nothing for ollama\.service; sudo vgpu-agent install --profile ollama /);
      assert.doesNotMatch(text, /drift/);
    }
    assert.match(textOf({}), /^installed profile ollama, /);
  });

  it('is shown beside one that is', () => {
    const absent = statusView(ollama, { ...machine, manifest: others }, null, null);
    const view = allInOne([absent, statusView(ollama, machine, null, null)]);
    assert.equal(view.installed?.profile, 'ollama');
  });
});

describe('status while vgpu-agent.service runs', () => {
  const service = {
    version: '0.1.0',
    state: 'settled',
    problem: null,
    configProblem: '/etc/vgpu-agent/agent.json:\n  line 1, konsumers: unknown key\n  line 2, host: no',
    pendingRestart: null,
    repairs: 0,
    restarts: 0,
  } as const;
  const view = statusView(ollama, settled(), null, null);
  const text = statusText({ ...view, service }, plain);

  it('shows each problem of agent.json on a line of its own', () => {
    assert.match(text, /^ {12}agent\.json is not valid and not in force: \/etc\/vgpu-agent\/agent\.json:$/m);
    assert.match(text, /^ +line 1, konsumers: unknown key\n +line 2, host: no$/m);
  });

  it('says that the service has no verdict yet, and names the command that gives one', () => {
    assert.match(
      text,
      /^verdict {5}vgpu-agent\.service has no verdict on this start yet: sudo vgpu-agent verify$/m,
    );
  });

  it('names the command with sudo where the service does not run', () => {
    assert.match(statusText(view, plain), /^verdict {5}needs root: sudo vgpu-agent status$/m);
  });
});
