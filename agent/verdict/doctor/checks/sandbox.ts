import { isContainer } from '../../../containers/container-unit.js';
import { sandboxObstacles } from '../../../systemd/unit-sandbox.js';
import { broken, editUnit, notApplicable, ok } from '../finding.js';
import type { Check } from '../types.js';

/** Settings of the unit that keep its processes from the host, or from the shim's files. */
export const sandbox: Check = {
  id: 'sandbox',
  title: "the unit's sandbox lets the shim work",
  looksAt:
    'RestrictAddressFamilies=, SystemCallFilter=, PrivateNetwork=, IPAddressDeny=, PrivateTmp=, ProtectHome=, ' +
    "InaccessiblePaths=, TemporaryFileSystem= and RootDirectory= against the host's address, the store and guest.conf",
  explains: ['transport-blocked-by-sandbox', 'preload-ignored', 'shim-not-loaded', 'no-session'],
  examine(facts) {
    const { machine, observation } = facts;
    const { unit } = machine;
    const { endpoint } = observation;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const obstacles = sandboxObstacles(endpoint, unit.sandbox);
    const [first] = obstacles;
    if (first === undefined) return ok(`no setting blocks ${endpoint}`);
    return broken({
      cause: `A setting of ${unit.name} restricts its processes: they cannot reach the host or cannot read the shim.`,
      evidence: obstacles.map(({ setting, keepsFrom }) =>
        keepsFrom === 'host' ? `${setting}, and the host is ${endpoint}` : setting,
      ),
      remedy: editUnit(facts, isContainer(unit) ? first.remedy : `${first.remedy}, under [Service]`),
    });
  },
};
