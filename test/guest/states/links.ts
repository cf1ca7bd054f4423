// States in which public links are wrong.

import { link, localLib, multiarch, type StartingState } from './state.js';

export const bare: StartingState = {
  name: 'a bare guest',
  design: 3,
  skip: false,
  prepare: async () => undefined,
};

/** The links after a driver was removed by hand. ldconfig would remove such links, so it has not run since. */
export const danglingLinks: StartingState = {
  name: 'links that dangle',
  design: 1,
  skip: false,
  prepare: (guest) =>
    link(
      guest,
      [`${multiarch}/libcuda.so`, 'libcuda.so.1'],
      [`${multiarch}/libcuda.so.1`, '/opt/removed/libcuda.so.1'],
      [`${multiarch}/libnvidia-ml.so.1`, '../gone/libnvidia-ml.so.1'],
      [`${localLib}/libcuda.so.1`, '/usr/lib/wsl/lib/libcuda.so.1'],
      ['/usr/lib64/libcuda.so.1', '/usr/lib64/nvidia/libcuda.so.1'],
    ),
};

/** The versioned library beside it is gone: in this layout ldconfig sets the link. */
export const danglingVersionedLinks: StartingState = {
  name: 'links that dangle to a version beside them',
  design: 1,
  skip: false,
  prepare: (guest) =>
    link(
      guest,
      [`${multiarch}/libcuda.so`, 'libcuda.so.1'],
      [`${multiarch}/libcuda.so.1`, 'libcuda.so.470.57.02'],
      [`${multiarch}/libnvidia-ml.so.1`, 'libnvidia-ml.so.470.57.02'],
    ),
};

export const loopingLinks: StartingState = {
  name: 'links that go round in a circle',
  design: 1,
  skip: false,
  prepare: (guest) =>
    link(
      guest,
      [`${multiarch}/libcuda.so`, 'libcuda.so.1'],
      [`${multiarch}/libcuda.so.1`, 'libcuda.so'],
      [`${multiarch}/libnvidia-ml.so.1`, 'libnvidia-ml.so.1'],
    ),
};

/** A link that once led to a driver and now leads to something else. libm has no cuInit. */
export const wrongLibrary: StartingState = {
  name: 'links to a wrong library',
  design: 1,
  skip: false,
  prepare: (guest) =>
    link(
      guest,
      [`${multiarch}/libcuda.so.1`, `${multiarch}/libm.so.6`],
      [`${multiarch}/libnvidia-ml.so.1`, 'libm.so.6'],
      [`${localLib}/libcuda.so`, `${multiarch}/libm.so.6`],
    ),
};
