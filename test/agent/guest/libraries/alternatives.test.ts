import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { describe, it } from 'node:test';
import type { AlternativeGroup } from '../../../../agent/contracts/facts.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { parseAlternative, readAlternatives } from '../../../../agent/guest/libraries/alternatives.js';
import { tree } from '../support.js';

const present = spawnSync('update-alternatives', ['--version']).status === 0;
const skip = !present && 'there is no update-alternatives here';

/**
 * A root with the group that Debian's nvidia-alternative makes. update-alternatives is given the paths of
 * this machine, so what it records names the directory; `strip` takes that off again.
 */
function debianRoot(directory: string): (...args: string[]) => string {
  const run = (...args: string[]): string => {
    const result = spawnSync(
      'update-alternatives',
      [
        '--admindir',
        path.join(directory, 'var/lib/dpkg/alternatives'),
        '--altdir',
        path.join(directory, 'etc/alternatives'),
        '--log',
        '/dev/null',
        ...args,
      ],
      { encoding: 'utf8', env: { LC_ALL: 'C', PATH: process.env['PATH'] } },
    );
    assert.equal(result.status, 0, result.stderr);
    return result.stdout;
  };
  return run;
}

/** `--query` as facts. */
function parseQuery(text: string): AlternativeGroup {
  const [head = '', ...blocks] = text.split('\n\n');
  const field = (block: string, name: string): string =>
    new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1] ?? '';
  const pairs = (block: string): [string, string][] =>
    [...block.matchAll(/^ (\S+) (\S+)$/gm)].map((match) => [match[1] ?? '', match[2] ?? '']);
  const status = field(head, 'Status');
  assert.ok(status === 'auto' || status === 'manual');
  return {
    name: field(head, 'Name'),
    link: field(head, 'Link'),
    status,
    value: field(head, 'Value'),
    slaves: pairs(head).map(([name, link]) => ({ name, link })),
    choices: blocks.map((block) => ({
      path: field(block, 'Alternative'),
      priority: Number(field(block, 'Priority')),
      slaves: Object.fromEntries(pairs(block)),
    })),
  };
}

describe('alternatives', () => {
  it('reads what update-alternatives --query says of a group with several choices', { skip }, (context) => {
    const directory = tree(context, {
      'etc/alternatives': {},
      'var/lib/dpkg/alternatives': {},
      'usr/lib/x86_64-linux-gnu/nvidia/current': { 'libcuda.so.1': 'a', 'libnvidia-ml.so.1': 'b' },
      'usr/lib/x86_64-linux-gnu/nvidia/tesla-470': { 'libcuda.so.1': 'c' },
      'usr/lib/nvidia/current': {},
      'usr/lib/nvidia/tesla-470': {},
      'usr/bin/vi.real': '',
    });
    const run = debianRoot(directory);
    const at = (file: string): string => path.join(directory, file);
    const lib = '/usr/lib/x86_64-linux-gnu';
    const slave = (name: string, choice: string): string[] => [
      '--slave',
      at(`${lib}/${name}`),
      `nvidia--${name}-x86_64-linux-gnu`,
      at(`${lib}/nvidia/${choice}/${name}`),
    ];
    run(
      ...['--install', at('/usr/lib/nvidia/nvidia'), 'nvidia', at('/usr/lib/nvidia/current'), '550'],
      ...slave('libcuda.so.1', 'current'),
      ...slave('libnvidia-ml.so.1', 'current'),
    );
    run(
      ...['--install', at('/usr/lib/nvidia/nvidia'), 'nvidia', at('/usr/lib/nvidia/tesla-470'), '-7'],
      ...slave('libcuda.so.1', 'tesla-470'),
    );
    run('--install', at('/usr/bin/vi'), 'vi', at('/usr/bin/vi.real'), '10');

    const auto = readAlternatives(new Root(directory));
    assert.deepEqual(auto, [parseQuery(run('--query', 'nvidia'))]);
    assert.equal(auto[0]?.status, 'auto');
    assert.equal(auto[0].choices.length, 2);

    run('--set', 'nvidia', at('/usr/lib/nvidia/tesla-470'));
    const manual = readAlternatives(new Root(directory));
    assert.deepEqual(manual, [parseQuery(run('--query', 'nvidia'))]);
    assert.equal(manual[0]?.status, 'manual');
    assert.equal(manual[0].value, at('/usr/lib/nvidia/tesla-470'));
  });

  it('is empty where dpkg keeps none', (context) => {
    assert.deepEqual(readAlternatives(new Root(tree(context))), []);
  });

  it('leaves a broken record out', () => {
    const good = 'auto\n/usr/bin/x\ns\n/usr/bin/s\n\n/a\n5\n\n\n';
    assert.deepEqual(parseAlternative('x', good, '/a')?.choices, [{ path: '/a', priority: 5, slaves: {} }]);
    for (const broken of [
      '',
      'neither\n/usr/bin/x\n\n\n',
      'auto\n',
      'auto\n/usr/bin/x\ns\n',
      'auto\n/usr/bin/x\n\n/a\nfive\n\n',
      'auto\n/usr/bin/x\ns\n/usr/bin/s\n\n/a\n5',
    ]) {
      assert.equal(parseAlternative('x', broken, '/a'), null, JSON.stringify(broken));
    }
  });
});
