/** Docker's word on a container, from a daemon that is a socket in a temporary directory. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { containerOf } from '../../../agent/containers/container-unit.js';
import { dockerPid } from '../../../agent/containers/docker.js';

const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-docker-'));
const socket = path.join(directory, 'docker.sock');

/** The answers of docker 26.1, reduced to the members that are read. */
const bodies: Readonly<Record<string, string>> = {
  '/containers/web/json': '{"Id":"fd87","State":{"Status":"running","Pid":4711},"Name":"/web"}',
  '/containers/ended/json': '{"Id":"fd88","State":{"Status":"exited","Pid":0},"Name":"/ended"}',
  '/containers/odd/json': '{"State":{"Pid":"4711; rm"}}',
  '/containers/cut/json': '{"State":{"Pid":47',
};

function pidOf(name: string | null, host: string | null = `unix://${socket}`): Promise<number | null> {
  const options = host === null ? [] : ['--host', host];
  const named = name === null ? [] : ['--name', name];
  const container = containerOf({ execStart: ['/usr/bin/docker', ...options, 'run', ...named, 'image'] });
  assert.ok(container !== null);
  return dockerPid(container);
}

describe("docker's daemon", () => {
  let server: Server;
  const asked: string[] = [];
  before(
    () =>
      new Promise<void>((resolve) => {
        server = createServer(({ url = '' }, response) => {
          asked.push(url);
          if (url === '/containers/dripping/json') {
            const drip = setInterval(() => response.write(' '), 100);
            response.on('close', () => clearInterval(drip));
            return;
          }
          const body = bodies[url];
          response.writeHead(body === undefined ? 404 : 200).end(body ?? '{"message":"No such container"}');
        });
        server.listen(socket, resolve);
      }),
  );
  after(() => {
    server.close();
    rmSync(directory, { recursive: true });
  });

  it('tells the first process of a container that runs', async () => {
    assert.equal(await pidOf('web'), 4711);
  });

  it('has no process for a container that does not run', async () => {
    for (const name of ['ended', 'odd', 'cut', 'absent', '../../info']) {
      assert.equal(await pidOf(name), null, name);
    }
    assert.equal(await pidOf(null), null, 'one without a name');
  });

  it('is not asked for a name that docker gives to no container', async () => {
    const before = asked.length;
    for (const name of ['../../info', 'a b', 'a?x=1', '\uD800', '-a', 'a', 'a'.repeat(300)]) {
      assert.equal(await pidOf(name), null, name);
    }
    assert.deepEqual(asked.slice(before), []);
  });

  it('is given a bounded time for its whole answer, however often it sends a byte', {
    timeout: 120_000,
  }, async () => {
    assert.equal(await pidOf('dripping'), null);
    assert.equal(asked.at(-1), '/containers/dripping/json');
  });

  it('is not asked on another machine, and may be gone', async () => {
    assert.equal(await pidOf('web', 'ssh://person@other'), null);
    assert.equal(await pidOf('web', 'unix:///nowhere/docker.sock'), null);
  });
});
