import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorDocument, errorText } from '../../../agent/lib/error-text.js';
import { VgpuError } from '../../../agent/lib/errors.js';
import { styleFor } from '../../../agent/lib/text.js';

const plain = styleFor({ isTty: false, columns: undefined, wanted: true, env: {} });
const refused = new VgpuError('vgpu-agent install must run as root', {
  kind: 'refused',
  operation: 'install',
  remedy: 'sudo vgpu-agent install',
});

test('a failure is one message and its remedy', () => {
  assert.equal(
    errorText(refused, plain, false),
    'vgpu-agent: vgpu-agent install must run as root\n  try: sudo vgpu-agent install',
  );
});

test('the JSON tells the same story, with the exit code', () => {
  assert.deepEqual(errorDocument(refused), {
    kind: 'refused',
    message: 'vgpu-agent install must run as root',
    operation: 'install',
    path: null,
    remedy: 'sudo vgpu-agent install',
    exitCode: 6,
  });
});

test('a bug is called a bug in vgpu-agent, and its stack is printed only with --verbose', () => {
  const bug = new TypeError('x is undefined');
  assert.match(
    errorText(bug, plain, false),
    /internal error: x is undefined\n {2}This is a bug in vgpu-agent/,
  );
  assert.doesNotMatch(errorText(bug, plain, false), /error-text\.test/);
  assert.match(errorText(bug, plain, true), /error-text\.test/);
  assert.equal(errorDocument(bug).exitCode, 1);
});

test('a value that nobody can read is shortened', () => {
  const error = new VgpuError(`no profile is named "${'x'.repeat(100_000)}". There are others`, {
    kind: 'usage',
    operation: 'x',
  });
  const shown = errorText(error, plain, false).replace(/\s+/g, ' ');
  assert.match(
    shown,
    /^vgpu-agent: no profile is named "x{79}\.\.\. \(100003 characters\) There are others$/,
  );
});

test('causes are printed with --verbose', () => {
  const error = new VgpuError('cannot write', {
    kind: 'failed',
    operation: 'write',
    cause: new Error('ENOSPC'),
  });
  assert.match(errorText(error, plain, true), /caused by: ENOSPC/);
});

const system = (code: string, syscall: string): Error =>
  Object.assign(new Error(`${code}: said by the system, ${syscall} '/x'`), { code, syscall });

test('a limit of the system is named with its remedy, and is not called a bug', () => {
  assert.equal(
    errorText(system('EMFILE', 'open'), plain, false),
    "vgpu-agent: this process may not open more files: EMFILE: said by the system, open '/x'\n" +
      '  try: raise its limit: ulimit -n 1024, or LimitNOFILE= of the unit that runs it',
  );
  for (const code of ['ENFILE', 'ENOMEM', 'ENOSPC', 'EDQUOT', 'EIO']) {
    assert.equal(errorDocument(system(code, 'write')).kind, 'failed', code);
  }
});

test('EAGAIN is a limit only where a process was to be started', () => {
  assert.equal(errorDocument(system('EAGAIN', 'spawn flock')).kind, 'failed');
  assert.equal(errorDocument(system('EAGAIN', 'read')).kind, 'internal');
});
