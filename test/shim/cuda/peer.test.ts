/** Two devices of one host: access of one to the memory of the other, copies, and several processes. */
import { describeCasesOnTwoDevices } from '../case_programs.js';

describeCasesOnTwoDevices('peer access', {
  peer_calls: {
    attributes: 'is possible between two devices, and multicast is not',
    enables: 'lets kernels of one context use the memory of another, with the documented errors',
    forbids: 'is an illegal address without it',
    ends: 'ends with the context that it was given to',
    copies: 'is not needed for copies',
    copies_in_order: 'a copy without a stream comes after the work of the other context',
    copies_mapped: 'is not needed for copies of mapped memory',
    maps: 'is given to mapped memory by device',
    pools: 'is given to the memory of a pool by device',
    graphs: 'holds for nodes of graphs, and for their memory',
    second_alone: 'is not needed for a context on the second device alone',
  },
});

/** With 'a driver that maps' each process has devices of its own. */
describeCasesOnTwoDevices(
  'memory of the second device',
  {
    peer_calls: { processes: 'is opened by processes that use that device, the first one, or see no other' },
  },
  ['unix', 'unix without a ring', 'chain', 'a driver for several processes'],
);
