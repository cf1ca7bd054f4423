import type { MemoryTold } from '../../../contracts/sessions.js';
import { memoryLimitText, refusedMemoryText, tooLarge } from '../../present.js';
import { broken, notApplicable, ok, onTheHost, warning } from '../finding.js';
import type { Check, Remedy, Trouble } from '../types.js';

/** Loading failed, or went to the CPU, because the host had no device memory for it. */
export const deviceMemory: Check = {
  id: 'device-memory',
  title: 'the host has enough device memory for this guest',
  looksAt:
    "the host's report on this guest: the last allocation of device memory that it refused, and its limit; and the free memory that the service logged when it loaded a model",
  explains: ['model-on-cpu', 'layers-not-offloaded', 'context-create-failed'],
  examine({ observation, verdict }) {
    const { sessions } = observation.present;
    if (sessions.kind !== 'told') return notApplicable('the host does not report it');
    const { memory } = sessions;
    if (memory === null) return notApplicable('the host is too old to report it');
    const large = tooLarge(observation);
    const { load } = observation.log;
    const short = load !== null && load.outcome !== 'gpu' ? load.short : null;
    if (memory.refused === null && large === null && short === null) return ok();
    const who = memory.refused?.program ?? verdict.unit;
    const trouble: Trouble = {
      cause:
        memory.refused !== null
          ? `The host refused ${who} device memory. The program fails with "out of memory", or continues on the CPU.`
          : large !== null
            ? 'The service has loaded more than the device memory that the host allows this guest, so a part of it is on the CPU.'
            : 'The service counted the free device memory before it loaded its model, and put what did not fit on the CPU. llama.cpp leaves 1 GiB free.',
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
        `load something smaller, or raise memory= in hostd.conf of the host (${where}; see vgpu-hostd.conf(5)); the limit applies to new sessions, so load it again afterwards`,
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
        'load something smaller, or unload models of other guests; this command shows how much each session holds',
        'sudo vgpu-hostd status',
      );
  }
}
