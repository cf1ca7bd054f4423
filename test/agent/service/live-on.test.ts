/** The service's policy for errors that nobody expected. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { liveOn } from '../../../agent/service/run.js';

const dist = path.join(packageRoot(), 'dist/agent');

test('a thrown error, a rejected promise and a report of one are logged, ten a minute, and the process goes on', () => {
  const script = `
    import { ${liveOn.name} } from '${dist}/service/run.js';
    import { reportUnexpected } from '${dist}/lib/errors.js';
    ${liveOn.name}((text) => console.log(text.split('\\n')[0]));
    // In sequence: if all timers are late, the last may run before the errors of the first are logged.
    const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
    setTimeout(() => { throw new TypeError('in a timer'); });
    await pause();
    void Promise.reject(new Error('in a promise'));
    await pause();
    reportUnexpected(new Error('reported'));
    await pause();
    for (let i = 0; i < 100; i += 1) reportUnexpected(new Error('again'));
    await pause();
    console.log('alive');
  `;
  const ran = spawnSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stderr);
  const lines = ran.stdout.trim().split('\n');
  assert.match(lines[0] ?? '', /uncaughtException.*the service goes on.*TypeError: in a timer/);
  assert.match(lines[1] ?? '', /unhandledRejection.*in a promise/);
  assert.match(lines[2] ?? '', /reported/);
  assert.equal(lines.filter((line) => line.includes('again')).length, 7);
  assert.equal(lines.at(-2), 'further unexpected errors of this minute are not logged');
  assert.equal(lines.at(-1), 'alive');
});
