// A consumer that serves requests is not restarted under them; and one that is updated is on the GPU again.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
import { whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { until } from '../support/process.js';
import {
  entries,
  generous,
  installService,
  property,
  said,
  settledOnGpu,
  status,
  untilEntry,
} from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();
const busyFile = '/run/stand-in-busy';

describe('a consumer with the service', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await installService(guest, generous, { STANDIN_BUSY: busyFile });
  });
  after(() => guest.stop());

  /** A request that the consumer is working on until the file is gone. */
  const request = (): ReturnType<Guest['spawn']> =>
    guest.spawn(
      [
        'bash',
        '-c',
        'exec 3<>/dev/tcp/127.0.0.1/11434; printf "POST /api/generate HTTP/1.0\\r\\n\\r\\n" >&3; cat <&3',
      ],
      { stdio: ['ignore', 'pipe', 'ignore'] },
    );
  const hostGoesAndComes = async (): Promise<void> => {
    const lost = (await entries(guest, messageIds.hostLost)).length;
    const back = (await entries(guest, messageIds.hostBack)).length;
    await guest.hosts.stop('SIGKILL');
    await untilEntry(guest, messageIds.hostLost, lost);
    await guest.hosts.start();
    await untilEntry(guest, messageIds.hostBack, back);
  };

  test('with a request under way the consumer is not restarted; the service names the cause and restarts it afterwards', async () => {
    await guest.write(busyFile, '');
    const client = request();
    let answer = '';
    client.stdout?.on('data', (chunk: Buffer) => {
      answer += chunk.toString();
    });
    const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
    await until('the connection', 60_000, async () =>
      /:2CAA 0100007F:[0-9A-F]{4} 01/.test(await guest.must('cat', '/proc/net/tcp')) ? true : undefined,
    );
    const start = await guest.invocationId('ollama');
    await hostGoesAndComes();
    const deferred = await untilEntry(guest, messageIds.restartDeferred, 0);
    assert.match(
      deferred,
      /the host answers again.* and waits: it serves requests: 1 loaded \(.*\), \d+ connected/,
    );
    assert.match(await property(guest, 'PendingRestart'), /it serves requests/);
    assert.match(at(await status(guest), 'service', 'pendingRestart', 'waitsFor') as string, /it serves/);
    // The service asks again at every tick, and the answer stays no.
    const checks = Number(
      (await guest.must('vgpu-agent', 'metrics')).match(/^vgpu_checks_total (\d+)/m)?.[1],
    );
    assert.ok(checks > 0);
    assert.equal(await guest.invocationId('ollama'), start);
    assert.equal(answer, '', 'the request is still under way');
    // The request ends with its answer: nothing was cut off.
    await guest.must('rm', busyFile);
    await closed;
    assert.match(answer, /200 OK[\s\S]*"done":true/);
    await untilEntry(guest, messageIds.consumerRestarted, 0);
    assert.notEqual(await guest.invocationId('ollama'), start);
    await settledOnGpu(guest);
  });

  test('configured so, it is restarted under a request', async () => {
    const restarts = (await entries(guest, messageIds.consumerRestarted)).length;
    const deferred = (await entries(guest, messageIds.restartDeferred)).length;
    await guest.write(
      '/etc/vgpu-agent/agent.json',
      JSON.stringify({ ...generous, restart: { ...generous.restart, whileServing: true } }),
    );
    await guest.must('systemctl', 'reload', 'vgpu-agent');
    await settledOnGpu(guest);
    await guest.write(busyFile, '');
    const client = request();
    const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
    await until('the connection', 60_000, async () =>
      /:2CAA 0100007F:[0-9A-F]{4} 01/.test(await guest.must('cat', '/proc/net/tcp')) ? true : undefined,
    );
    await hostGoesAndComes();
    await untilEntry(guest, messageIds.consumerRestarted, restarts);
    await closed;
    await guest.must('rm', busyFile);
    assert.equal((await entries(guest, messageIds.restartDeferred)).length, deferred);
    await settledOnGpu(guest);
  });

  test('updated as its installer does (libraries removed, binary and unit written again, restarted)', async () => {
    const restarts = (await entries(guest, messageIds.consumerRestarted)).length;
    const start = await guest.invocationId('ollama');
    // The steps of install.sh; an inode of its own for each file, as a download has.
    await guest.must(
      'sh',
      '-ec',
      `cp -a /usr/local/lib/ollama /tmp/ollama-lib; cp -a /usr/local/bin/ollama /tmp/ollama-bin
       rm -rf /usr/local/lib/ollama; rm /usr/local/bin/ollama
       cp -r /tmp/ollama-lib /usr/local/lib/ollama; install -m 755 /tmp/ollama-bin /usr/local/bin/ollama
       cp /etc/systemd/system/ollama.service /tmp/unit; cat /tmp/unit >/etc/systemd/system/ollama.service
       systemctl daemon-reload; systemctl enable -q ollama; systemctl restart ollama`,
    );
    const now = await guest.invocationId('ollama');
    assert.notEqual(now, start);
    await until('a verdict about the new start', 60_000, async () =>
      at(await status(guest), 'verdict', 'invocationId') === now ? true : undefined,
    ).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await said(guest)}`);
    });
    await settledOnGpu(guest);
    assert.equal(await guest.invocationId('ollama'), now, 'it was on the GPU at once: no restart is needed');
    assert.equal((await entries(guest, messageIds.consumerRestarted)).length, restarts);
  });

  test('with its log in a file, whatever restarts it: judged by the lines of this start', async () => {
    await guest.write(
      '/etc/systemd/system/ollama.service.d/90-test.conf',
      '[Service]\nStandardOutput=append:/var/log/consumer.log\nStandardError=append:/var/log/consumer.log\n',
    );
    await guest.must('systemctl', 'daemon-reload');
    const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
    await until('the drop-in that notes where a start begins', 60_000, async () =>
      (await guest.read(dropIn)).includes('ExecStartPre=') ? true : undefined,
    );
    // A former start's lines are in the file when this one's are judged.
    for (const _ of [1, 2]) {
      await settledOnGpu(guest);
      await guest.must('systemctl', 'restart', 'ollama');
      const now = await guest.invocationId('ollama');
      await until('a verdict about this start', 60_000, async () =>
        at(await status(guest), 'verdict', 'invocationId') === now ? true : undefined,
      );
    }
    await settledOnGpu(guest);
  });
});
