import { storeCurrent } from '../../paths.js';
import { choiceOf } from '../../profile/instance.js';
import { broken, byHand, notApplicable, ok, onTheHost } from '../finding.js';
import type { Check } from '../types.js';

/** Shim and host of one protocol. */
export const versions: Check = {
  id: 'versions',
  title: 'shim and host speak one protocol version',
  looksAt: 'the note in the installed shim, and what the host greets with',
  explains: ['host-refused', 'host-unreachable'],
  examine({ machine, observation, look, profile }) {
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const inUnit = observation.probe?.kind === 'answered' ? observation.probe.noHost : null;
    const said = [look.host.noHost, inUnit].find((one) => one !== null && mismatch.test(one)) ?? null;
    const installed = machine.candidates.find(
      ({ path, vendor }) => path === `${storeCurrent}/libcuda.so.1` && vendor === 'vgpu',
    )?.elf?.provenance;
    const shim =
      installed === null || installed === undefined
        ? []
        : [`the shim is ${installed.version}, wire version ${installed.wire}`];
    if (said === null) {
      return machine.host.answer.kind === 'unreachable'
        ? notApplicable('the host does not answer')
        : ok(...shim);
    }
    const [, theirs, ours] = /wire version (\d+), we speak (\d+)/.exec(said) ?? [];
    const evidence = [`no host: ${said}`, ...shim];
    const install = `sudo vgpu-agent install ${choiceOf(profile)}`;
    if (theirs === undefined) {
      return broken({
        cause: 'The shim of this guest and the host are of releases that do not understand each other.',
        evidence,
        remedy: byHand('bring both to one release; here, after an update of vgpu-agent', install),
      });
    }
    return Number(theirs) < Number(ours)
      ? broken({
          cause: 'The host is older than the shim of this guest, and they do not understand each other.',
          evidence,
          remedy: onTheHost(
            'update vgpu-hostd on the host, then restart it there',
            'systemctl restart vgpu-hostd',
          ),
        })
      : broken({
          cause: 'The shim of this guest is older than the host, and they do not understand each other.',
          evidence,
          remedy: byHand('update vgpu-agent here, then', install),
        });
  },
};

const mismatch = /wire version|another version of the protocol/;
