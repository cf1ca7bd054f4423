import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import {
  changed,
  type Device,
  DIRECTORY,
  type Loader,
  makeLoader,
  type Profile,
} from './device_profile_loader.js';

describe('a device profile that is wrong', () => {
  let loader: Loader;
  before(async () => {
    loader = await makeLoader();
  });
  after(() => loader.remove());

  it('the error for an unknown name lists the directories that were searched', async () => {
    const ended = await runProgram(loader.program, ['h900', '/nonexistent', DIRECTORY]);
    assert.equal(ended.code, 1);
    assert.match(ended.stderr, /no device profile named "h900" in \/nonexistent, .*profiles\/devices/);
  });

  it('a missing file, a directory and a pipe are each reported as what they are', async () => {
    assert.match((await runProgram(loader.program, ['/nonexistent/x.json'])).stderr, /x\.json: No such file/);
    await mkdir(path.join(loader.scratch, 'dir.json'));
    assert.match(
      (await runProgram(loader.program, [path.join(loader.scratch, 'dir.json')])).stderr,
      /Is a directory/,
    );
    const ended = await runProgram(loader.program, ['/dev/zero'], { limit: 5000 });
    assert.equal(ended.code, 1);
  });

  it('text that is not JSON is reported with line and column', async () => {
    const ended = await loader.load('{"schema": 1,\n "devices": [}');
    assert.match(ended.stderr, /profile\.json:2:\d+: not JSON/);
  });

  // Each entry: a mistake, and the text that the message must contain. The schema must refuse the same.
  const wrong: readonly (readonly [string, (profile: Profile, device: Device) => void, RegExp])[] = [
    [
      'a misspelt field',
      (p) => {
        p['device'] = [];
      },
      /: device: unknown field; allowed: .*devices/,
    ],
    [
      'a missing list',
      (p) => {
        Reflect.deleteProperty(p, 'devices');
      },
      /: devices: missing/,
    ],
    [
      'no devices',
      (p) => {
        p.devices = [];
      },
      /: devices: must be a list of 1 to 32/,
    ],
    [
      'another schema',
      (p) => {
        p['schema'] = 2;
      },
      /: schema: 2 is not allowed; must be from 1 to 1/,
    ],
    [
      'a version without a dot',
      (p) => {
        p['cudaVersion'] = '13';
      },
      /: cudaVersion: "13" is not allowed/,
    ],
    [
      'a driver of words',
      (p) => {
        p['driverVersion'] = 'new';
      },
      /: driverVersion: "new" is not/,
    ],
    [
      'a device that is a list',
      (p) => {
        p.devices = [[] as unknown as Device];
      },
      /devices\[0\]: must be/,
    ],
    [
      'an unknown device field',
      (_, d) => {
        d['sms'] = 1;
      },
      /devices\[0\]\.sms: unknown field; allowed/,
    ],
    [
      'no name',
      (_, d) => {
        Reflect.deleteProperty(d, 'name');
      },
      /devices\[0\]\.name: missing/,
    ],
    [
      'an empty name',
      (_, d) => {
        d['name'] = '';
      },
      /devices\[0\]\.name: must have 1 to 99/,
    ],
    [
      'a long name',
      (_, d) => {
        d['name'] = 'x'.repeat(100);
      },
      /devices\[0\]\.name: must have 1 to 99/,
    ],
    [
      'a name with a newline',
      (_, d) => {
        d['name'] = 'a\nb';
      },
      /devices\[0\]\.name: must be printable/,
    ],
    [
      'a name that is a number',
      (_, d) => {
        d['name'] = 7;
      },
      /devices\[0\]\.name: must be a string/,
    ],
    [
      'a name that says simulated',
      (_, d) => {
        d['name'] = 'X (simulated)';
      },
      /devices\[0\]\.name: must not say \(simulated\)/,
    ],
    [
      'a UUID without GPU-',
      (_, d) => {
        d['uuid'] = '5a0d1c6e';
      },
      /devices\[0\]\.uuid: "5a0d1c6e" is not/,
    ],
    [
      'memory as text',
      (_, d) => {
        d['memory'] = '80G';
      },
      /devices\[0\]\.memory: must be a whole number/,
    ],
    [
      'negative memory',
      (_, d) => {
        d['memory'] = -1;
      },
      /devices\[0\]\.memory: -1 is not allowed/,
    ],
    [
      'huge memory',
      (_, d) => {
        d['memory'] = 2 ** 50;
      },
      /devices\[0\]\.memory: 1125899906842624 is not/,
    ],
    [
      'memory with a fraction',
      (_, d) => {
        d['memory'] = 2 ** 30 + 0.5;
      },
      /must be a whole number/,
    ],
    [
      'a bare capability',
      (_, d) => {
        d['compute'] = '9';
      },
      /devices\[0\]\.compute: "9" is not allowed/,
    ],
    [
      'an odd PCI address',
      (_, d) => {
        d.pci['address'] = '1:0';
      },
      /devices\[0\]\.pci\.address: "1:0" is/,
    ],
    [
      'an odd PCI device',
      (_, d) => {
        d.pci['device'] = '0x2330';
      },
      /devices\[0\]\.pci\.device: "0x2330"/,
    ],
    [
      'an unknown PCI field',
      (_, d) => {
        d.pci['slot'] = 1;
      },
      /devices\[0\]\.pci\.slot: unknown field/,
    ],
    [
      'an unknown attribute',
      (_, d) => {
        d.attributes['MULTIPROCESSORS'] = 1;
      },
      /devices\[0\]\.attributes\.MULTIPROCESSORS: unknown attribute; allowed: .*CU_DEVICE_ATTRIBUTE_/,
    ],
    [
      'an attribute that follows from another field',
      (_, d) => {
        d.attributes['PCI_BUS_ID'] = 1;
      },
      /attributes\.PCI_BUS_ID: not allowed here: it follows/,
    ],
    [
      'an attribute out of range',
      (_, d) => {
        d.attributes['CLOCK_RATE'] = 2 ** 31;
      },
      /attributes\.CLOCK_RATE: 2147483648 is not allowed; must be from -2147483648 to 2147483647/,
    ],
    [
      'a missing necessary attribute',
      (_, d) => {
        Reflect.deleteProperty(d.attributes, 'WARP_SIZE');
      },
      /attributes\.WARP_SIZE: missing/,
    ],
    [
      'an assumption about nothing',
      (_, d) => {
        d['assumed'] = ['X'];
      },
      /devices\[0\]\.X: unknown attr/,
    ],
    [
      'a fever',
      (_, d) => {
        d['temperature'] = 999;
      },
      /devices\[0\]\.temperature: 999 is not allowed/,
    ],
  ];
  for (const [what, change, message] of wrong) {
    it(`refuses ${what}, by loader and by schema`, async () => {
      const text = changed(loader.good, change);
      const ended = await loader.load(text);
      assert.equal(ended.code, 1, ended.stdout);
      assert.ok(ended.stderr.startsWith(`${ended.file}: `), ended.stderr);
      assert.match(ended.stderr, message);
      assert.equal(loader.validate(JSON.parse(text)), false, 'the schema takes what the loader refuses');
    });
  }

  it('refuses a field that is given twice, which JSON.parse would hide', async () => {
    const ended = await loader.load(loader.good.replace('"schema": 1', '"schema": 1, "schema": 1'));
    assert.equal(ended.code, 1);
    assert.match(ended.stderr, /duplicate/);
  });

  it('refuses two devices with one UUID or one PCI address', async () => {
    const twice = (change: (second: Device) => void): string =>
      changed(loader.good, (profile, device) => {
        const second = structuredClone(device);
        change(second);
        profile.devices = [device, second];
      });
    const uuid = 'GPU-00000000-0000-0000-0000-000000000001';
    assert.match((await loader.load(twice(() => {}))).stderr, /devices: 0 and 1 have the same uuid/);
    const samePci = await loader.load(
      twice((second) => {
        second['uuid'] = uuid;
      }),
    );
    assert.match(samePci.stderr, /devices: 0 and 1 have the same pci\.address/);
    const both = await loader.load(
      twice((second) => {
        second['uuid'] = uuid;
        second.pci['address'] = '0001:ff:1f.0';
      }),
    );
    assert.equal(both.code, 0, both.stderr);
    assert.match(both.stdout, /"pci": "0001:ff:1f\.0"/);
  });

  it('takes every value at the edge of what the schema allows', async () => {
    const text = changed(loader.good, (profile, device) => {
      profile['cudaVersion'] = '12.4';
      profile['driverVersion'] = '1234.1';
      device['name'] = 'x'.repeat(99);
      device['memory'] = 2 ** 40;
      device['compute'] = '12.1';
      device['temperature'] = 200;
      Reflect.deleteProperty(device, 'assumed');
      device.attributes['NUMA_ID'] = -(2 ** 31);
    });
    assert.ok(loader.validate(JSON.parse(text)), JSON.stringify(loader.validate.errors));
    const ended = await loader.load(text);
    assert.equal(ended.code, 0, ended.stderr);
    assert.match(ended.stdout, /^\{"cudaVersion": 12040, "driverVersion": "1234\.1"/);
    assert.match(ended.stdout, /"131": -2147483648/);
  });

  it('survives a file cut off at any byte', async () => {
    for (let length = 0; length < loader.good.length; length += 97) {
      const ended = await loader.load(loader.good.slice(0, length));
      assert.equal(ended.code, 1, `cut at ${length}`);
      assert.doesNotMatch(ended.stderr, /Sanitizer|runtime error/);
    }
  });

  it('refuses a file larger than any profile could be', async () => {
    const ended = await loader.load(' '.repeat(2 * 1024 * 1024));
    assert.match(ended.stderr, /File too large/);
  });
});
