/** Run as root: what another user plants (uid 65534 here) is neither followed, nor waited for, nor written through. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { VgpuError } from '../../../../agent/lib/errors.js';
import {
  changeableByOthers,
  namesUpTo,
  openDirectory,
  readLimited,
  replaceFile,
} from '../../../../agent/lib/trust/files.js';

const stranger = 65534;
const skip = process.geteuid?.() === 0 ? false : 'only root can make files of another user';

interface Place {
  /** Of root's, 0755. */
  readonly root: string;
  /** In it, the stranger's. */
  readonly theirs: string;
}

/** Below a directory that only root may write, which /tmp is not. */
function place(context: TestContext): Place {
  const root = fs.mkdtempSync('/run/vgpu-trust-');
  context.after(() => fs.rmSync(root, { recursive: true, force: true }));
  fs.chmodSync(root, 0o755);
  const theirs = path.join(root, 'theirs');
  fs.mkdirSync(theirs);
  fs.chownSync(theirs, stranger, stranger);
  return { root, theirs };
}

function file(name: string, content: string, mode = 0o644, uid = 0): string {
  fs.writeFileSync(name, content);
  fs.chmodSync(name, mode);
  fs.chownSync(name, uid, uid);
  return name;
}

function link(name: string, target: string, uid: number): string {
  fs.symlinkSync(target, name);
  fs.lchownSync(name, uid, uid);
  return name;
}

const text = (name: string, limit = 100): string | null => readLimited(name, limit)?.toString() ?? null;

describe('a file that is read', { skip }, () => {
  it('is read whole, through links of root’s', (context) => {
    const { root } = place(context);
    file(path.join(root, 'secret'), 'hidden', 0o600);
    fs.mkdirSync(path.join(root, 'a'));
    link(path.join(root, 'a', 'up'), '../a/../secret', 0);
    link(path.join(root, 'b'), path.join(root, 'a'), 0);
    assert.equal(text(path.join(root, 'b', 'up')), 'hidden');
    assert.equal(text(path.join(root, 'absent')), null);
    assert.equal(text(path.join(root, 'secret', 'x')), null);
    assert.equal(text(root), null);
  });

  it("is not a file that another user's link refers to and that user cannot read", (context) => {
    const { root, theirs } = place(context);
    const secret = file(path.join(root, 'secret'), 'hidden', 0o600);
    assert.equal(text(link(path.join(theirs, 'link'), secret, stranger)), null);
    link(path.join(theirs, 'directory'), root, stranger);
    assert.equal(text(path.join(theirs, 'directory', 'secret')), null);
    // The owner of the directory can move a link into it that root made for another place.
    assert.equal(text(link(path.join(theirs, 'roots'), secret, 0)), null);
    fs.mkdirSync(path.join(root, 'closed'), { mode: 0o700 });
    file(path.join(root, 'closed', 'open'), 'behind a closed door', 0o644);
    assert.equal(text(link(path.join(theirs, 'door'), path.join(root, 'closed', 'open'), stranger)), null);
  });

  it('may be one that the stranger could read too', (context) => {
    const { root, theirs } = place(context);
    const everybodys = file(path.join(root, 'open'), 'seen by all');
    assert.equal(text(link(path.join(theirs, 'link'), everybodys, stranger)), 'seen by all');
    file(path.join(theirs, 'own'), 'their own', 0o600, stranger);
    assert.equal(text(link(path.join(theirs, 'to-own'), 'own', stranger)), 'their own');
  });

  it('is no FIFO, no device and no socket, and nothing is waited for', (context) => {
    const { theirs } = place(context);
    execFileSync('mkfifo', [path.join(theirs, 'fifo')]);
    assert.equal(text(path.join(theirs, 'fifo')), null);
    assert.equal(text(link(path.join(theirs, 'zero'), '/dev/zero', stranger)), null);
  });

  it('is not believed about its size', (context) => {
    const { theirs } = place(context);
    const giant = path.join(theirs, 'giant');
    fs.writeFileSync(giant, 'x');
    fs.truncateSync(giant, 2 ** 40);
    assert.equal(text(giant), null);
    assert.equal(text(file(path.join(theirs, 'fits'), 'x'.repeat(100)))?.length, 100);
    assert.equal(text(file(path.join(theirs, 'longer'), 'x'.repeat(101))), null);
    // A file of /proc claims no bytes and has some.
    assert.match(readLimited('/proc/self/status', 1 << 16)?.toString() ?? '', /^Name:/);
  });

  it('goes round in no circle', (context) => {
    const { theirs } = place(context);
    link(path.join(theirs, 'a'), 'b', stranger);
    assert.equal(text(link(path.join(theirs, 'b'), 'a', stranger)), null);
  });
});

describe('a file that is written', { skip }, () => {
  it('replaces files that a stranger planted at its names, and leaves the targets of links alone', (context) => {
    const { root, theirs } = place(context);
    const victim = file(path.join(root, 'victim'), 'as before', 0o600);
    link(path.join(theirs, 'out'), victim, stranger);
    link(path.join(theirs, '.out.new'), victim, stranger);
    const directory = openDirectory(theirs);
    context.after(() => directory.close());
    replaceFile(directory, 'out', 'ours', 0o644);
    assert.equal(fs.readFileSync(victim, 'utf8'), 'as before');
    assert.equal(fs.readFileSync(path.join(theirs, 'out'), 'utf8'), 'ours');
    assert.ok(fs.lstatSync(path.join(theirs, 'out')).isFile());
    assert.deepEqual(fs.readdirSync(theirs), ['out']);
  });

  it("does not enter a directory through another user's link", (context) => {
    const { root, theirs } = place(context);
    link(path.join(theirs, 'in'), root, stranger);
    assert.throws(
      () => openDirectory(path.join(theirs, 'in')),
      (error) => error instanceof VgpuError && error.kind === 'refused',
    );
    assert.throws(() => openDirectory(path.join(root, 'absent')), /no such directory/);
  });

  it('writes into the directory that was opened, not into the one that has its name now', (context) => {
    const { root, theirs } = place(context);
    const inner = path.join(theirs, 'inner');
    fs.mkdirSync(inner);
    const directory = openDirectory(inner);
    context.after(() => directory.close());
    fs.renameSync(inner, path.join(theirs, 'away'));
    link(inner, root, stranger);
    replaceFile(directory, 'out', 'ours', 0o644);
    assert.deepEqual(fs.readdirSync(path.join(theirs, 'away')), ['out']);
    assert.ok(!fs.existsSync(path.join(root, 'out')));
  });
});

describe('programs that other users could change', { skip }, () => {
  it('is reported for the file, a directory above it, and the target of a link', (context) => {
    const { root, theirs } = place(context);
    const ours = file(path.join(root, 'ours'), '', 0o755);
    assert.equal(changeableByOthers(ours), null);
    assert.equal(changeableByOthers(file(path.join(root, 'loose'), '', 0o775)), path.join(root, 'loose'));
    assert.equal(changeableByOthers(file(path.join(theirs, 'x'), '', 0o755)), theirs);
    assert.equal(changeableByOthers(link(path.join(root, 'link'), path.join(theirs, 'x'), 0)), theirs);
    assert.equal(changeableByOthers(link(path.join(theirs, 'back'), ours, 0)), theirs);
    assert.equal(changeableByOthers(path.join(root, 'absent')), path.join(root, 'absent'));
  });

  it('is reported for the first of several that share their directories', (context) => {
    const { root, theirs } = place(context);
    const ours = ['a', 'b', 'c'].map((name) => file(path.join(root, name), '', 0o755));
    const away = link(path.join(root, 'away'), path.join(theirs, 'x'), 0);
    file(path.join(theirs, 'x'), '', 0o755);
    const loose = file(path.join(root, 'loose'), '', 0o775);
    assert.equal(changeableByOthers(...ours), null);
    assert.equal(changeableByOthers(...ours, loose, away), loose);
    assert.equal(changeableByOthers(...ours, away, loose), theirs);
    assert.equal(changeableByOthers(...ours, path.join(root, 'absent')), path.join(root, 'absent'));
  });
});

describe('a directory that another process fills', () => {
  it('gives no more names than were asked for', (context) => {
    const directory = fs.mkdtempSync(path.join(tmpdir(), 'vgpu-trust-'));
    context.after(() => fs.rmSync(directory, { recursive: true, force: true }));
    for (const name of ['a', 'b', 'c']) fs.writeFileSync(path.join(directory, name), '');
    assert.deepEqual(namesUpTo(directory, 3).sort(), ['a', 'b', 'c']);
    assert.equal(namesUpTo(directory, 2).length, 2);
    assert.throws(() => namesUpTo(path.join(directory, 'a'), 2), /ENOTDIR/);
  });
});
