// The documents' own commands, word for word, each page in a guest of its own: a reader who follows a page arrives.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { shellBlocks, showsLine } from '../pages.js';
import { whyNoStandIn } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { installToGpu, prepareConsumer } from './support/installed.js';
import { until } from './support/process.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();
const mark = /^run: test\/guest\/documents\.test\.ts(?:, status (\d+))?$/;
const address = 'unix:/run/vgpu/hostd.sock';

/** The guest's replacements for the things that a page names: no vsock, no GPU, root without sudo. */
const instead: readonly (readonly [string, string])[] = [
  ['vsock:2:14833', address],
  ['--device cuda --listen vsock:14833', `--device software --listen ${address} --yes`],
  ['host uninstall', 'host uninstall --yes'],
];
const sudo = 'sudo() { "$@"; }\nset -e -o pipefail\n';

type Page = (guest: Guest) => Promise<void>;
const withHost: Page = async (guest) => {
  await guest.hosts.start();
  await prepareConsumer(guest, 3);
  // It is waited for, because the page's first command reads its log.
  await until(
    'the consumer to name its device',
    60_000,
    async () =>
      (await guest.must('journalctl', '--unit=ollama', '--output=cat')).includes('inference compute') ||
      undefined,
  );
};
const installed: Page = async (guest) => {
  await withHost(guest);
  await installToGpu(guest);
};
const withSecond: Page = async (guest) => {
  await withHost(guest);
  const unit = await guest.read('/etc/systemd/system/ollama.service');
  const other = unit.replace('[Service]\n', '[Service]\nEnvironment=OLLAMA_HOST=127.0.0.1:21434\n');
  await guest.write('/etc/systemd/system/mine.service', other);
  await guest.must('systemctl', 'daemon-reload');
  await guest.must('systemctl', 'start', 'mine');
};

/** The state of the machine before a page's first block. */
const pages: Readonly<Record<string, Page>> = {
  'docs/tutorial.md': withHost,
  'docs/howto/guest.md': withHost,
  'docs/howto/host.md': async () => {},
};
/** Pages whose commands other tests also drive. */
const longPages: Readonly<Record<string, Page>> = {
  'docs/howto/read-a-verdict.md': installed,
  'docs/howto/several-consumers.md': withSecond,
  'docs/howto/upgrade-and-remove.md': installed,
  'docs/reference/trace.md': installed,
};
const long = process.env['VGPU_TEST_LONG'] === '1' ? false : 'minutes: VGPU_TEST_LONG=1';

describe('a page followed word for word', { skip }, () => {
  for (const [page, prepare] of Object.entries({ ...pages, ...longPages })) {
    test(page, { skip: page in longPages && long }, async (t) => {
      const blocks = shellBlocks(page).flatMap((block) => {
        const [found, status = '0'] = mark.exec(block.mark) ?? [];
        return found === undefined ? [] : [{ ...block, status: Number(status) }];
      });
      assert.ok(blocks.length > 0, 'no block says that it is run here');
      const guest = await Guest.start({}, t);
      await prepare(guest);
      for (const { text, line, status, shows } of blocks) {
        const script = instead.reduce((now, [from, to]) => now.replaceAll(from, to), text);
        const ran = await guest.runWith({ timeoutMs: 180_000 }, 'bash', '-c', sudo + script);
        // The results last: a report keeps the end of a long message, and the plan on stderr has hundreds of lines.
        const said = `${ran.stderr}${ran.stdout}`;
        assert.equal(ran.code, status, `${page}:${line}\n${script}${said}`);
        for (const one of shows) assert.ok(showsLine(said, one), `${page}:${line} shows "${one}"\n${said}`);
      }
    });
  }
});

test('a line of a page is found with any blanks and any text for [...], and no other line is', () => {
  const output = 'GPU (simulated)  x\n  + log       time=1 msg="a" id=0 library=CUDA\n';
  assert.ok(showsLine(output, '+ log [...] msg="a" [...]'));
  assert.ok(showsLine(output, 'GPU (simulated) x'));
  assert.ok(!showsLine(output, '+ log [...] msg="b" [...]'));
  assert.ok(!showsLine(output, 'GPU (simulated)'));
});
