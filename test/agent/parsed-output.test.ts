/**
 * No text that is meant for people is parsed where D-Bus, JSON, a declared format or an errno has the value. Every place
 * of agent/ that touches what another program printed stands here, with what makes it safe to read; a new one fails.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';

const shown = 'shown as it is, decides nothing';

/** File, how many places it has, and why each of them is right. */
const places: Readonly<Record<string, readonly [count: number, why: string]>> = {
  'lib/run-command.ts': [4, 'collects the bytes for those below'],
  // Formats that their program declares.
  'systemd/journal-reader.ts': [3, 'journalctl --output=json; its errors are shown'],
  'guest/host/inspect.ts': [2, 'vgpu-hostd status --json; its errors are shown'],
  'guest/vgpu-host/probe.ts': [2, 'vgpu-probe --json; its errors are shown'],
  'verdict/confirm.ts': [2, 'vgpu-probe --json; its errors are shown'],
  'verdict/watch-present.ts': [2, 'vgpu-probe --sessions --json; its errors are shown'],
  'service/helper.ts': [1, "vgpu-watch: this project's own protocol of lines"],
  'service/sessions-asker.ts': [1, 'vgpu-probe --sessions --follow --json: a document a line'],
  'guest/libraries/packages.ts': [
    2,
    "dpkg-query --search; rpm --queryformat '%{NAME}', pacman --quiet: names alone",
  ],
  'guest/libraries/loader.ts': [1, 'ldconfig -p: an entry a line'],
  'guest/unit/access.ts': [1, 'getent: lines of passwd(5) and group(5)'],
  'cli/report/tarball.ts': [2, 'the bytes of an archive; errors are shown'],
  'systemd/run-in-unit.ts': [
    3,
    "passes on what was run in the unit, whose end is asked over D-Bus; the loader's word on a C library in a container",
  ],
  // Text for people, because nothing else has the value.
  'guest/look/ask-loader.ts': [
    4,
    'ld.so: only LD_DEBUG tells why a library was chosen; unknown words are left out',
  ],
  'guest/look/closer-look.ts': [1, 'systemd-analyze cat-config: files, each below its path'],
  'guest/look/process.ts': [1, 'getcap: Node reads no extended attributes; what is not understood is quoted'],
  'guest/containers.ts': [
    1,
    'podman --version, which makes no storage as `podman version` may; else unknown',
  ],
  // Only shown.
  'guest/host/checks.ts': [3, shown],
  'cli/report/report.ts': [1, 'part of a report, as it is'],
  'install/apply/tools.ts': [2, shown],
  'install/apply/apply.ts': [1, shown],
  'install/apply/disk.ts': [1, shown],
};

/** Files that may start a process by other means than a CommandRunner. */
const starters: Readonly<Record<string, string>> = {
  'lib/run-command.ts': 'the CommandRunner itself',
  'systemd/journal-reader.ts': 'follows: it has no end that could be waited for',
  'service/helper.ts': 'lives as long as the service',
  'service/sessions-asker.ts': 'one probe answers every look; it ends with the service',
  'install/apply/lock.ts': 'flock(1), by its exit status alone; its output is not read',
  'lib/hand-over.ts': "runs the user's command on the user's terminal",
};

const agent = path.join(packageRoot(), 'agent');

/** How often `pattern` occurs in the code of each file of agent/, comments left out. */
function inFiles(pattern: RegExp): Readonly<Record<string, number>> {
  const found: Record<string, number> = {};
  for (const file of readdirSync(agent, { recursive: true, encoding: 'utf8' }).toSorted()) {
    if (!file.endsWith('.ts')) continue;
    const code = readFileSync(path.join(agent, file), 'utf8').replaceAll(
      /\/\*[\s\S]*?\*\/|(?<!:)\/\/.*/g,
      '',
    );
    const count = [...code.matchAll(pattern)].length;
    if (count > 0) found[file] = count;
  }
  return found;
}

test('output of other programs is read only in listed places, each with its reason', () => {
  // A member of a result, or taken out of one; not the streams of this process.
  const read =
    /(?<!\b(?:self|process|terminal|tty))\.std(?:out|err)\b|const \{[^}]*\bstd(?:out|err)\b[^}]*\} = (?!terminal)/g;
  const counts = Object.fromEntries(Object.entries(places).map(([file, [count]]) => [file, count]));
  assert.deepEqual(inFiles(read), Object.fromEntries(Object.entries(counts).toSorted()));
});

test('processes are started in known places only', () => {
  const started = inFiles(/\b(?:spawn|spawnSync|exec|execSync|execFile|execFileSync|fork)\((?!\))/g);
  const importing = inFiles(/from 'node:child_process'/g);
  assert.deepEqual(Object.keys(importing), Object.keys(starters).toSorted());
  for (const file of Object.keys(importing)) assert.ok(started[file] !== undefined, file);
});
