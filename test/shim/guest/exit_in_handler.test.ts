/** Programs that leave a call by exit() in a signal handler, as llama-server at its second SIGTERM, or by longjmp or pthread_cancel(). */
import { describeCases, describeCasesOverRings, describeCasesOverTransports } from '../case_programs.js';
import { VARIANT } from '../shim_host.js';

/** The sanitizers' own exit handlers wait for locks that an interrupted malloc holds. */
if (VARIANT === 'shim') {
  describeCases('a process that exits in a signal handler, in the middle of a call, ends', {
    exit_in_handler: {
      waits: 'when it waits for a stream',
      copies: 'when it copies',
      allocates: 'when it allocates and frees',
      sends: 'when it sends work and waits for nothing',
      asks: 'when it records an event and asks for it',
    },
  });

  describeCasesOverRings('a thread whose handler leaves a call by longjmp', {
    exit_in_handler: { leaves: 'is refused later calls, and the log says why' },
  });

  describeCasesOverTransports('a thread that is cancelled in the middle of a call', {
    exit_in_handler: { cancelled: 'ends after the call, and other threads go on' },
  });

  describeCasesOverRings('a process that exits in a signal handler, in the middle of a call of NVML,', {
    exit_in_handler: { asks_nvml: 'ends' },
  });
}
