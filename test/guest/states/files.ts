// States in which a public link is replaced by something that is no link.

import { localLib, multiarch, type StartingState, whyNoProgram } from './state.js';

/** A library that a user built, with its own name, mode, owner and time. */
export const foreignFiles: StartingState = {
  name: 'foreign libraries in place',
  design: 1,
  skip: whyNoProgram('gcc', 'builds the foreign library'),
  prepare: async (guest) => {
    await guest.must(
      'bash',
      '-ec',
      `gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -x c - -o ${multiarch}/libcuda.so.1 <<<'int cuInit(unsigned f) { (void)f; return 100; }'
       cp ${multiarch}/libcuda.so.1 ${localLib}/libcuda.so.1
       chmod 0640 ${localLib}/libcuda.so.1
       chown ollama:ollama ${localLib}/libcuda.so.1
       touch -d '2019-03-04 05:06:07.891234567' ${localLib}/libcuda.so.1 ${multiarch}/libcuda.so.1
       echo 'no library at all' >${multiarch}/libnvidia-ml.so.1`,
    );
  },
};

/** The file of a 32-bit game runtime in a directory that is not for it. */
export const narrowFile: StartingState = {
  name: 'a 32-bit library in place',
  design: 1,
  skip: whyNoProgram('gcc', 'builds the 32-bit library'),
  prepare: async (guest) => {
    await guest.must(
      'bash',
      '-ec',
      `gcc -m32 -shared -nostdlib -Wl,-soname,libcuda.so.1 -x c /dev/null -o ${multiarch}/libcuda.so.1
       gcc -m32 -shared -nostdlib -Wl,-soname,libcuda.so.1 -x c /dev/null -o ${localLib}/libcuda.so.1
       # ELFCLASS32: the fifth byte
       [ "$(od -An -tu1 -j4 -N1 ${multiarch}/libcuda.so.1)" -eq 1 ]`,
    );
  },
};

/** A container run with a bind mount of a library that was not there makes these. */
export const emptyDirectory: StartingState = {
  name: 'an empty directory in the way',
  design: 3,
  skip: false,
  prepare: async (guest) => {
    await guest.must(
      'bash',
      '-ec',
      `mkdir -m 0750 ${multiarch}/libcuda.so.1
       chown ollama: ${multiarch}/libcuda.so.1`,
    );
  },
};

export const fullDirectory: StartingState = {
  name: 'a directory in the way that holds something',
  design: 3,
  skip: false,
  expect: { refused: /libcuda\.so\.1 is a directory that is not empty/ },
  prepare: async (guest) => {
    await guest.must(
      'bash',
      '-ec',
      `mkdir ${multiarch}/libcuda.so.1; echo mine >${multiarch}/libcuda.so.1/notes`,
    );
  },
};
