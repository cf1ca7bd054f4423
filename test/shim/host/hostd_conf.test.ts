/** /etc/vgpu/hostd.conf: its grammar, and what the daemon makes of it. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, beforeEach, describe, it, test } from 'node:test';
import { buildProgram, ROOT, runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
  VARIANT,
} from '../shim_host.js';
import { CUDA, hello, WireClient, words } from '../wire/wire_client.js';

const MIB = 1024 * 1024;
const uid = process.getuid?.() ?? -1;
const gid = process.getgid?.() ?? -1;

describe('the grammar of hostd.conf', () => {
  const scratch = scratchDirectory();
  const file = path.join(scratch.path, 'hostd.conf');
  let program = '';
  before(async () => {
    program = await buildProgram({
      name: 'policy_match',
      sources: [
        'test/shim/programs/policy_match.c',
        ...['match', 'policy', 'settings'].map((name) => `shim-src/host/policy/${name}.c`),
      ],
    });
  });
  after(() => scratch.remove());

  const decide = async (text: string | Buffer, ...peer: (string | number)[]): Promise<string> => {
    writeFileSync(file, text);
    const ended = await runProgram(program, [file, ...peer.map(String)]);
    assert.doesNotMatch(ended.stderr, /Sanitizer|runtime error/);
    return ended.code === 0 ? ended.stdout.trim() : ended.stderr.trim().replace(file, 'FILE');
  };

  it('uses the first line that matches, and refuses a peer that no line matches', async () => {
    const text = [
      '# machines',
      'deny vsock cid=7',
      'allow vsock cid=3-9,12 # all others of the rack',
      '',
      '\tallow unix uid=1000,2000-2999 gid=5',
      'deny any',
    ].join('\n');
    assert.equal(await decide(text, 'vsock', 7), 'deny 2');
    for (const cid of [3, 9, 12]) assert.match(await decide(text, 'vsock', cid), /^allow 3 /);
    for (const cid of [2, 10, 13]) assert.equal(await decide(text, 'vsock', cid), 'deny 6');
    assert.match(await decide(text, 'unix', 1000, 5, 1), /^allow 5 /);
    assert.match(await decide(text, 'unix', 2500, 9, 1, 4, 5), /^allow 5 /, 'a supplementary group');
    assert.equal(await decide(text, 'unix', 2500, 9, 1, 4), 'deny 6');
    assert.equal(await decide(text, 'unix', 3000, 5, 1), 'deny 6');
    assert.equal(await decide(text, 'tcp'), 'deny 6');
    assert.equal(await decide('# nobody', 'tcp'), 'none');
    assert.equal(await decide('', 'tcp'), 'FILE: the file is empty; "deny any" denies everybody');
    assert.match(await decide('allow tcp\r\n', 'tcp'), /^allow 1 /);
    assert.equal(await decide('allow tcp', 'unix', 0, 0, 1), 'none');
    assert.match(await decide('allow unix pid=77', 'unix', 5, 5, 77), /^allow 1 /);
    assert.equal(await decide('allow unix pid=77', 'unix', 5, 5, 78), 'none');
    assert.match(await decide('allow unix uid=root gid=root', 'unix', 0, 0, 1), /^allow 1 /);
    assert.match(await decide('allow any', 'vsock', 4294967295), /^allow 1 /);
  });

  it('gives each peer the limits of its line, else those of the limits lines above', async () => {
    const text = [
      'limits sessions=3 memory=8G calls=1000',
      'allow vsock cid=3 memory=512M outstanding=64K',
      'limits connects=7 calls=none',
      'allow vsock cid=4 sessions=none',
      'allow vsock cid=5 memory=1T outstanding=99',
    ].join('\n');
    assert.equal(await decide(text, 'vsock', 3), `allow 2 3 usual ${512 * MIB} 65536 1000`);
    assert.equal(await decide(text, 'vsock', 4), `allow 4 0 7 ${8192 * MIB} 0 0`);
    assert.equal(await decide(text, 'vsock', 5), `allow 5 3 7 ${1024 ** 4} 99 0`);
  });

  for (const [line, complaint] of [
    ['permit unix', '"permit" is not allow, deny, limits or workers'],
    ['allow', '"allow" needs a kind of peer: unix, vsock, tcp or any'],
    ['allow udp', '"udp" is not unix, vsock, tcp or any'],
    ['allow unix uid', '"uid" is not KEY=VALUE'],
    ['allow unix uid=', 'uid="" is neither a number nor a range (3-9)'],
    ['allow unix uid=no-such-user-at-all', 'uid="no-such-user-at-all" is neither a number nor a range'],
    ['allow unix gid=no-such-group', 'gid="no-such-group" is neither a number nor a range'],
    ['allow unix uid=5x', 'uid="5x" is neither a number up to 4294967295 nor a range'],
    ['allow unix uid=4294967296', 'uid="4294967296" is neither a number up to'],
    ['allow unix uid=9-3', 'uid="9-3" is a range whose end comes first'],
    ['allow unix uid=3-', 'uid="3-" is neither'],
    ['allow unix uid=1,,2', 'uid="" is neither'],
    ['allow unix uid=1 uid=2', 'uid= is given twice: separate numbers by commas'],
    [`allow unix uid=${Array.from({ length: 17 }, (_, i) => i).join()}`, 'uid= has more than 16 numbers'],
    ['allow unix pid=init', 'pid="init" is neither a number nor a range (3-9)'],
    ['allow unix cid=3', 'cid= is for vsock peers only'],
    ['allow vsock uid=3', 'uid= is for unix peers only'],
    ['allow any gid=3', 'gid= is for unix peers only'],
    ['allow vsock cid=-1', 'cid="-1" is neither'],
    ['allow vsock port=3', 'unknown setting "port"'],
    ['deny vsock cid=3 memory=1G', 'memory= has no meaning for a peer that is denied'],
    ['allow any share=101', 'share="101" is not a number from 1 to 100, nor none'],
    ['limits', '"limits" needs at least one limit'],
    [
      'limits cid=3',
      'unknown setting "cid": limits are sessions, connects, memory, outstanding, calls, weight',
    ],
    ['workers', '"workers" needs user=NAME or mps=DIRECTORY'],
    ['workers user=a gid=5', '"workers" needs user=NAME or mps=DIRECTORY, not "gid"'],
    ['workers mps=nvidia-mps', 'mps="nvidia-mps" is not an absolute path of less than 160 bytes'],
    ['workers mps=/a mps=/b', '"workers" with mps= is given twice'],
    ['workers user=', 'user="" is not the name of a user, nor a number'],
    ['limits sessions=0', 'sessions="0" is not a number from 1 to 256, nor none'],
    ['limits sessions=257', 'sessions="257" is not a number from 1 to 256'],
    ['limits sessions=1K', 'sessions="1K" is not a number'],
    ['limits reconnect=86401', 'reconnect="86401" is not a number from 0 to 86400, nor none'],
    ['limits reconnect=soon', 'reconnect="soon" is not a number from 0 to 86400'],
    ['deny any reconnect=5', 'reconnect= has no meaning for a peer that is denied'],
    ['limits connects=often', 'connects="often" is not a number from 1 to 1000000'],
    [
      'limits memory=8GB',
      'memory="8GB" is not a number from 1 to 1125899906842624 (K, M, G or T may follow)',
    ],
    ['limits memory=-1', 'memory="-1" is not a number'],
    ['limits memory=1025T', 'memory="1025T" is not a number'],
    ['limits outstanding=', 'outstanding="" is not a number'],
    ['limits calls=1.5', 'calls="1.5" is not a number'],
    ['limits vm-memory=/dev/shm/a', 'vm-memory= belongs to one VM: it is allowed only in an "allow" line'],
    [
      'deny vsock cid=3 vm-memory=/dev/shm/a',
      'vm-memory= belongs to one VM: it is allowed only in an "allow" line',
    ],
    ['allow vsock cid=3 vm-memory=shm/a', 'vm-memory="shm/a" is not an absolute path of less than 160 bytes'],
    ['allow vsock cid=3-4 vm-memory=/dev/shm/a', 'vm-memory= belongs to one VM: add cid=NUMBER'],
    ['allow vsock vm-memory=/dev/shm/a', 'vm-memory= belongs to one VM: add cid=NUMBER'],
    ['allow any vm-memory=/dev/shm/a', 'vm-memory= belongs to one VM: add cid=NUMBER'],
    ['allow unix memory=1G memory=2G', 'memory=2G, but line 3 says memory=1G: remove one of them'],
    ['limits processes=all', 'processes= is allowed only in an "allow unix" line'],
    ['deny unix processes=all', 'processes= is allowed only in an "allow unix" line'],
    ['allow any processes=all', 'processes= is allowed only in an "allow unix" line'],
    ['allow unix processes=own', 'processes="own": only "all" is allowed'],
    ['allow unix devices=0 devices=1', 'devices=1, but line 3 says devices=0: remove one of them'],
    ['limits calls=5 calls=5', 'calls=5, but line 3 says calls=5: remove one of them'],
    [`allow unix${' pid=1'.repeat(40)}`, 'more than 32 words'],
  ] as const) {
    it(`does not take "${line.slice(0, 60)}", and quotes what is wrong`, async () => {
      const told = await decide(`# comment\n\n${line}\nallow any\n`, 'tcp');
      assert.ok(told.startsWith('FILE: line 3: '), told);
      assert.ok(told.includes(complaint), told);
    });
  }

  it('does not take a limit from two limits lines that are for the same lines, and quotes both', async () => {
    const told = await decide(
      'limits memory=4G\nlimits calls=9\ndeny vsock\nlimits memory=8G\nallow any\n',
      'tcp',
    );
    assert.equal(told, 'FILE: line 4: memory=8G, but line 1 says memory=4G: remove one of them');
  });

  it('does not give the memory of one VM to another', async () => {
    const text = 'allow vsock cid=3 vm-memory=/dev/shm/a\nallow vsock cid=4 vm-memory=/dev/shm/b\n';
    assert.match(await decide(text, 'vsock', 4), /^allow 2 /);
    assert.equal(
      await decide(`${text}allow vsock cid=5 vm-memory=/dev/shm/a\n`, 'vsock', 4),
      "FILE: line 3: vm-memory=/dev/shm/a is used in line 1: two VMs would see each other's memory",
    );
  });

  it('does not take zero bytes, a file that is none, or one without end', async () => {
    assert.equal(await decide('allow any\n\0allow any\n', 'tcp'), 'FILE: line 2: a zero byte');
    assert.match(await decide(`${'#'.repeat(70_000)}\n`, 'tcp'), /FILE: longer than 65536 bytes/);
    assert.match(await decide('allow any\n'.repeat(513), 'tcp'), /line 513: more than 512 rules/);
    for (const [other, why] of [
      [scratch.path, /not a file/],
      ['/dev/zero', /not a file/],
      [`${file}.gone`, /No such file/],
    ] as const) {
      const ended = await runProgram(program, [other, 'tcp']);
      assert.equal(ended.code, 2);
      assert.match(ended.stderr, why);
    }
  });
});

test('vgpu-hostd.conf(5) explains every word of the grammar, and mandoc has no complaint', () => {
  const page = path.join(ROOT, 'docs/man/vgpu-hostd.conf.5');
  const text = readFileSync(page, 'utf8');
  const source = readFileSync(path.join(ROOT, 'shim-src/host/policy/settings.c'), 'utf8');
  const keys = [...source.matchAll(/\{"(\w+)", /g)].map(([, key]) => key);
  assert.equal(keys.length, 12);
  for (const key of keys) assert.match(text, new RegExp(`^\\.It (Cm|Li) ${key}=`, 'm'), key);
  for (const word of ['allow', 'deny', 'limits', 'workers', 'unix', 'vsock', 'tcp', 'any'])
    assert.match(text, new RegExp(`^\\.(It|Cm|Li|Op) .*\\b${word}\\b`, 'm'), word);
  // The example is one that the program takes.
  const example = /\.Bd -literal[^\n]*\n([\s\S]*?)\.Ed/.exec(text)?.[1] ?? '';
  const scratch = scratchDirectory();
  writeFileSync(`${scratch.path}/c`, example.replaceAll('\\-', '-').replaceAll('=libvirt-qemu', '=0'));
  const checked = spawnSync(builtFile('vgpu-hostd'), ['--check-config', '--config', `${scratch.path}/c`]);
  scratch.remove();
  assert.equal(checked.status, 0, checked.stderr.toString());
  const lint = spawnSync('mandoc', ['-T', 'lint', page], { encoding: 'utf8' });
  if (lint.error !== undefined) return;
  const complaints = lint.stdout
    .split('\n')
    .filter((line) => line.includes(page) && !/referenced manual not found/.test(line));
  assert.deepEqual(complaints, []);
});

describe('vgpu-hostd --config', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let shells: Shell[] = [];
  let clients: WireClient[] = [];
  const start = async (text: string, args: readonly string[] = []): Promise<Host> => {
    writeFileSync(`${scratch.path}/c`, text);
    const host = await startHost({
      listen: `unix:${scratch.path}/s`,
      args: ['--config', `${scratch.path}/c`, ...args],
    });
    hosts.push(host);
    return host;
  };
  const open = (host: Host): Shell => {
    const shell = startShell({ VGPU_HOST: host.address, VGPU_LOG: 'stderr' });
    shells.push(shell);
    return shell;
  };
  const greeted = async (over?: 'socket' | 'ring'): Promise<WireClient> => {
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, over);
    clients.push(client);
    return client;
  };
  /** The status with which the host answers a greeting. */
  const statusNow = async (): Promise<number | undefined> => {
    const client = await WireClient.open(`${scratch.path}/s`);
    clients.push(client);
    client.send(hello());
    return (await client.receive(20_000))?.status;
  };

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const client of clients) client.close();
    for (const host of hosts) await host.stop();
    [hosts, shells, clients] = [[], [], []];
    scratch.remove();
  });

  it('does not start with a bad file or without the one it was given: status 2', async () => {
    const file = `${scratch.path}/c`;
    writeFileSync(file, 'allow unix\nallow vsock cid=seven\n');
    for (const args of [
      ['--config', file, '--device', 'software'],
      ['--config', file, '--check-config'],
    ]) {
      const ended = await runProgram(builtFile('vgpu-hostd'), args);
      assert.equal(ended.code, 2);
      assert.match(ended.stderr, /line 2: cid="seven" is neither a number nor a range \(3-9\)/);
      assert.match(ended.stderr, /vgpu-hostd\.conf\(5\)/);
    }
    const ended = await runProgram(builtFile('vgpu-hostd'), ['--check-config', '--config', `${file}.gone`]);
    assert.equal(ended.code, 2);
    assert.match(ended.stderr, /c\.gone: No such file/);
  });

  it('--check-config says that a file is good, without a device', async () => {
    const file = `${scratch.path}/c`;
    for (const [text, said] of [
      ['allow any\n', /valid, 1 rule; a peer that no rule allows is refused/],
      ['allow unix\ndeny any\n', /valid, 2 rules;/],
      ['# nobody\n', /valid, but no line allows any peer/],
    ] as const) {
      writeFileSync(file, text);
      const ended = await runProgram(builtFile('vgpu-hostd'), ['--check-config', '--config', file]);
      assert.equal(ended.code, 0);
      assert.match(ended.stdout, said);
    }
  });

  it('runs workers as the user that it names; --user comes first, a change takes a restart', {
    skip:
      uid !== 0
        ? 'only root can choose'
        : VARIANT !== 'shim' && 'workers of a sanitized build are root, to write their reports',
  }, async () => {
    const idOf = (name: string): string =>
      new RegExp(`^${name}:[^:]*:(\\d+):`, 'm').exec(readFileSync('/etc/passwd', 'utf8'))?.[1] ?? 'none';
    for (const [args, name] of [
      [[], 'nobody'],
      [['--user', 'daemon'], 'daemon'],
    ] as const) {
      const host = await start('workers user=nobody\nallow unix\n', args);
      await greeted();
      const [, pid = ''] = await host.logged(/worker (\d+)$/m);
      await host.logged(/libcuda .* begins/);
      assert.match(readFileSync(`/proc/${pid}/status`, 'utf8'), new RegExp(`^Uid:\\s+${idOf(name)}\\s`, 'm'));
      if (name === 'nobody') {
        writeFileSync(`${scratch.path}/c`, 'workers user=daemon\nallow unix\n');
        host.signal('SIGHUP');
        await host.logged(/workers keep their user; the one that hostd.conf names takes effect after/);
      }
      await host.stop();
    }
    await assert.rejects(
      start('workers user=noone\nallow unix\n'),
      /\/c: user="noone": there is no such user/,
    );
  });

  it('serves the user, group and process it allows', async () => {
    const host = await start(`allow unix uid=${uid} gid=${gid}\n`);
    await askAll(open(host), ['use 1']);
    await host.stop();
    const here = await start(`allow unix pid=${process.pid}\n`);
    assert.equal(await statusNow(), 0, 'this process');
    const shell = open(here);
    assert.equal((await shell.ask('init')).result, 100, 'another one');
  });

  it('tells a guest that it is not on the list, and says so in its own log', async () => {
    const host = await start(`deny unix uid=${uid}\nallow any\n`);
    const shell = open(host);
    assert.equal((await shell.ask('init')).result, 100, 'CUDA_ERROR_NO_DEVICE');
    // The answer and the reason come through two pipes: either may be read first.
    await until('the reason', () =>
      /it refused the session: its hostd\.conf does not allow this guest/.test(shell.stderr()),
    );
    assert.equal(await statusNow(), 6);
    await until('the refusals to be logged', () => (host.log().match(/refused unix/g) ?? []).length === 2);
    await host.logged(/refused unix, pid \d+, uid \d+, gid \d+: line 1 of .*\/c denies it/);
    await host.stop();
    const empty = await start('# nobody\n');
    assert.equal(await statusNow(), 6);
    await empty.logged(/no line of .*\/c allows it/);
  });

  it('tells vgpu-probe, too, that the host refuses this guest', async () => {
    const host = await start('allow vsock\n');
    const probe = await runProgram(builtFile('vgpu-probe'), ['--library', builtFile('libcuda.so.1')], {
      env: { VGPU_HOST: host.address, VGPU_LOG: 'stderr' },
    });
    assert.match(probe.stderr, /its hostd\.conf does not allow this guest/);
  });

  it('refuses a flood of guests without filling the log or forgetting the others', async () => {
    const host = await start(`allow unix pid=${process.pid}\n`);
    const address = `${scratch.path}/s`;
    const flood = spawnSync(
      process.execPath,
      [
        '-e',
        `const net = require('net'); let left = 300;
         const one = () => { const s = net.connect(${JSON.stringify(address)}); s.on('error', () => {});
           s.on('data', () => {}); s.on('close', () => { if (--left > 0) one(); else process.exit(0); });
           s.write(Buffer.alloc(100000)); };
         one();`,
      ],
      { timeout: 60_000 },
    );
    assert.equal(flood.status, 0, flood.stderr.toString());
    assert.equal(await statusNow(), 0);
    assert.ok((host.log().match(/refused unix/g) ?? []).length < 300, 'not each');
    assert.equal(host.running(), true);
  });

  it('holds a peer to its number of sessions, and serves it again when one ends', async () => {
    const host = await start('allow unix sessions=2\n');
    const [first] = [await greeted(), await greeted()];
    assert.equal(await statusNow(), 7);
    await host.logged(/it has 2 sessions, the most that line 1 of .* allows/);
    first?.close();
    await until('the session to end', () => sessionsNow(host) === 1);
    assert.equal(await statusNow(), 0);
  });

  it('tells a guest when there are as many sessions as may be', async () => {
    const host = await start('allow unix\n', ['--sessions', '1']);
    await greeted();
    const shell = open(host);
    assert.equal((await shell.ask('init')).result, 100);
    await until('the reason', () =>
      /refused the session: it has reached its limit of sessions/.test(shell.stderr()),
    );
  });

  it('holds a peer to its connections a second', async () => {
    const host = await start('allow unix connects=3\n');
    const told: (number | undefined)[] = [];
    // Faster than three a second even on a slow machine: all are under way at once.
    for (const status of await Promise.all(Array.from({ length: 30 }, statusNow))) told.push(status);
    assert.ok(told.includes(7), told.join());
    assert.ok(told.filter((status) => status === 0).length >= 3, told.join());
    await host.logged(/more than the 3 connections a second that line 1 of .* allows/);
  });

  it("holds all sessions of a peer together to the peer's memory", async () => {
    const host = await start('allow unix memory=64M\n');
    const [first, second] = [open(host), open(host)];
    await askAll(first, ['init', 'ctx 0', `alloc ${60 * MIB}`]);
    await askAll(second, ['init', 'ctx 0']);
    assert.equal((await second.ask(`alloc ${8 * MIB}`)).result, 2);
    await askAll(second, [`alloc ${4 * MIB}`]);
    first.kill();
    await until('the first session to end', () => sessionsNow(host) === 1);
    await askAll(second, [`alloc ${60 * MIB}`]);
  });

  describe('processes that NVML lists', {
    skip: uid !== 0 && 'needs root, for processes of another user',
  }, () => {
    const DEVICE_PROCESSES = 5;
    const ALL = 'allow unix uid=0 processes=all\nallow unix\n';
    /** Of a user without processes=all; also the user that a namespace shows for each one that it does not map. */
    const NOBODY = 65534;
    let holders: ChildProcess[] = [];
    afterEach(() => {
      for (const holder of holders) holder.kill('SIGKILL');
      holders = [];
    });
    /** A process of this user that has memory of the device. */
    const holds = async (user: number): Promise<number | undefined> => {
      const holder = spawn(
        'setpriv',
        ['--reuid', `${user}`, '--clear-groups', builtFile('programs/driver_shell')],
        {
          env: { VGPU_HOST: `unix:${scratch.path}/s`, LD_LIBRARY_PATH: SHIM },
          stdio: ['pipe', 'pipe', 'inherit'],
        },
      );
      holders.push(holder);
      let said = '';
      holder.stdout.on('data', (chunk: Buffer) => {
        said += chunk.toString();
      });
      holder.stdin.write(`init\nctx 0\nalloc ${MIB}\n`);
      await until('its memory', () => /^alloc 0 /m.test(said));
      return holder.pid;
    };
    const asks = async (user: number): Promise<WireClient> => {
      process.seteuid?.(user);
      // Connects before it waits, so with the credentials of this user.
      const greeting = WireClient.greeted(`${scratch.path}/s`, 2, 'socket');
      process.seteuid?.(0);
      const client = await greeting;
      clients.push(client);
      return client;
    };
    const listed = async (client: WireClient): Promise<readonly number[]> => {
      const { body, bulk } = await client.call(DEVICE_PROCESSES, words(0, 0));
      const [count, size] = [body.readUInt32LE(0), body.readUInt32LE(4)];
      return Array.from({ length: count }, (_, at) => bulk.readUInt32LE(at * size));
    };
    beforeEach(() => chmodSync(scratch.path, 0o755));

    it('are those of the user that asks', async () => {
      await start('allow unix\n');
      await holds(NOBODY);
      assert.deepEqual(await listed(await asks(0)), []);
    });

    it('are those of all users with processes=all, and of a user beside that line only its own', async () => {
      const host = await start(ALL);
      const [roots, nobodys] = [await holds(0), await holds(NOBODY)];
      assert.deepEqual((await listed(await asks(0))).toSorted(), [roots, nobodys].toSorted());
      assert.deepEqual(await listed(await asks(NOBODY)), [nobodys]);
      await host.logged(/uid 65534,/);
    });

    it('are the same for an admitted session after a reload', async () => {
      const host = await start('allow unix\n');
      const nobodys = await holds(NOBODY);
      const admitted = await asks(0);
      writeFileSync(`${scratch.path}/c`, ALL);
      host.signal('SIGHUP');
      await host.logged(/hostd\.conf was read again/);
      assert.deepEqual(await listed(admitted), []);
      assert.deepEqual(await listed(await asks(0)), [nobodys]);
    });
  });

  const opcode = (symbol: string): number => {
    const api = readFileSync(path.join(ROOT, 'shim-src/api/cuda.api'), 'utf8');
    return CUDA | Number(new RegExp(`^(\\d{4}) ${symbol} `, 'm').exec(api)?.[1]);
  };

  /** A session with a context, and memory at the address given. */
  const withMemory = async (): Promise<{ readonly client: WireClient; readonly address: bigint }> => {
    const client = await greeted();
    assert.equal((await client.call(opcode('cuCtxCreate_v2'), words(100n, 0, 0))).status, 0);
    const made = await client.call(opcode('cuMemAlloc_v2'), words(100n, BigInt(4 * MIB)));
    return { client, address: made.body.readBigUInt64LE(0) };
  };

  it('limits the waiting bytes of a session: it gets OUT_OF_MEMORY, and other sessions do not', async () => {
    await start('allow unix outstanding=1M\n');
    const [greedy, modest] = [await withMemory(), await withMemory()];
    const half = BigInt(512 * 1024);
    const later = ({ client, address }: typeof greedy, ticket: bigint): void =>
      client.post(opcode('read_later'), words(100n, 0n, address, half, ticket));
    later(greedy, 1n);
    later(greedy, 2n);
    assert.equal((await greedy.client.call(2)).deferred, 0);
    later(greedy, 3n);
    assert.equal((await greedy.client.call(2)).deferred, 2, 'CUDA_ERROR_OUT_OF_MEMORY');
    later(modest, 1n);
    assert.equal((await modest.client.call(2)).deferred, 0);
    // A fetch makes room for later reads.
    assert.equal((await greedy.client.call(opcode('read_fetch'), words(100n), words(1n))).status, 0);
    later(greedy, 4n);
    assert.equal((await greedy.client.call(2)).deferred, 0);
  });

  it('lets only so many bytes of calls wait for their stream', async () => {
    await start('allow unix outstanding=1M\n');
    const { client, address } = await withMemory();
    client.post(opcode('memory_op'), words(100n, 0n, address, 1n, 1, 0)); // waits for a value that never comes
    const before = (await client.call(2)).deferred;
    for (let i = 0; i < 8; i++)
      client.post(opcode('cuMemcpyHtoD_v2'), words(100n, address), Buffer.alloc(256 * 1024));
    assert.deepEqual([before, (await client.call(2)).deferred], [0, 2]);
  });

  for (const [over, how, text, args] of [
    ['socket', 'hostd.conf', 'allow unix calls=200\n', []],
    ['ring', 'hostd.conf', 'allow unix calls=200\n', []],
    ['ring', '--session-calls', 'allow unix\n', ['--session-calls', '200']],
  ] as const) {
    it(`slows down a session that calls too often, and nobody else: ${how}, over a ${over}`, async () => {
      const host = await start(text, args);
      const [busy, calm] = [await greeted(over), await greeted(over)];
      const began = performance.now();
      for (let i = 0; i < 500; i++) assert.equal((await busy.call(2)).status, 0);
      // 200 at once and 200 a second from then on: never faster, however slow the machine.
      assert.ok(performance.now() - began > 1400, `${performance.now() - began} ms`);
      await host.logged(/session 1: slowed down: more than its 200 calls a second/);
      assert.equal((await calm.call(2)).status, 0);
      assert.doesNotMatch(host.log(), /session 2: slowed/);
    });
  }

  it('slows down a guest whose calls go through shared memory, and it gets its answers all the same', async () => {
    const host = await start('allow unix calls=100\n');
    const shell = open(host);
    const began = performance.now();
    await askAll(shell, ['init', 'ctx 0']);
    assert.match(readFileSync(`/proc/${shell.pid}/maps`, 'utf8'), /memfd:vgpu/, 'the rings');
    // Each asks the host.
    for (let i = 0; i < 250; i++) assert.equal((await shell.ask('alloc 4096')).result, 0);
    assert.ok(performance.now() - began > 1400, `${performance.now() - began} ms`);
    await host.logged(/session 1: slowed down: more than its 100 calls a second/);
  });
});
