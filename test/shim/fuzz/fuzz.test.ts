/**
 * libFuzzer on what comes from the other end or from files. Short here, for each from the seeds on; longer with
 * VGPU_TEST_LONG=1, or by hand:
 *
 *   scripts/build-shim --fuzz && build/shim-fuzz/fuzz_host build/fuzz-corpus/host
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { ROOT, runProgram } from '../private_programs.js';
import { FUZZERS, writeSeeds } from './seeds.js';

const LONG = process.env['VGPU_TEST_LONG'] === '1';
const SECONDS = LONG ? 120 : 3;
const BUILD = path.join(ROOT, 'build/shim-fuzz');
const skip = spawnSync('clang', ['--version']).error !== undefined && 'no clang';
/** Those that are built in seconds; the others are a whole daemon and a whole PTX machine. */
const SMALL: readonly string[] = ['guest', 'image', 'conf', 'profile'];
const chosen = FUZZERS.filter((fuzzer) => LONG || SMALL.includes(fuzzer));

describe('fuzzing', { skip }, () => {
  before(() => {
    execFileSync(path.join(ROOT, 'scripts/build-shim'), ['--fuzz', ...chosen], { stdio: 'ignore' });
  });

  for (const fuzzer of chosen) {
    it(`finds nothing in ${fuzzer} within ${SECONDS} s, nor in what it found before`, async () => {
      const { corpus, options } = writeSeeds(fuzzer, path.join(ROOT, 'build/fuzz-corpus'));
      const found = path.join(ROOT, 'build/fuzz-found', fuzzer);
      mkdirSync(found, { recursive: true });
      const known = path.join(ROOT, 'test/shim/fuzz/found', fuzzer);
      const ended = await runProgram(
        path.join(BUILD, `fuzz_${fuzzer}`),
        [
          ...options,
          `-max_total_time=${SECONDS}`,
          '-detect_leaks=0',
          '-rss_limit_mb=4096',
          '-timeout=60',
          '-max_len=65536',
          `-artifact_prefix=${found}/`,
          corpus,
          ...(existsSync(known) && readdirSync(known).length > 0 ? [known] : []),
        ],
        {
          // What a worker holds goes with its process, so the end of the fuzzer finds it 'leaked'.
          env: {
            VGPU_FUZZ_PROFILE: path.join(ROOT, 'profiles/devices/h100-80gb.json'),
            ASAN_OPTIONS: 'detect_leaks=0',
          },
          limit: (SECONDS + 240) * 1000,
        },
      );
      assert.equal(ended.code, 0, `${ended.signal} ${ended.stderr.slice(-4000)}`);
      assert.match(ended.stderr, /Done \d+ runs in/);
    });
  }
});
