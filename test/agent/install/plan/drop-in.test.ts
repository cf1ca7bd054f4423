import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { LoadedUnit } from '../../../../agent/contracts/unit.js';
import { wantedVariables } from '../../../../agent/install/plan/drop-in.js';
import { loadProfile } from '../../../../agent/profile/load.js';
import {
  assignedVariables,
  environmentFileVariables,
  environmentLine,
} from '../../../../agent/systemd/unit-environment.js';
import { absent, changeAt, changesOf, facts, plan, unit } from './support.js';

const first = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
const last = '/etc/systemd/system/ollama.service.d/zzz-vgpu.conf';
const ours = '/opt/vgpu/current/libcuda.so.1:/opt/vgpu/current/libnvidia-ml.so.1';

function textAt(path: string, changes: Partial<LoadedUnit>): string {
  const change = changeAt(plan({ unit: unit(changes) }), path);
  assert.ok(change?.kind === 'write-file', path);
  return change.content;
}

/** The values that systemd reads from these texts. */
function variables(...texts: readonly string[]): Record<string, string | undefined> {
  return Object.fromEntries(assignedVariables(texts));
}

describe('the drop-in', () => {
  it('sets what the profile says, with the reason for each', () => {
    const text = textAt(first, {});
    assert.deepEqual(variables(text), { LD_LIBRARY_PATH: '/opt/vgpu/current', LD_PRELOAD: ours });
    assert.ok(text.split('\n').filter((line) => line.startsWith('#')).length >= 4);
    assert.match(text, /vgpu-agent uninstall/);
  });

  it('notes where a start begins in a log file that is appended to', () => {
    const text = textAt(first, { standardError: 'append:/var/log/ollama.log' });
    const line = text.split('\n').find((one) => one.startsWith('ExecStartPre='));
    assert.match(line ?? '', /exec 3>&2; \{ stat -Lc "vgpu-agent: .* %%d:%%i, after %%s bytes" /);
    assert.match(line ?? '', /; sleep 0\.3; \} \| systemd-cat /, 'the sender outlives what it sends');
    const other = textAt(first, { standardOutput: 'append:/var/log/ollama.log', standardError: 'journal' });
    assert.match(other, /exec 3>&1; \{ stat/);
  });

  it('has nothing run by root: the unit’s LD_PRELOAD may name what its user can write', () => {
    const text = textAt(first, { standardError: 'append:/var/log/ollama.log' });
    const commands = text.split('\n').filter((line) => line.startsWith('Exec'));
    assert.equal(commands.length, 1);
    for (const command of commands) assert.match(command, /^ExecStartPre=-\/bin\/sh -c '/);
  });

  for (const [what, target] of [
    ['the journal', 'journal'],
    ['a file that is emptied at each start', 'truncate:/var/log/ollama.log'],
  ] as const) {
    it(`notes nothing for ${what}`, () => {
      assert.doesNotMatch(textAt(first, { standardError: target }), /ExecStartPre/);
    });
  }

  it('puts our entries before those of the fragment and other drop-ins', () => {
    const text = textAt(first, {
      fragmentContent: '[Service]\nEnvironment="LD_PRELOAD=/usr/lib/libjemalloc.so" OTHER=1\n',
      dropIns: [
        {
          path: '/etc/systemd/system/ollama.service.d/10-a.conf',
          content: '[Service]\nEnvironment=LD_LIBRARY_PATH=/a:/b\n',
        },
      ],
    });
    assert.deepEqual(variables(text), {
      LD_LIBRARY_PATH: '/opt/vgpu/current:/a:/b',
      LD_PRELOAD: `${ours}:/usr/lib/libjemalloc.so`,
    });
  });

  it('does not add our entries a second time, nor empty ones', () => {
    const text = textAt(first, {
      fragmentContent: '[Service]\nEnvironment=LD_LIBRARY_PATH=:/opt/vgpu/current::/a:/a:\n',
    });
    assert.equal(variables(text)['LD_LIBRARY_PATH'], '/opt/vgpu/current:/a');
  });

  it("reads the fragment's present value, not the copy in our own value", () => {
    const text = textAt(first, {
      fragmentContent: '[Service]\nEnvironment=LD_LIBRARY_PATH=/new\n',
      dropIns: [{ path: first, content: '[Service]\nEnvironment=LD_LIBRARY_PATH=/opt/vgpu/current:/old\n' }],
      environment: { LD_LIBRARY_PATH: '/opt/vgpu/current:/old' },
    });
    assert.equal(variables(text)['LD_LIBRARY_PATH'], '/opt/vgpu/current:/new');
  });

  it("takes the values in force without vgpu-agent's when the fragment was not read", () => {
    const { fragmentContent: _, ...unread } = unit({
      environment: { LD_LIBRARY_PATH: '/opt/vgpu/current:/100%/lib' },
    });
    const change = changeAt(plan({ unit: unread }), first);
    assert.ok(change?.kind === 'write-file');
    assert.equal(variables(change.content)['LD_LIBRARY_PATH'], '/opt/vgpu/current:/100%%/lib');
  });

  it('has a second one at the end when another drop-in sorts after the first', () => {
    const override = {
      path: '/etc/systemd/system/ollama.service.d/override.conf',
      content: '[Service]\nEnvironment="LD_LIBRARY_PATH=/mine"\n',
    };
    const [text, end] = [textAt(first, { dropIns: [override] }), textAt(last, { dropIns: [override] })];
    assert.equal(variables(text, override.content, end)['LD_LIBRARY_PATH'], '/opt/vgpu/current:/mine');
    assert.equal(variables(end)['LD_PRELOAD'], undefined);
    assert.match(end, /override\.conf sets the same/);
  });

  it('survives a later drop-in that clears all variables', () => {
    const clearing = {
      path: '/etc/systemd/system/ollama.service.d/override.conf',
      content: '[Service]\nEnvironment=\nEnvironment=A=1\n',
    };
    const texts = [
      textAt(first, { dropIns: [clearing] }),
      clearing.content,
      textAt(last, { dropIns: [clearing] }),
    ];
    assert.deepEqual(variables(...texts), { A: '1', LD_LIBRARY_PATH: '/opt/vgpu/current', LD_PRELOAD: ours });
  });

  it('removes the second one when no other drop-in sets the same any more', () => {
    const made = plan({
      manifest: {
        schema: 2,
        agent: '',
        consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
        storeId: '',
        endpoint: '',
        items: [
          {
            kind: 'file',
            path: last,
            sha256: '',
            mode: 0o644,
            before: { kind: 'absent' },
            backup: null,
          },
        ],
      },
    });
    assert.equal(changeAt(made, last)?.kind, 'remove-owned');
  });

  it('requires that the service’s user can load the libraries of LD_PRELOAD', () => {
    const change = changeAt(
      plan({
        unit: unit({
          fragmentContent: '[Service]\nEnvironment="LD_PRELOAD=/usr/lib/libjemalloc.so libbare.so"\n',
        }),
      }),
      first,
    );
    assert.ok(change?.kind === 'write-file' && change.preflight !== undefined);
    assert.deepEqual(change.preflight.required, ours.split(':'));
    // The loader searches for a bare name, so there is no file to check.
    assert.deepEqual(change.preflight.inherited, ['/usr/lib/libjemalloc.so']);
    assert.equal(change.preflight.user?.name, 'ollama');
  });

  it('is read by systemd only when it changed, or when systemd does not have it', () => {
    const text = textAt(first, {});
    const dropIn = {
      path: first,
      state: { kind: 'file', size: 1, sha256: '', mode: 0o644, uid: 0, gid: 0, mtimeNs: '0' },
      content: text,
    } as const;
    const loaded = unit({
      dropIns: [{ path: first, content: text }],
      environment: { LD_LIBRARY_PATH: '/opt/vgpu/current', LD_PRELOAD: ours },
    });
    const kinds = (made: ReturnType<typeof plan>): readonly string[] =>
      changesOf(made).map((change) => change.kind);
    assert.equal(kinds(plan({ dropIn, unit: loaded })).includes('daemon-reload'), false);
    assert.equal(kinds(plan({ dropIn, unit: unit() })).includes('daemon-reload'), true);
  });
});

describe('Environment= as systemd reads it', () => {
  it('knows quotes, escapes, several words, resets and sections', () => {
    const text = `[Unit]
Environment=NOT=1
[Service]
Environment=GONE=1
Environment=
Environment="A=one two" 'B=three' C=fo\\"ur
# Environment=D=no
Environment=E=x \\
F=y
`;
    assert.deepEqual(variables(text), { A: 'one two', B: 'three', C: 'fo"ur', E: 'x', F: 'y' });
  });

  it('reads back what is written', () => {
    for (const value of [
      '/a b',
      'say "x"',
      'back\\slash',
      "it's",
      '/opt/vgpu/current:/x',
      'two\nlines\tand \u001b[31mcolour',
      'ünïcode',
    ]) {
      assert.deepEqual(variables(`[Service]\n${environmentLine('V', value)}\n`), { V: value });
    }
  });

  it('knows the escapes of systemd.syntax(7)', () => {
    const text = String.raw`[Service]
Environment=A=/opt/my\x20libs:/b B="\s\t\u00fc\U0001f600\303\274" 'C=\x41\102'
`;
    assert.deepEqual(variables(text), { A: '/opt/my libs:/b', B: ' \t\u00fc\u{1f600}\u00fc', C: 'AB' });
  });

  it('ignores the rest of a line at an escape that systemd does not know, and a word that is no UTF-8', () => {
    assert.deepEqual(variables('[Service]\nEnvironment=A=1 B=x\\q C=2\nEnvironment=D=3\n'), {
      A: '1',
      D: '3',
    });
    assert.deepEqual(variables('[Service]\nEnvironment=A=\\xff B=2 C=\\x00 D=4\n'), { B: '2' });
    assert.deepEqual(variables('[Service]\nEnvironment=A=1 "B=2\n'), { A: '1' });
  });

  it('writes no line that a value brings along', () => {
    const line = environmentLine('V', '/a\nExecStartPre=/bin/evil');
    assert.ok(!line.includes('\n'));
  });

  it('reads files of variables', () => {
    const text = '# no\n; no\nA=1\n B = "two words" \nC=\'x\'\nbroken\nD=a\\\nb\n';
    assert.deepEqual(Object.fromEntries(environmentFileVariables(text)), {
      A: '1',
      B: 'two words',
      C: 'x',
      D: 'ab',
    });
  });
});

describe('a variable for hosts without shared memory', () => {
  const name = 'VLLM_USE_V2_MODEL_RUNNER';
  const device = { path: '/sys/bus/pci/devices/0/resource2', bytes: 1 << 28, uid: 0, gid: 0, mode: 0o600 };
  const value = (
    endpoint: string,
    { devices = [], changes = {} }: { devices?: (typeof device)[]; changes?: Partial<LoadedUnit> } = {},
  ): readonly string[] | undefined => {
    const machine = facts({
      host: { endpoint, from: 'default', answer: { kind: 'unasked' } },
      vmMemory: { devices, rule: { path: '/r', state: absent, content: null }, group: null, locked: false },
    });
    const wanted = wantedVariables(loadProfile('vllm'), machine, unit(changes));
    return wanted.find((variable) => variable.name === name)?.entries;
  };

  it('is set for a host over TCP or vsock', () => {
    assert.deepEqual(value('tcp:10.0.0.1:14833'), ['0']);
    assert.deepEqual(value('vsock:2:14833'), ['0']);
    assert.deepEqual(value('unix:/run/vgpu/hostd.sock,tcp:10.0.0.1:14833'), ['0']);
  });

  it('is not set where memory is shared', () => {
    assert.equal(value('unix:/run/vgpu/hostd.sock'), undefined);
    assert.equal(value('vsock:2:14833', { devices: [device] }), undefined);
  });

  it("leaves the unit's own value, and does not take ours for one", () => {
    const own = { fragmentContent: `[Service]\nEnvironment=${name}=1\n` };
    assert.equal(value('tcp:10.0.0.1:14833', { changes: own }), undefined);
    const { fragmentContent: _, ...unread } = unit({ environment: { [name]: '0' } });
    assert.deepEqual(value('tcp:10.0.0.1:14833', { changes: unread }), ['0']);
  });
});
