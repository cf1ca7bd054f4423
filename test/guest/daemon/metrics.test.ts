// Where the service's metrics go besides the bus: node_exporter's directory, a unix socket, loopback.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { until } from '../support/process.js';
import { generous, installService, publicLink, repairs, said, settledOnGpu } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

const directory = '/var/lib/prometheus/node-exporter';
const textfile = `${directory}/vgpu.prom`;
const socket = '/run/vgpu-agent/metrics.sock';
const gpu = /^vgpu_verdict\{profile="ollama",unit="ollama\.service",mode="gpu",simulated="1",reason=""\} 1$/m;

/** Asks by HTTP, as any user: `STATUS BODY`. Empty when there is no listener. */
async function scrape(guest: Guest, where: string, path = '/metrics', method = 'GET'): Promise<string> {
  const code =
    "const [where, path, method] = process.argv.slice(1); const at = where.startsWith('/') ? " +
    "{ socketPath: where } : { host: '127.0.0.1', port: Number(where) };" +
    "require('node:http').request({ ...at, path, method }, (answer) => { let body = ''; " +
    "answer.on('data', (part) => { body += part; }).on('end', () => console.log(answer.statusCode, body)); })" +
    ".on('error', () => {}).end()";
  const ran = await guest.runWith({ user: 'nobody' }, 'node', '-e', code, where, path, method);
  return ran.stdout;
}

describe('metrics of the service', { skip, concurrency: 1 }, () => {
  let guest: Guest;
  const ends: (() => Promise<void>)[] = [];

  const configure = async (metrics: object): Promise<void> => {
    await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify({ ...generous, metrics }));
    await guest.must('systemctl', 'reload', 'vgpu-agent');
  };
  const eventually = (what: string, check: () => Promise<boolean>): Promise<true> =>
    until(what, 60_000, async () => ((await check()) ? true : undefined));

  before(async () => {
    guest = await Guest.start({}, { after: (end) => void ends.push(end) });
    await guest.hosts.start();
    await guest.must('mkdir', '-p', directory);
    await installService(guest, { ...generous, metrics: { textfile, listen: `unix:${socket}` } });
  });
  after(async () => {
    for (const end of ends.reverse()) await end();
  });

  test('the textfile has the same values as the bus, complete and readable for every user, and changes after a repair', async () => {
    await eventually('the textfile tells the verdict', async () =>
      gpu.test((await guest.run('cat', textfile)).stdout),
    );
    const text = await guest.read(textfile);
    for (const line of text.split('\n').filter((one) => one !== ''))
      assert.match(line, /^(#|[a-z_]+(\{.*\})? [0-9.e+-]+$)/);
    assert.equal((await guest.must('stat', '-c', '%a', textfile)).trim(), '644');
    assert.equal(
      (await guest.must('ls', '-A', directory)).trim(),
      'vgpu.prom',
      'nothing half written is left',
    );

    const count = (now: string): number => Number(/^vgpu_repairs_total (\d+)$/m.exec(now)?.[1]);
    const before = count(text);
    await repairs(
      guest,
      () => guest.must('rm', publicLink),
      () => guest.exists(publicLink),
    );
    await eventually(
      'the textfile counts the repair',
      async () => count(await guest.read(textfile)) > before,
    );
  });

  test('the unix socket answers a request of any user for /metrics, and no other path', async () => {
    const answer = await scrape(guest, socket);
    assert.match(answer, /^200 # HELP /);
    assert.match(answer, gpu);
    assert.match(await scrape(guest, socket, '/etc/passwd'), /^404 /);
    assert.match(await scrape(guest, socket, '/metrics', 'POST'), /^404 /);
  });

  test('another configuration takes the file and the socket away, and listens on loopback only', async () => {
    await configure({ listen: 'tcp:127.0.0.1:9187' });
    await eventually('somebody listens', async () => (await scrape(guest, '9187')).startsWith('200 '));
    assert.equal(await guest.exists(socket), false);
    assert.equal(await guest.exists(textfile), false, 'no metrics file is left that is not kept up to date');
    const listening = await guest.must('ss', '-ltnH', 'sport = :9187');
    assert.match(listening, /^LISTEN +\d+ +\d+ +127\.0\.0\.1:9187 /);
    assert.equal(listening.trim().split('\n').length, 1);
  });

  test('an address that is not loopback is refused, and the former one stays in force', async () => {
    await guest.write(
      '/etc/vgpu-agent/agent.json',
      JSON.stringify({ ...generous, metrics: { listen: 'tcp:0.0.0.0:9187' } }),
    );
    await guest.run('systemctl', 'reload', 'vgpu-agent');
    await eventually('the refusal is told', async () =>
      /^vgpu_config_refused 1$/m.test(await scrape(guest, '9187')),
    );
  });

  test('a socket left by a service that was killed is taken over, and a file in its place is not deleted', async () => {
    await configure({ listen: `unix:${socket}` });
    await eventually('the socket answers', async () => (await scrape(guest, socket)).startsWith('200 '));
    await guest.must('systemctl', 'kill', '--signal=SIGKILL', 'vgpu-agent');
    await eventually('the next service answers', async () =>
      (await scrape(guest, socket)).startsWith('200 '),
    );
    await settledOnGpu(guest);

    const file = '/run/vgpu-agent/precious';
    await guest.write(file, 'mine');
    await configure({ listen: `unix:${file}` });
    await eventually('the trouble is told', async () =>
      (await said(guest)).includes(`cannot listen on unix:${file}`),
    );
    assert.equal(await guest.read(file), 'mine');
  });

  test('a textfile in a directory that the unit cannot write is reported with a remedy', async () => {
    await configure({ textfile: '/srv/vgpu.prom' });
    await eventually('the trouble is told', async () =>
      /cannot write \/srv\/vgpu\.prom: .*ReadWritePaths=/.test(await said(guest)),
    );
  });

  test('a service that is stopped leaves neither file nor socket', async () => {
    await configure({ textfile, listen: `unix:${socket}` });
    await eventually('both are there', async () => (await guest.exists(textfile)) && guest.exists(socket));
    await guest.must('systemctl', 'stop', 'vgpu-agent');
    assert.equal(await guest.exists(textfile), false);
    assert.equal(await guest.exists(socket), false);
  });
});
