/** The state of the host: one for the whole guest and all its consumers. */
import type { Board, Record } from './board.js';
import type { HostEvent } from './helper.js';
import { steadyNow } from './pacer.js';

interface HostWatch {
  /** Another address is watched from now on, or none (empty). */
  moved(endpoint: string): void;
  host(event: HostEvent): void;
}

/** Keeps the board's host, and tells in the journal when it goes and comes. `now`: milliseconds. */
export function hostWatch(board: Board, record: Record, now: () => number = steadyNow): HostWatch {
  let lostAt: number | null = null;
  return {
    moved(endpoint) {
      lostAt = null;
      board.update({ host: { endpoint, answers: null, simulated: false, detail: 'not asked yet' } });
    },
    host(event) {
      const { host } = board.now;
      const said = { profile: null, unit: null } as const;
      if (event.kind === 'down') {
        lostAt = now();
        board.hostLost();
        board.update({ host: { ...host, answers: false, detail: event.reason } });
        record.write({
          kind: 'hostLost',
          ...said,
          text: `the host at ${host.endpoint} does not answer: ${event.reason}`,
          fields: { ENDPOINT: host.endpoint },
        });
        return;
      }
      board.update({ host: { ...host, answers: true, simulated: event.simulated, detail: event.device } });
      if (lostAt === null) return;
      const seconds = ((now() - lostAt) / 1000).toFixed(1);
      lostAt = null;
      record.write({
        kind: 'hostBack',
        ...said,
        text: `the host at ${host.endpoint} answers again after ${seconds} s: ${event.device}`,
        fields: { ENDPOINT: host.endpoint, SECONDS: seconds },
      });
    },
  };
}
