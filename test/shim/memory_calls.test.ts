import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  builtFile,
  type Host,
  SHIM,
  scratchDirectory,
  sessionsNow,
  startChain,
  startHost,
  until,
} from './shim_host.js';

/** Programs under test/shim/programs and their cases, each a process of its own. */
const PROGRAMS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  stream_calls: {
    properties: 'streams say what they were made with and know handles that are none',
    attributes: 'streams keep their attributes',
    events: 'events measure time at the host',
    pinned_reads: 'pinned memory has what was read once the program has waited',
    many_reads: 'many reads on many streams all arrive',
    host_functions: 'functions of the program run in the order of their stream',
    wait_values: 'a stream waits for a value without holding up others',
    default_stream_order: 'the default stream and blocking streams wait for each other',
  },
  copy_calls: {
    pointers: 'what pointers and peers are asked and set to',
    linear: 'copies between all kinds of memory',
    batch: 'a batch of copies',
    two_dimensions: 'copies in two dimensions touch their box only',
    three_dimensions: 'copies in three dimensions touch their box only',
    fills: 'fills of all widths in one and two dimensions',
  },
  pool_calls: {
    allocates: 'memory taken and freed in the order of a stream is used and given back',
    waits: 'memory freed on a stream that waits is freed when its turn comes',
    thresholds: 'a pool keeps what its release threshold says, and gives it back when it is trimmed',
    pools: 'pools are made, set, limited and destroyed, and the default pool stays',
    bad_requests: 'what cannot be of a pool is refused',
    captures: 'a capture that would allocate ends with an error',
  },
  pinned_calls: {
    lengths: 'copies of every length to and from pinned memory are done when they return',
    in_order: 'asynchronous copies through the same pinned memory keep their order',
    behind_a_wait: 'copies behind a stream that waits are made after it',
    many: 'pinned memory is made, given back and made again',
    threads: 'many threads have pinned memory of their own',
    forks: 'a child that forked has none of it',
  },
  virtual_calls: {
    grows: 'a reservation that grows piece by piece is used as one memory',
    aliases: 'what is mapped twice is one memory, and what is made anew is empty',
    access_rules: 'mapped memory is only there where access was given',
    bad_requests: 'virtual memory that cannot be is refused, and what is taken is counted',
  },
};

const PORT = 41_000 + (process.pid % 4_000);

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
}

function run(
  program: string,
  name: string,
  host: Host,
  more: Readonly<Record<string, string>>,
): Promise<Ended> {
  const { VGPU_LOG: _log, CUDA_VISIBLE_DEVICES: _visible, ...clean } = process.env;
  const child = spawn(builtFile(path.join('programs', program)), [name], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...clean, LD_LIBRARY_PATH: SHIM, VGPU_HOST: host.address, ...more },
    timeout: 30_000,
    killSignal: 'SIGKILL',
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  return new Promise((resolve) => child.once('close', (code, signal) => resolve({ code, signal, output })));
}

for (const transport of ['unix', 'unix without a ring', 'tcp', 'chain'] as const) {
  describe(
    transport === 'chain'
      ? 'memory and streams with --device cuda over our own library'
      : `memory and streams over ${transport}`,
    () => {
      const scratch = scratchDirectory();
      let host: Host;

      before(async () => {
        host =
          transport === 'chain'
            ? await startChain(scratch.path)
            : await startHost({
                listen: transport === 'tcp' ? `tcp:127.0.0.1:${PORT}` : `unix:${scratch.path}/s`,
              });
      });
      after(async () => {
        await host.stop();
        scratch.remove();
      });

      for (const [program, cases] of Object.entries(PROGRAMS)) {
        for (const [name, sentence] of Object.entries(cases)) {
          it(sentence, async () => {
            const more: Record<string, string> =
              transport === 'unix without a ring' ? { VGPU_TRANSPORT: 'socket' } : {};
            assert.deepEqual(await run(program, name, host, more), { code: 0, signal: null, output: '' });
            await until('the session to end', () => sessionsNow(host) === 0);
            assert.doesNotMatch(host.log(), /Sanitizer|violation/);
          });
        }
      }
    },
  );
}
