// The real file system behind Disk, where it fails.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { nodeDisk } from '../../../../agent/install/apply/disk.js';
import { errnoOf } from '../../../../agent/lib/errors.js';
import { spawnRunner } from '../../../../agent/lib/run-command.js';
import { tree } from '../../guest/support.js';

/** The errno of a copy of `from`, whose cp speaks another language. */
async function failure(root: string, from: string, to: string): Promise<string | undefined> {
  const runner = spawnRunner();
  const disk = nodeDisk(
    {
      run: async (file, args) => {
        const ran = await runner.run(file, args);
        return { ...ran, stderr: Buffer.from('cp: es ging nicht\n') };
      },
    },
    root,
  );
  let code: string | undefined;
  await assert.rejects(disk.copy(from, to), (error: Error) => {
    assert.match(error.message, /es ging nicht/);
    code = errnoOf(error.cause);
    return true;
  });
  return code;
}

test('a copy that fails has the errno of the system, whatever the words of cp', async (context) => {
  const root = tree(context, { file: 'text', link: { link: 'nowhere' } });
  assert.equal(await failure(root, '/file', '/none/copy'), 'ENOENT');
  assert.equal(await failure(root, '/link', '/none/copy'), 'ENOENT');
  assert.equal(await failure(root, '/gone', '/copy'), 'ENOENT');
});

test('a copy without room, or onto a read-only file system, says so', {
  skip: process.geteuid?.() !== 0 && 'a small file system needs root',
}, async (context) => {
  const root = tree(context, { file: Buffer.alloc(256 * 1024, 1) });
  const small = path.join(root, 'small');
  mkdirSync(small);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', small]);
  assert.equal(mounted.status, 0, mounted.stderr.toString());
  try {
    assert.equal(await failure(root, '/file', '/small/copy'), 'ENOSPC');
    spawnSync('mount', ['-o', 'remount,ro', small]);
    assert.equal(await failure(root, '/file', '/small/copy'), 'EROFS');
  } finally {
    spawnSync('umount', [small]);
  }
});
