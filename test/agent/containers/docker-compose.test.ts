/** Docker's word on a compose file and on what a container prints, from a daemon that is a socket in a temporary directory. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { dockerLogs, unframed, withComposed } from '../../../agent/containers/docker.js';
import type { LoadedUnit } from '../../../agent/contracts/unit.js';
import { unit } from '../install/plan/support.js';

const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-docker-'));
const socket = path.join(directory, 'docker.sock');
const label = 'com.docker.compose.project';

function listed(name: string, project: string, file: string): object {
  const labels = {
    [label]: project,
    [`${label}.config_files`]: file,
    [`${label}.working_dir`]: path.dirname(file),
  };
  return { Id: name, Names: [`/${name}`], Labels: labels };
}

function inspected(pid: number, devices: readonly string[], tty = false): object {
  const requests = devices.length === 0 ? null : [{ Driver: 'cdi', DeviceIDs: devices }];
  return {
    Id: 'i',
    State: { Pid: pid, StartedAt: '2026-11-22T10:00:00.5Z' },
    HostConfig: { DeviceRequests: requests },
    Config: { Tty: tty },
  };
}

/** A frame as docker writes it: 2 is standard error. */
function frame(text: string, stream = 2): Buffer {
  const header = Buffer.from([stream, 0, 0, 0, 0, 0, 0, 0]);
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
}

const bodies: Readonly<Record<string, string | Buffer>> = {
  '/containers/json': JSON.stringify([
    listed('shop-web-1', 'shop', '/srv/shop/compose.yaml'),
    listed('shop-model-1', 'shop', '/srv/shop/compose.yaml'),
    listed('other-1', 'other', '/srv/other/compose.yaml'),
    { Names: 7, Labels: null },
  ]),
  '/containers/shop-web-1/json': JSON.stringify(inspected(11, [])),
  '/containers/shop-model-1/json': JSON.stringify(inspected(12, ['vgpu.org/gpu=all'])),
  '/containers/other-1/json': JSON.stringify(inspected(0, [])),
  '/containers/web/json': JSON.stringify(inspected(13, [])),
  '/containers/tty/json': JSON.stringify(inspected(14, [], true)),
  '/containers/web/logs': Buffer.concat([frame('one\ntw'), frame('o\n', 1)]),
  '/containers/tty/logs': 'plain\n',
};

function running(...words: readonly string[]): LoadedUnit {
  return unit({ execStart: ['/usr/bin/docker', '--host', `unix://${socket}`, ...words] });
}

async function names(one: LoadedUnit): Promise<readonly string[] | undefined> {
  return (await withComposed(one)).composed?.map(({ name }) => name);
}

/** The content of the first log, with its source. */
async function firstLog(one: LoadedUnit): Promise<readonly string[]> {
  const ending = new AbortController();
  const sleep = async (): Promise<void> => ending.abort();
  for await (const { source, bytes } of dockerLogs({ unit: async () => one, sleep }, ending.signal)) {
    const parts: Buffer[] = [];
    for await (const part of bytes) parts.push(part);
    return [source, Buffer.concat(parts).toString()];
  }
  return [];
}

describe("docker's word on compose files and logs", () => {
  let server: Server;
  const asked: string[] = [];
  before(
    () =>
      new Promise<void>((resolve) => {
        server = createServer(({ url = '' }, response) => {
          asked.push(url);
          const body = bodies[url.replace(/\?.*/, '')];
          response.writeHead(body === undefined ? 404 : 200).end(body ?? '{}');
        });
        server.listen(socket, resolve);
      }),
  );
  after(() => {
    server.close();
    rmSync(directory, { recursive: true });
  });

  it('finds the containers by the project, the file or the directory', async () => {
    const both = ['shop-web-1', 'shop-model-1'];
    assert.deepEqual(await names(running('compose', '-p', 'shop', 'up')), both);
    assert.deepEqual(await names(running('compose', '-f', '/srv/shop/compose.yaml', 'up', '-d')), both);
    const inShop = { ...running('compose', '-f', 'compose.yaml', 'up'), workingDirectory: '/srv/shop' };
    assert.deepEqual(await names(inShop), both);
    assert.deepEqual(await names({ ...running('compose', 'up'), workingDirectory: '/srv/shop' }), both);
    assert.deepEqual(await names(running('compose', '--project-directory', '/srv/shop', 'up')), both);
    assert.deepEqual(await names({ ...running('compose', 'up'), workingDirectory: '/srv' }), []);
    assert.deepEqual(await names(running('compose', '-p', 'other', 'up')), [], 'it does not run');
  });

  it('tells their processes and devices', async () => {
    const { composed } = await withComposed(running('compose', '-p', 'shop', 'up'));
    assert.deepEqual(composed, [
      { name: 'shop-web-1', pid: 11, devices: [] },
      { name: 'shop-model-1', pid: 12, devices: ['vgpu.org/gpu=all'] },
    ]);
  });

  it('is asked for no other unit, and may be gone', async () => {
    asked.length = 0;
    const plain = running('run', '--name', 'web', 'image');
    assert.equal(await withComposed(plain), plain);
    assert.deepEqual(asked, []);
    const gone = unit({ execStart: '/usr/bin/docker -H unix:///nowhere/d compose up'.split(' ') });
    assert.equal((await withComposed(gone)).composed, undefined);
  });

  it('passes on the output of a detached container, from its start on', async () => {
    asked.length = 0;
    const web = running('run', '--detach', '--name', 'web', 'image');
    assert.deepEqual(await firstLog(web), ['docker logs web', 'one\ntwo\n']);
    assert.match(asked.at(-1) ?? '', /\?follow=1&stdout=1&stderr=1&since=1795341600\.5$/);
    assert.deepEqual(await firstLog(running('run', '-d', '--name', 'tty', 'image')), [
      'docker logs tty',
      'plain\n',
    ]);
  });

  it('has no output of a container that the unit waits for, nor while the unit starts', async () => {
    assert.deepEqual(await firstLog(running('run', '--name', 'web', 'image')), []);
    const starts = { ...running('run', '-d', '--name', 'web', 'image'), activeState: 'activating' };
    assert.deepEqual(await firstLog(starts), []);
  });

  it('reads frames however they are cut', async () => {
    const whole = Buffer.concat([frame('one\n'), frame(''), frame('two\n')]);
    for (let at = 1; at < whole.length; at += 1) {
      const stream = async function* () {
        yield whole.subarray(0, at);
        yield whole.subarray(at);
      };
      const parts: Buffer[] = [];
      for await (const part of unframed(stream())) parts.push(part);
      assert.equal(Buffer.concat(parts).toString(), 'one\ntwo\n', `cut at ${at}`);
    }
  });
});
