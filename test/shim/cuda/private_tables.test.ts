import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { buildProgram, runProgram } from './private_programs.js';

const cases = {
  sizes: 'have the sizes of the real ones, and no empty slot that is not empty there',
  unknown: 'are a table of refusals where the id is not known, for callers that do not look',
  functions: 'tell the functions of a module one by one',
  streams: "tell a stream's inner handle and its number",
  runtime: 'give the runtime its primary context, hooks and checks, and fail closed elsewhere',
  integrity: 'answer the integrity question for this process, this thread and these tables',
  storage: 'keep values per context and key and run destructors when a context goes',
  threads: 'keep the values of many threads apart',
  forks: 'neither hang nor see old values in a child forked while another thread was inside',
  pages: 'need no page that is writable and executable',
} as const;

for (const sanitize of ['address,undefined', 'thread'] as const) {
  describe(`the private tables under ${sanitize} sanitizers`, () => {
    let program = '';
    before(async () => {
      program = await buildProgram({
        name: `private_tables-${sanitize.replace(',', '-')}`,
        sanitize,
        sources: [
          'test/shim/programs/private_tables.c',
          'shim-src/guest/reentry.c',
          'shim-src/guest/log.c',
          ...['tables', 'local_storage', 'integrity', 'hmac', 'md2'].map(
            (name) => `shim-src/guest/private/${name}.c`,
          ),
        ],
      });
    });
    for (const [name, says] of Object.entries(cases)) {
      it(says, async () => {
        const ended = await runProgram(program, [name]);
        assert.equal(ended.stderr, '');
        assert.equal(ended.code, 0);
      });
    }
  });
}
