import { parseEndpoint, parseGuestConf } from '../../../guest/vgpu-host/endpoint.js';
import { guestConf as file } from '../../../lib/paths.js';
import { effectiveEnvironment, hostOfUnit } from '../../../systemd/unit-environment.js';
import { broken, changeEvidence, fixes, notApplicable, ok, plannedChanges, takeOut } from '../finding.js';
import type { Check } from '../types.js';

/** The file and variable that give the shim the host's address. */
export const guestConf: Check = {
  id: 'guest-conf',
  title: 'the shim knows the address of the host',
  looksAt: `host= in ${file}, whether every user may read it, and VGPU_HOST in the unit`,
  explains: ['host-unreachable', 'no-device'],
  examine(facts) {
    const { machine, profile } = facts;
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { unit } = machine;
    const set = unit.kind === 'loaded' ? effectiveEnvironment(unit).get('VGPU_HOST') : undefined;
    const host = parseGuestConf(machine.guestConf.content ?? '');
    const own = unit.kind === 'loaded' ? hostOfUnit(unit, host ?? '') : (host ?? '');
    if (set !== undefined && own !== (host ?? '')) {
      const bad = parseEndpoint(own);
      const isBad = bad.kind === 'bad' ? `${JSON.stringify(own)} is not an address: ${bad.reason}` : null;
      return broken({
        cause: `${profile.unit} sets its own address of the host, which overrides ${file}.`,
        evidence: [
          `VGPU_HOST=${own} [${set.file ?? 'Environment='}]`,
          `host=${host ?? ''} [${file}]`,
          ...(isBad === null ? [] : [isBad]),
        ],
        remedy: takeOut(machine.unit, [{ variable: 'VGPU_HOST', file: set.file }]),
      });
    }
    const planned = plannedChanges(facts).filter((change) => 'path' in change && change.path === file);
    if (planned.length === 0) return ok(`host=${host ?? ''}`);
    const what =
      machine.guestConf.state.kind === 'absent'
        ? 'is missing'
        : host === machine.manifest.endpoint
          ? 'cannot be read by every user'
          : 'names no host, or another one than was installed';
    return broken({
      cause: `${file} ${what}: programs do not find the host.`,
      evidence: planned.map(changeEvidence),
      remedy: fixes(facts, 'write it again, as it was installed'),
    });
  },
};
