// A machine with a history: several of the other states at once.

import { foreignFiles } from './files.js';
import { lateDropIn } from './settings.js';
import { link, multiarch, type StartingState } from './state.js';

export const mixed: StartingState = {
  name: 'foreign libraries, a loop, dangling links and a drop-in of the user at once',
  design: 3,
  skip: foreignFiles.skip,
  prepare: async (guest) => {
    await foreignFiles.prepare(guest);
    await link(
      guest,
      [`${multiarch}/libcuda.so`, 'libcuda.so'],
      ['/usr/lib64/libcuda.so.1', '/usr/lib64/nvidia/libcuda.so.1'],
    );
    await lateDropIn.prepare(guest);
  },
};
