import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { DIRECTORY, type Json, type Loader, makeLoader, type Profile } from './device_profile_loader.js';

describe('the device profiles that are shipped', () => {
  let loader: Loader;
  before(async () => {
    loader = await makeLoader();
  });
  after(() => loader.remove());

  // Published figures of the real devices: SMs, boost and memory clock (MHz), bus (bits), L2 (bytes).
  const published = {
    'h100-80gb': ['NVIDIA H100 80GB HBM3', '9.0', 132, 1980, 2619, 5120, 52428800, '2330'],
    b200: ['NVIDIA B200', '10.0', 148, 1965, 3996, 7680, 132644864, '2901'],
    h200: ['NVIDIA H200', '9.0', 132, 1980, 3201, 6144, 62914560, '2335'],
    'rtx-5090': ['NVIDIA GeForce RTX 5090', '12.0', 170, 2407, 14001, 512, 100663296, '2b85'],
    l40s: ['NVIDIA L40S', '8.9', 142, 2520, 9001, 384, 100663296, '26b9'],
    'rtx-4090': ['NVIDIA GeForce RTX 4090', '8.9', 128, 2520, 10501, 384, 75497472, '2684'],
    'rtx-3090': ['NVIDIA GeForce RTX 3090', '8.6', 82, 1695, 9751, 384, 6291456, '2204'],
    'a100-40gb': ['NVIDIA A100-SXM4-40GB', '8.0', 108, 1410, 1215, 5120, 41943040, '20b0'],
    p40: ['Tesla P40', '6.1', 30, 1531, 3615, 384, 3145728, '1b38'],
    t4: ['Tesla T4', '7.5', 40, 1590, 5001, 256, 4194304, '1eb8'],
  } as const;

  it('shipped are exactly those of this table', async () => {
    const files = (await readdir(DIRECTORY)).filter((name) => name !== 'device.schema.json').sort();
    assert.deepEqual(
      files,
      Object.keys(published)
        .map((name) => `${name}.json`)
        .sort(),
    );
  });

  for (const [name, [model, compute, sms, clock, memoryClock, bus, l2, pci]] of Object.entries(published)) {
    it(`${name} is loaded by name and says what the real device says`, async () => {
      const ended = await runProgram(loader.program, [name, '/nonexistent', DIRECTORY]);
      assert.equal(ended.code, 0, ended.stderr);
      const { cudaVersion, devices } = JSON.parse(ended.stdout) as {
        cudaVersion: number;
        devices: { name: string; compute: string; attributes: Record<string, number> }[];
      };
      assert.equal(cudaVersion, 13000);
      assert.equal(devices.length, 1);
      const [device] = devices;
      assert.equal(device?.name, model);
      assert.equal(device?.compute, compute);
      const at = device?.attributes ?? {};
      assert.deepEqual(
        [at['16'], at['13'], at['36'], at['37'], at['38'], at['18'], at['33']],
        [sms, clock * 1000, memoryClock * 1000, bus, l2, 0, 1],
      );
      assert.equal(`${at['75']}.${at['76']}`, compute);
      assert.equal(((at['139'] ?? 0) >>> 0).toString(16).padStart(8, '0'), `${pci}10de`);
      assert.equal(Object.keys(at).length, 147, 'every attribute of CUDA 13.0 is there');
    });

    it(`${name} satisfies its schema`, async () => {
      const profile: unknown = JSON.parse(await readFile(path.join(DIRECTORY, `${name}.json`), 'utf8'));
      assert.ok(loader.validate(profile), JSON.stringify(loader.validate.errors));
    });
  }

  it('no two shipped devices share a UUID', async () => {
    const uuids = new Set<Json>();
    for (const name of Object.keys(published)) {
      const profile = JSON.parse(await readFile(path.join(DIRECTORY, `${name}.json`), 'utf8')) as Profile;
      for (const device of profile.devices) uuids.add(device['uuid'] ?? null);
    }
    assert.equal(uuids.size, Object.keys(published).length);
  });
});
