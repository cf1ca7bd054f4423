import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nothingToDo, planQuestion, planText } from '../../../../agent/cli/output/plan-text.js';
import { styleFor } from '../../../../agent/lib/text.js';
import { changes, emptyPlan, plan } from './samples.js';

const plain = styleFor({ isTty: false, columns: undefined, wanted: true, env: {} });
const narrow = styleFor({ isTty: true, columns: 80, wanted: false, env: {} });

test('a plan has a line for each change', () => {
  assert.equal(
    planText(plan, plain),
    `ollama.service (profile ollama) will use the GPU of the host at unix:/run/vgpu/hostd.sock:

+ directory /etc/vgpu/ (0755)
+ shim 0.1.0 as 0123456789abcdef (2 files, 1.1 MB)
~ file /etc/vgpu/guest.conf (0644)
~ link /usr/lib/x86_64-linux-gnu/libcuda.so.1, of the package libcuda1
> ldconfig
> systemctl daemon-reload
> systemctl restart ollama.service

7 changes; --verbose shows each in full
warning: RestrictAddressFamilies lacks AF_UNIX
         allow it`,
  );
});

test('in full, a plan reads as a diff: what, why, before and after', () => {
  assert.equal(
    planText(plan, plain, { full: true }),
    `ollama.service (profile ollama) will use the GPU of the host at unix:/run/vgpu/hostd.sock:

+ directory /etc/vgpu/ (0755)
    guest.conf lives here
+ shim 0.1.0 as 0123456789abcdef (2 files, 1.1 MB)
    the libraries that every link leads to
~ file /etc/vgpu/guest.conf (0644)
    gives the shim the address of the host
     # where the host is
    -host=vsock:2:14833
    +host=unix:/run/vgpu/hostd.sock
~ link /usr/lib/x86_64-linux-gnu/libcuda.so.1
    programs open this name; it leads to a driver without a GPU
    belongs to the package libcuda1
    libcuda.so.535.54 -> /opt/vgpu/current/libcuda.so.1
> ldconfig
    the loader cache must name the shim
> systemctl daemon-reload
    the drop-in is new
> systemctl restart ollama.service
    Ollama looks for a GPU only when it starts

7 changes
warning: RestrictAddressFamilies lacks AF_UNIX
         allow it`,
  );
});

test('a plan with nothing to do prints that and nothing else', () => {
  assert.equal(planText(emptyPlan, plain), nothingToDo);
  assert.equal(nothingToDo, 'nothing to do');
});

test('no line of prose is wider than the terminal', () => {
  for (const full of [false, true]) {
    for (const line of planText(plan, narrow, { full }).split('\n')) {
      assert.ok(line.length <= 80 || !line.trim().includes(' '), `${line.length}: ${line}`);
    }
  }
});

test('a refused plan tells every refusal with its remedy', () => {
  const refused = {
    kind: 'refused',
    refusals: [
      { code: 'unit-absent', message: 'ollama.service does not exist', remedy: 'install Ollama first' },
      { code: 'real-gpu', message: 'a real GPU works here', remedy: '--force' },
    ],
    warnings: [],
  } as const;
  assert.equal(
    planText(refused, plain),
    'refused: ollama.service does not exist\n         install Ollama first\nrefused: a real GPU works here\n         --force',
  );
});

test('the plan names the files that uninstall restores', () => {
  const removal = {
    kind: 'remove-owned',
    path: '/usr/lib/x86_64-linux-gnu/libcuda.so.1',
    restores: { kind: 'link', target: 'libcuda.so.550', uid: 0, gid: 0, mtimeNs: '0' },
    reason: 'it stood there before',
  } as const;
  const text = planText({ ...emptyPlan, intent: 'uninstall', changes: [removal] }, plain, { full: true });
  assert.match(text, /^~ \/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1$/m);
  assert.match(text, /^ {4}vgpu-agent's -> libcuda\.so\.550$/m);
});

test('a path with an escape sequence cannot colour the terminal', () => {
  const [first] = changes;
  assert.ok(first?.kind === 'make-directory');
  const text = planText({ ...emptyPlan, changes: [{ ...first, path: '/etc/\u001b[31m\nx' }] }, plain);
  assert.ok(text.includes('/etc/\\x1b[31m\\nx'), text);
  assert.ok(!text.includes('\u001b'));
});

test('the question names a service only when the plan restarts it, and prints its name on one line', () => {
  const withRestart = changes.filter(({ kind }) => kind === 'restart');
  assert.ok(withRestart.length > 0);
  const unit = 'a\nb.service';
  assert.equal(
    planQuestion('Change this', { unit, changes: withRestart }),
    'Change this, and restart a\\nb.service?',
  );
  const without = changes.filter(({ kind }) => kind !== 'restart');
  assert.equal(planQuestion('Uninstall', { unit, changes: without }), 'Uninstall?');
});
