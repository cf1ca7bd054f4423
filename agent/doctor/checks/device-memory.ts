import { memoryLimitText, refusedMemoryText, tooLarge } from '../../confirm/present.js';
import type { MemoryTold } from '../../contracts/sessions.js';
import { broken, notApplicable, ok, onTheHost, warning } from '../finding.js';
import type { Check, Remedy, Trouble } from '../types.js';

/** Loading failed, or went to the CPU, because the host had no device memory for it. */
export const deviceMemory: Check = {
  id: 'device-memory',
  title: 'the host has the memory that this guest asks for',
  looksAt:
    "the host's word on this guest: the last allocation of device memory that it refused, and the limit that it keeps; and what the service said of free memory when it loaded",
  explains: ['model-on-cpu', 'layers-not-offloaded', 'context-create-failed'],
  examine({ observation, verdict }) {
    const { sessions } = observation.present;
    if (sessions.kind !== 'told') return notApplicable('the host does not tell');
    const { memory } = sessions;
    if (memory === null) return notApplicable('the host is too old to tell');
    const large = tooLarge(observation);
    const { load } = observation.log;
    const short = load !== null && load.outcome !== 'gpu' ? load.short : null;
    if (memory.refused === null && large === null && short === null) return ok();
    const who = memory.refused?.program ?? verdict.unit;
    const trouble: Trouble = {
      cause:
        memory.refused !== null
          ? `The host refused ${who} device memory. A program that cannot do without it fails with "out of memory", or goes on on the CPU.`
          : large !== null
            ? 'What the service has loaded is larger than the device memory that the host lets this guest have, so a part of it is on the CPU.'
            : 'The service counted the free device memory before it loaded its model, and put on the CPU what did not fit. llama.cpp leaves 1 GiB free.',
      evidence: [
        ...(memory.refused === null ? [] : [refusedMemoryText(memory.refused, memory.line)]),
        ...(large === null ? [] : [large]),
        ...(short === null ? [] : [short.text]),
        ...(short === null || large !== null || memory.limit === 0 ? [] : [memoryLimitText(memory)]),
      ],
      remedy: remedyOf(memory),
    };
    return this.explains.some((reason) => reason === verdict.reason) ? broken(trouble) : warning(trouble);
  },
};

function remedyOf({ refused, by, line }: MemoryTold): Remedy {
  switch (refused?.by ?? by) {
    case 'guest': {
      const where =
        line === 0 ? 'its line for this guest' : `line ${line}, or in the "limits" line that it follows`;
      return onTheHost(
        `load something smaller, or raise memory= in hostd.conf of the host (${where}; see vgpu-hostd.conf(5)); new sessions have the new limit, so load it again then`,
        'sudoedit /etc/vgpu/hostd.conf && sudo systemctl reload vgpu-hostd',
      );
    }
    case 'session':
      return onTheHost(
        'load something smaller, or raise --session-memory of vgpu-hostd; the restart ends the sessions of all guests',
        'sudoedit /etc/default/vgpu-hostd && sudo systemctl restart vgpu-hostd',
      );
    case 'device':
    case 'none':
      return onTheHost(
        'load something smaller, or unload what others hold; this shows who holds how much of the device',
        'sudo vgpu-hostd status',
      );
  }
}
