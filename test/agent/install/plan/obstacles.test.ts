// Sandbox settings that block the shim, each with its remedy; and the source of a variable in a unit's files.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type OwnedItem, sameContent } from '../../../../agent/contracts/manifest.js';
import type { SandboxFacts } from '../../../../agent/contracts/unit.js';
import { findItem, itemsOfVersion } from '../../../../agent/install/plan/owned.js';
import {
  assignedVariables,
  environmentFileVariables,
  environmentLine,
  hostOfUnit,
  unsetVariables,
} from '../../../../agent/systemd/unit-environment.js';
import { sandboxObstacles } from '../../../../agent/systemd/unit-sandbox.js';
import { expected } from '../../expected.js';
import { openSandbox } from '../../verdict/support.js';
import { absent, linkTo, owner, regular } from './support.js';

const file = expected('plan-obstacles');
const unix = 'unix:/run/vgpu/hostd.sock';
const tcp = 'tcp:10.0.0.1:14833';
const six = 'tcp:[fd00::1]:14833';
const vsock = 'vsock:2:14833';
const abstract = 'unix:@vgpu';

const families = (deny: boolean, ...names: readonly string[]) => ({
  restrictAddressFamilies: { deny, families: names },
});
const calls = (deny: boolean, ...names: readonly string[]) => ({ systemCallFilter: { deny, calls: names } });
const cases: Readonly<Record<string, readonly [Partial<SandboxFacts>, ...(readonly string[])]>> = {
  'allowed families': [families(false, 'AF_INET'), unix, vsock, tcp, six, 'nothing', 'unix'],
  'denied families': [families(true, 'AF_UNIX', 'AF_INET6'), unix, vsock, tcp, six],
  'allowed calls': [calls(false, 'read'), unix],
  'denied calls': [calls(true, 'connect'), vsock],
  'no filter': [{ systemCallFilter: null }, unix],
  'denied addresses': [{ ipAddressDeny: ['10.0.0.0/8', 'fd00::/16'] }, tcp, six, vsock, 'tcp:10.0.0.1'],
  'a network of its own': [{ privateNetwork: true }, unix, abstract, tcp, vsock, 'unix:/run/a@b'],
  'a /tmp of its own': [{ privateTmp: true }, 'unix:/tmp/s', 'unix:/var/tmp/s', 'unix:/srv/tmp/s', abstract],
  'a hidden /run': [
    { inaccessiblePaths: ['-+/run//'], temporaryFileSystem: ['/run/vgpu :ro'] },
    unix,
    abstract,
  ],
  'hidden files': [{ inaccessiblePaths: ['/opt/vgpu'], temporaryFileSystem: ['/etc:rw', ''] }, vsock],
  'a root of its own': [{ rootDirectory: '/srv' }, unix, vsock],
  'a root that is the root': [{ rootDirectory: '/' }, unix],
  'a hyphen inside of a path': [{ inaccessiblePaths: ['/run/a-b'] }, 'unix:/run/a-b', 'unix:/run/ab'],
  'a hidden home': [
    { protectHome: 'tmpfs' },
    'unix:/home/a/s',
    'unix:/run/user/1/s',
    'unix:/srv/home/s',
    unix,
  ],
  'no hidden home': [{ protectHome: '' }, 'unix:/home/a/s'],
};
for (const [title, [changes, ...endpoints]] of Object.entries(cases)) {
  file.text(title, () =>
    endpoints
      .flatMap((endpoint) => {
        const found = sandboxObstacles(endpoint, { ...openSandbox, ...changes });
        return [
          `to ${endpoint}: ${found.length === 0 ? 'nothing' : ''}`.trimEnd(),
          ...found.map(
            ({ setting, remedy, keepsFrom }) => `- ${setting} keeps from the ${keepsFrom}: ${remedy}`,
          ),
        ];
      })
      .join('\n'),
  );
}
file.nothingElse();

const none = { before: absent, backup: null } as const;
const ours: readonly OwnedItem[] = [
  {
    kind: 'alternative',
    group: 'nvidia',
    path: '/opt/vgpu/versions/a/x',
    priority: 1,
    before: { status: 'auto', value: '' },
  },
  { kind: 'directory', path: '/opt/vgpu/versions/a', mode: 0o755 },
  { kind: 'file', path: '/opt/vgpu/versions/a/x', sha256: 'ab'.repeat(32), mode: 0o644, ...none },
  { kind: 'link', path: '/opt/vgpu/versions/ab/x', target: '/y', ...none },
];

test('a file with the recorded content and a link with the recorded target belong to vgpu-agent', () => {
  const directory = { kind: 'directory', empty: true, mode: 0o755, ...owner } as const;
  const states = [
    absent,
    directory,
    regular(),
    { ...regular(), sha256: 'x' },
    linkTo('/y'),
    linkTo('/z'),
  ] as const;
  assert.deepEqual(
    ours.map((item) => states.map((state) => sameContent(item, state))),
    [
      [false, false, false, false, false, false],
      [false, true, false, false, false, false],
      [false, false, true, false, false, false],
      [false, false, false, false, true, false],
    ],
  );
});

test('an item is found by its path, never a group of alternatives; a version has what is in its directory', () => {
  assert.equal(findItem(ours, '/opt/vgpu/versions/a/x')?.kind, 'file');
  assert.equal(findItem(ours, '/opt/vgpu/versions/b'), undefined);
  assert.deepEqual(
    itemsOfVersion(ours, 'a').map(({ kind }) => kind),
    ['directory', 'file'],
  );
});

const assigned = (...lines: readonly string[]) =>
  Object.fromEntries(
    assignedVariables([`[Service]\n${lines.map((line) => `Environment=${line}\n`).join('')}`]),
  );

test('words of Environment= are split, unquoted and unescaped as systemd does it', () => {
  assert.deepEqual(assigned('A=1\tB=2 =3 C "D=4 5" E=\'6\'7', 'A=8'), { A: '8', B: '2', D: '4 5', E: '67' });
  assert.deepEqual(assigned('A=1', '', 'B=2'), { B: '2' });
  const letters = 'A=\\a\\b\\f\\n\\r\\t\\v\\s\\\\\\"\\\'';
  assert.deepEqual(assigned(letters), { A: '\u0007\b\f\n\r\t\v \\"\'' });
  assert.deepEqual(assigned('A=\\x41\\101\\u00e9\\U0001f600'), { A: 'AA\u00e9\u{1f600}' });
});

test('from an escape that systemd does not know the rest of the line is ignored, and so is a NUL', () => {
  for (const bad of ['\\q', '\\x4', '\\x00', '\\400', '\\ud800', '\\udfff', '\\U00110000', '\\_x41']) {
    assert.deepEqual(assigned(`A=1 B=${bad} C=2`), { A: '1' }, bad);
  }
  for (const good of ['\\377', '\\ud7ff', '\\ue000', '\\U0010ffff']) {
    assert.ok('C' in assigned(`A=1 B=${good} C=2`), good);
  }
  assert.deepEqual(assigned('A=1 B=\\xff C=2'), { A: '1', C: '2' }, 'a word that is no UTF-8 goes alone');
  assert.deepEqual(assigned('A=1 "B=2'), { A: '1' }, 'a quote that nobody closes spoils its word');
});

test('UnsetEnvironment= adds up, and an empty one begins again', () => {
  const names = (...lines: readonly string[]) =>
    [...unsetVariables([`[Service]\n${lines.map((line) => `UnsetEnvironment=${line}\n`).join('')}`])].join(
      ' ',
    );
  assert.equal(names('A B', 'C'), 'A B C');
  assert.equal(names('A', '', 'C'), 'C');
});

test('an environment file has comments, blanks, quotes and lines that go on', () => {
  const text = ' A = 1 \n#B=2\n;C=3\n=4\nD\nE="5 6"\nF=\'7\'8\nG=x"9"\nH=1\\\n2\nI=#\nJ=;\nK="a" b"\n';
  assert.deepEqual(Object.fromEntries(environmentFileVariables(text)), {
    A: '1',
    E: '5 6',
    F: "'7'8",
    G: 'x"9"',
    H: '12',
    I: '#',
    J: ';',
    K: 'a" b',
  });
});

test('a line that we write is read back as it was meant, whatever is in it', () => {
  const value = 'a "b" \\c\n\td%h\'';
  const line = environmentLine('A', value);
  assert.equal(line, 'Environment="A=a \\"b\\" \\\\c\\x0a\\x09d%h\'"');
  assert.equal(assignedVariables([`[Service]\n${line}\n`]).get('A'), value);
});

test('blanks around VGPU_HOST do not count', () => {
  assert.equal(hostOfUnit({ environment: { VGPU_HOST: ' unix:/x ' } }, vsock), 'unix:/x');
});
