/** libvirt's own schema accepts the XML that the documents and the hints show. test/shim/libvirt/libvirt.test.ts runs it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { addMemory } from '../agent/install/plan/vm-memory.js';
import { ROOT } from './shim/cuda/private_programs.js';

const libvirt = join(ROOT, '.cache/roots/libvirt');
const skip: string | false =
  !existsSync(join(libvirt, '.complete')) && 'no schema of libvirt: scripts/fetch-packages libvirt';

/** A machine with the devices, and no more than libvirt asks for. */
function domain(devices: string): string {
  return `<domain type='kvm'><name>vm3</name><memory unit='GiB'>4</memory>
    <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>${devices}</devices></domain>`;
}

function refusal(xml: string): string {
  const ran = spawnSync(
    join(libvirt, 'usr/bin/xmllint'),
    ['--noout', '--relaxng', join(libvirt, 'usr/share/libvirt/schemas/domain.rng'), '-'],
    { input: xml, encoding: 'utf8' },
  );
  return ran.status === 0 ? '' : `${ran.status}: ${ran.stderr}`;
}

const inDocument = [
  ...readFileSync(join(ROOT, 'docs/howto/libvirt.md'), 'utf8').matchAll(/^```xml\n([\s\S]*?)^```/gm),
].map(([, xml = '']) => xml);

describe("the XML for libvirt, by libvirt's schema", { skip }, () => {
  it('is accepted as docs/howto/libvirt.md shows it', () => {
    assert.equal(inDocument.length, 2, 'vsock and shmem');
    for (const xml of inDocument) assert.equal(refusal(domain(xml)), '', xml);
  });

  it('is accepted as the hints of the agent show it', () => {
    const shown = addMemory.flatMap((line) => /<.*>/.exec(line)?.[0].replace(/^<devices>: /, '') ?? []);
    assert.deepEqual(shown.length, 1, addMemory.join('\n'));
    for (const xml of shown) assert.equal(refusal(domain(xml)), '', xml);
  });

  it('is refused with a model or a role that libvirt does not know', () => {
    for (const [right, wrong] of [
      ["role='master'", "role='owner'"],
      ['ivshmem-plain', 'ivshmem-flat'],
      ["model='virtio'", "model='vhost'"],
    ] as const) {
      const xml = inDocument.find((one) => one.includes(right));
      assert.ok(xml !== undefined, right);
      assert.match(refusal(domain(xml.replace(right, wrong))), /fails to validate|Invalid|Relax-NG/i);
    }
  });
});
