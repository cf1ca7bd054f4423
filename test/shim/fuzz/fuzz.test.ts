/**
 * libFuzzer on what comes from the other end or from files. Short here, for each from the seeds on; longer with
 * VGPU_TEST_LONG=1, or by hand:
 *
 *   scripts/build-shim --fuzz && build/shim-fuzz/fuzz_host build/fuzz-corpus/host
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { FUZZERS, type Fuzzer, writeSeeds } from './seeds.js';

const LONG = process.env['VGPU_TEST_LONG'] === '1';
const SECONDS = LONG ? 120 : 1;
const KIND = LONG ? 'fuzz' : 'fuzz-short';
const BUILD = path.join(ROOT, `build/shim-${KIND}`);
const skip = spawnSync('clang', ['--version']).error !== undefined && 'no clang';

/**
 * A number of edges well below what the seeds alone reach. If the code no longer calls what a fuzzer puts in the place
 * of the socket, every input ends at its first frame, and nothing else would show that.
 */
const REACHED: Readonly<Record<Fuzzer, number>> = {
  greeting: 180,
  host: 6500,
  guest: 600,
  ring_host: 6000,
  ring_guest: 1000,
  image: 1400,
  conf: 350,
  profile: 240,
  ptx: 6000,
};

describe('fuzzing', { skip }, () => {
  before(() => {
    execFileSync(path.join(ROOT, 'scripts/build-shim'), [`--${KIND}`], { stdio: 'ignore' });
  });

  for (const fuzzer of FUZZERS) {
    it(`finds nothing in ${fuzzer} within ${SECONDS} s and in the committed corpus`, async () => {
      // The corpus of a long run is kept there, to be minimized and committed (corpus.ts). A short run starts again.
      const corpora = path.join(ROOT, LONG ? 'build/fuzz-corpus' : 'build/fuzz-corpus-short');
      if (!LONG) rmSync(path.join(corpora, fuzzer), { recursive: true, force: true });
      const { corpus, options } = writeSeeds(fuzzer, corpora);
      const found = path.join(ROOT, 'build/fuzz-found', fuzzer);
      mkdirSync(found, { recursive: true });
      const ended = await runProgram(
        path.join(BUILD, `fuzz_${fuzzer}`),
        [
          ...options,
          `-max_total_time=${SECONDS}`,
          // The seeds take a short run's time, and a third of that went into the choice of inputs to change.
          ...(LONG ? [] : ['-entropic=0']),
          '-detect_leaks=0',
          '-rss_limit_mb=4096',
          '-timeout=60',
          '-max_len=65536',
          `-artifact_prefix=${found}/`,
          corpus,
        ],
        {
          // A worker's memory is freed with its process, so at the end of the fuzzer it would be reported as leaked.
          env: {
            VGPU_FUZZ_PROFILE: path.join(ROOT, 'profiles/devices/h100-80gb.json'),
            VGPU_FUZZ_IMAGES: ['kernels', 'managed']
              .map((name) => path.join(ROOT, `test/fixtures/code/${name}.ptx`))
              .join(':'),
            ASAN_OPTIONS: 'detect_leaks=0',
          },
          limit: (SECONDS + 240) * 1000,
        },
      );
      assert.equal(ended.code, 0, `${ended.signal} ${ended.stderr.slice(-4000)}`);
      assert.match(ended.stderr, /Done \d+ runs in/);
      const reached = Number(/INITED cov: (\d+)/.exec(ended.stderr)?.[1]);
      assert.ok(reached >= REACHED[fuzzer], `the seeds reach ${reached} edges`);
    });
  }
});
