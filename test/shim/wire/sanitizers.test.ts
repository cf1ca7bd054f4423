/**
 * The tests that attack either end, or use it from many threads, once more on builds with sanitizers; all of them,
 * for minutes, with `scripts/test --sanitize` and `scripts/test --thread`.
 */
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { VARIANT } from '../shim_host.js';

interface Part {
  readonly what: string;
  /** For scripts/build-shim. */
  readonly build: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly files: readonly string[];
  readonly tests: string;
  readonly count: number;
}

const PARTS: readonly Part[] = [
  {
    what: 'a host and a guest with AddressSanitizer and UBSan, under attack through shared memory',
    build: ['--fuzz-short', 'shim'],
    env: { VGPU_TEST_SHIM: 'shim-fuzz-short' },
    files: ['host/attack_ring'],
    tests:
      'loses its session|gains nothing|reads and writes through a shared region|has no shared region|in the ring when it went',
    count: 15,
  },
  {
    what: 'a host with AddressSanitizer and UBSan that compiles and ends things beside its serving thread',
    build: ['--fuzz-short', 'shim'],
    env: { VGPU_TEST_DAEMON: 'shim-fuzz-short' },
    files: ['host/driver'],
    tests: '^(compiles|unmaps memory|gives back pinned memory|ends a context|has memory for a read)',
    count: 5,
  },
  {
    what: 'a guest with ThreadSanitizer and 64 threads, served and left alone',
    build: ['--thread-short'],
    env: { VGPU_TEST_SHIM: 'shim-thread-short', VGPU_TEST_DAEMON: 'shim' },
    files: ['cuda/driver_api', 'host/lost_host', 'guest/guest_life'],
    tests: '64 threads|however many threads begin|^is (left by|forked|preempted)',
    count: 17,
  },
];

const clang = spawnSync('clang', ['--version']).error === undefined;

describe('with sanitizers', { skip: VARIANT === 'shim' ? false : 'this run has them' }, () => {
  for (const part of PARTS) {
    it(part.what, { skip: part.build[0] === '--fuzz-short' && !clang && 'no clang' }, async () => {
      await promisify(execFile)(path.join(ROOT, 'scripts/build-shim'), [...part.build]);
      const reports = path.join(ROOT, 'build', `reports${part.build.join('')}`);
      rmSync(reports, { recursive: true, force: true });
      mkdirSync(reports, { recursive: true });
      const log = `log_path=${reports}/report`;
      // A session in a forked child has a thread, too, which ThreadSanitizer else ends the child for.
      const tsan = `${log}:die_after_fork=0`;
      const { NODE_TEST_CONTEXT: _context, ...env } = process.env;
      const ended = await runProgram(
        process.execPath,
        [
          '--test',
          '--test-reporter=tap',
          `--test-name-pattern=${part.tests}`,
          ...part.files.map((file) => path.join(ROOT, `dist/test/shim/${file}.test.js`)),
        ],
        {
          only: { ...env, ...part.env, ASAN_OPTIONS: log, UBSAN_OPTIONS: log, TSAN_OPTIONS: tsan },
          limit: 600_000,
        },
      );
      const reported = readdirSync(reports).map((name) => readFileSync(path.join(reports, name), 'utf8'));
      assert.deepEqual(reported, []);
      assert.equal(ended.code, 0, ended.stdout.slice(-6000) + ended.stderr.slice(-2000));
      const passed = Number(/^# pass (\d+)$/m.exec(ended.stdout)?.[1]);
      assert.ok(passed >= part.count, `${passed} of ${part.count} tests were run: ${ended.stdout}`);
    });
  }
});
