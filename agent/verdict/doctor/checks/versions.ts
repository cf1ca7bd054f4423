import { olderSide, troubleOf } from '../../../contracts/host-word.js';
import { storeCurrent } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import { broken, byHand, notApplicable, ok, onTheHost } from '../finding.js';
import type { Check } from '../types.js';
import { wordInUnit } from './host.js';

/** Shim and host of one protocol. */
export const versions: Check = {
  id: 'versions',
  title: 'shim and host speak one protocol version',
  looksAt: "the note in the installed shim, and the version in the host's greeting",
  explains: ['host-version'],
  examine(facts) {
    const { machine, profile } = facts;
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { answer } = machine.host;
    const outside = answer.kind === 'unreachable' ? troubleOf(answer.word) : null;
    const word = [outside, wordInUnit(facts)].find((one) => one?.code === 'version') ?? null;
    const installed =
      machine.candidates.find(
        ({ path, vendor }) => path === `${storeCurrent}/libcuda.so.1` && vendor === 'vgpu',
      )?.elf?.provenance ?? null;
    const shim =
      installed === null ? [] : [`the shim is ${installed.version}, wire version ${installed.wire}`];
    if (word === null) {
      return answer.kind === 'unreachable' ? notApplicable('the host does not answer') : ok(...shim);
    }
    const host = word.host === null ? [] : [`the host is ${word.host}, wire version ${word.hostWire}`];
    const evidence = [`no host: ${word.message}`, ...host, ...shim];
    const install = `sudo vgpu-agent install ${choiceOf(profile)}`;
    switch (olderSide(word)) {
      case 'host':
        return broken({
          cause: 'The host is older than the shim of this guest, and their protocol versions differ.',
          evidence,
          remedy: onTheHost(
            'upgrade vgpu-hostd on the host to the release of this guest, then restart it there',
            'systemctl restart vgpu-hostd',
          ),
        });
      case 'guest':
        return broken({
          cause: 'The shim of this guest is older than the host, and their protocol versions differ.',
          evidence,
          remedy: byHand('upgrade vgpu-agent here to the release of the host, then', install),
        });
      case null:
        return broken({
          cause: 'The shim of this guest and the host have different protocol versions.',
          evidence,
          remedy: byHand('install the same release on both; here, after an upgrade of vgpu-agent', install),
        });
    }
  },
};
