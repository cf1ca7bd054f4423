/** A secret is not in a report, in whatever form it was written. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, test } from 'node:test';
import { createScrubber, readIdentity } from '../../../../agent/cli/report/scrub.js';

const identity = {
  hosts: ['moonbase-7', 'moonbase-7.corp.example', 'corp.example', 'gpu', 'x'],
  users: ['alice', 'bob.miller', 'ollama'],
  ids: ['0123456789abcdef0123456789abcdef'],
};
const scrub = (text: string): string => createScrubber(identity).text(text);
const secret = 'hunter2-Zx9';

describe('secrets go, however they are written', () => {
  for (const text of [
    `API_KEY=${secret}`,
    `Environment="OPENAI_API_KEY=${secret}"`,
    `Environment="MY_PASSWORD=with ${secret} and blanks" "PATH=/bin"`,
    `Environment='TOKEN=with ${secret} in it'`,
    `Environment=DB_PASSWD="a ${secret}"`,
    `password: ${secret}`,
    `"apiKey": "${secret}"`,
    `{\\"client_secret\\":\\"${secret}\\"}`,
    `msg="start" env="map[HF_TOKEN:${secret} HOME:/root]"`,
    `ExecStart=/usr/bin/thing --api-key ${secret}`,
    `--token=${secret}`,
    `Authorization: Bearer ${secret}`,
    `got header Bearer ${secret} from client`,
    `cookie=${secret}; path=/`,
    `https://joe:${secret}@registry.example/v2`,
    `pull from https://${secret}@example.org failed`,
    `-----BEGIN OPENSSH PRIVATE KEY-----\n${secret}\n-----END OPENSSH PRIVATE KEY-----`,
    `-----BEGIN RSA PRIVATE KEY-----\n${secret}`,
    `sshpass PASSPHRASE='${secret} x'`,
  ]) {
    test(JSON.stringify(text), () => assert.doesNotMatch(scrub(text), /hunter2|Zx9/));
  }

  for (const token of [
    'ghp_abcdefghijklmnopqrstuvwxyz0123456789',
    'hf_abcdefghijklmnopqrstuvwxyz',
    'sk-proj-abcdefghijklmnopqrstuvwxyz',
    'AKIAIOSFODNN7EXAMPLE',
    'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk',
    'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6 alice@moonbase-7',
  ]) {
    test(`a token that is known by its shape: ${token.slice(0, 12)}`, () => {
      const out = scrub(`level=INFO msg="the key is ${token}" library=CUDA`);
      assert.ok(!out.includes(token.split(' ').at(1) ?? token), out);
      assert.ok(!out.includes(token), out);
      assert.match(out, /library=CUDA/);
    });
  }
});

describe('names and addresses go', () => {
  for (const [text, expected] of [
    ['moonbase-7 sshd[1]: x', '[host-1] sshd[1]: x'],
    ['at MOONBASE-7.corp.example:80', 'at [host-1]:80'],
    ['/home/alice/models and /home/zoe/x', '/home/[user-1]/models and /home/[user-1]/x'],
    ['user alice, not malice', 'user [user-1], not malice'],
    ['tcp:192.168.3.4:14833 from 192.168.3.4', 'tcp:[ip-1]:14833 from [ip-1]'],
    ['listens on [fe80::1ff:fe23:4567:890a]:1', 'listens on [[ip-1]]:1'],
    ['2001:db8::7 said', '[ip-1] said'],
    ['machine 0123456789abcdef0123456789abcdef', 'machine [machine-id-1]'],
    ['mail to root@corp.example.org now', 'mail to [email] now'],
    ['ether 52:54:00:12:34:56 up', 'ether [mac] up'],
  ] as const) {
    test(text, () => assert.equal(scrub(text), expected));
  }

  test('the same name is the same placeholder throughout', () => {
    const { text } = createScrubber(identity);
    assert.equal(text('10.0.0.1 10.0.0.2 10.0.0.1'), '[ip-1] [ip-2] [ip-1]');
    assert.equal(text('10.0.0.2'), '[ip-2]');
  });
});

test('the facts that a report is for are kept', () => {
  for (const text of [
    'msg="Listening on 127.0.0.1:11434 (version 0.32.9)"',
    'time=2026-11-21T10:04:45.010Z level=INFO source=types.go:32 msg="inference compute" library=CUDA compute=9.0 pci_id=0000:01:00.0',
    'listen on 0.0.0.0 and [::1]:8080',
    'LD_PRELOAD=/opt/vgpu/current/libcuda.so.1:/opt/vgpu/current/libnvidia-ml.so.1',
    'CUDA_VISIBLE_DEVICES=-1',
    'libcuda.so.550.163.01, ollama on a gpu',
    'unix:/run/vgpu/hostd.sock vsock:2:14833',
    'std::string x::y 00:11:22',
    'a b c 12:00',
    'version 12.0.1-3',
  ]) {
    assert.equal(scrub(text), text);
  }
});

test('every string of a JSON value is checked, and members with revealing names are removed', () => {
  const value = createScrubber(identity).value({
    environment: { API_TOKEN: secret, PATH: '/bin', HOME: '/home/alice' },
    list: [`password=${secret}`, 3, null, true],
    'moonbase-7': 'x',
  });
  assert.deepEqual(value, {
    environment: { API_TOKEN: '[redacted]', PATH: '/bin', HOME: '/home/[user-1]' },
    list: ['password=[redacted]', 3, null, true],
    '[host-1]': 'x',
  });
});

test('a long line without a match does not take long', () => {
  const hostile = [
    `${'a'.repeat(200_000)}`,
    `KEY${'='.repeat(50_000)}`,
    `"${'\\'.repeat(50_000)}`,
    '/home/'.repeat(20_000),
  ];
  for (const text of hostile) assert.equal(typeof scrub(text), 'string');
  assert.equal(scrub(`before ${'a'.repeat(9000)} after`), 'before [a word of 9000 characters] after');
  for (const word of ['a', '=', '\\', '/home/', 'KEY', '"KEY=']) {
    scrub(`${word.repeat(2000 / word.length)} `.repeat(5)); // as long as words may be
  }
});

test('the names of this machine are read from where it keeps them', (t) => {
  const root = mkdtempSync(path.join(tmpdir(), 'vgpu-identity-'));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(path.join(root, 'etc'));
  const etc = (name: string, text: string): void => writeFileSync(path.join(root, 'etc', name), text);
  etc('hostname', 'moonbase\n');
  etc('hosts', '127.0.0.1 localhost\n10.0.0.9 db.internal.example db # the database\n');
  etc('resolv.conf', 'search corp.example lab.example\n');
  etc(
    'passwd',
    'root:x:0:0::/root:/bin/sh\nollama:x:998:998::/:/bin/false\nalice:x:1000:1000::/home/alice:/bin/sh\n',
  );
  etc('machine-id', `${'ab'.repeat(16)}\n`);
  const found = readIdentity(root, { SUDO_USER: 'bob', USER: 'root' }, 'moon.corp.example');
  for (const name of ['moonbase', 'moon', 'moon.corp.example', 'db.internal.example', 'db', 'lab.example']) {
    assert.ok(found.hosts.includes(name), name);
  }
  assert.deepEqual(found.users, ['alice', 'bob']);
  assert.ok(found.ids.includes('ab'.repeat(16)));
});
