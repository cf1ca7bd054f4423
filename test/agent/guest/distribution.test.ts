import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseOsRelease, readDistribution } from '../../../agent/guest/distribution.js';
import { Root } from '../../../agent/guest/files/root.js';
import { tree } from './support.js';

describe('distribution', () => {
  for (const [name, osRelease, family, multiarch] of [
    ['Debian', 'ID=debian\nVERSION_ID="12"\n', 'debian', 'x86_64-linux-gnu'],
    ['Ubuntu', 'ID=ubuntu\nID_LIKE=debian\n', 'debian', 'x86_64-linux-gnu'],
    ['Linux Mint', 'ID=linuxmint\nID_LIKE="ubuntu debian"\n', 'debian', 'x86_64-linux-gnu'],
    ['Rocky', 'ID="rocky"\nID_LIKE="rhel centos fedora"\n', 'redhat', null],
    ['Amazon Linux', 'ID="amzn"\nID_LIKE="fedora"\n', 'redhat', null],
    ['openSUSE', 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', 'suse', null],
    ['SLES', 'ID="sles"\n', 'suse', null],
    ['Arch', 'ID=arch\n', 'arch', null],
    ['EndeavourOS', 'ID=endeavouros\nID_LIKE="arch"\n', 'arch', null],
    ['NixOS', 'ID=nixos\n', 'unknown', null],
  ] as const) {
    it(`tells that ${name} is of the family ${family}`, (context) => {
      const found = readDistribution(new Root(tree(context, { 'etc/os-release': osRelease })), 'x86_64');
      assert.equal(found.family, family);
      assert.equal(found.multiarch, multiarch);
    });
  }

  it('follows the usual link to /usr/lib/os-release inside the root, or goes there without it', (context) => {
    const content = 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n';
    for (const etc of [{ 'etc/os-release': { link: '../usr/lib/os-release' } }, {}]) {
      const root = new Root(tree(context, { ...etc, 'usr/lib/os-release': content }));
      const found = readDistribution(root, 'aarch64');
      assert.deepEqual(
        [found.family, found.prettyName, found.multiarch],
        ['debian', 'Debian GNU/Linux 13 (trixie)', 'aarch64-linux-gnu'],
      );
    }
  });

  it('is unknown without os-release, and does not mind garbage', (context) => {
    assert.equal(readDistribution(new Root(tree(context)), 'x86_64').family, 'unknown');
    const root = new Root(tree(context, { 'etc/os-release': Buffer.from([0, 255, 10, 61, 61, 10]) }));
    assert.equal(readDistribution(root, 'x86_64').family, 'unknown');
  });

  it('takes quotes and escapes off', () => {
    const fields = parseOsRelease('A="x \\"y\\" \\$z"\nB=\'a"b\'\nC=plain\n# D=no\nE=\nC=last\n');
    assert.deepEqual(
      [...fields],
      [
        ['A', 'x "y" $z'],
        ['B', 'a"b'],
        ['C', 'last'],
        ['E', ''],
      ],
    );
  });
});
