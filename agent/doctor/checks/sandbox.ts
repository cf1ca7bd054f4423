import { blockedTransport } from '../../confirm/sandbox.js';
import { broken, editUnit, notApplicable, ok } from '../finding.js';
import type { Check } from '../types.js';

/** Settings of the unit that keep its processes from the host, or from the shim's files. */
export const sandbox: Check = {
  id: 'sandbox',
  title: "the unit's sandbox lets the shim work",
  looksAt:
    'RestrictAddressFamilies=, SystemCallFilter=, PrivateNetwork=, IPAddressDeny=, PrivateTmp=, ProtectHome=, ' +
    "InaccessiblePaths=, TemporaryFileSystem= and RootDirectory= against the host's address, the store and guest.conf",
  explains: ['transport-blocked-by-sandbox', 'preload-ignored', 'shim-not-loaded'],
  examine(facts) {
    const { machine, observation, plan } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const blocked = blockedTransport(observation.endpoint, unit.sandbox);
    const warned = plan.warnings.filter(({ code }) => code === 'sandbox-blocks-transport');
    const [first] = warned;
    if (blocked === null && first === undefined)
      return ok(`nothing is in the way to ${observation.endpoint}`);
    const setting = blocked === null ? [] : [`${blocked.setting}, and the host is ${observation.endpoint}`];
    return broken({
      cause: `A setting of ${unit.name} shuts its processes in: they cannot reach the host, or not read the shim.`,
      evidence: [...setting, ...warned.map(({ message }) => message)],
      remedy: editUnit(
        facts,
        blocked === null
          ? `under [Service] write ${first?.remedy?.replace(/^.*write /, '') ?? 'what allows it'}`
          : `${blocked.remedy}, under [Service]`,
      ),
    });
  },
};
