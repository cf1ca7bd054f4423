// The cost of kernels on the simulated GPU: one core of it beside the same sums as loops of C.

import { MADS_IN_LOOP, ROUNDS, SIDE, STARTS, THREADS, withKernels } from '../kernels.js';
import { type Compile, compiles } from '../launched.js';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { computeBench } from '../paths.js';
import { runTimed } from '../run-timed.js';

export const compute: Entry = {
  name: 'compute',
  what: "the simulated GPU's arithmetic on one core, without the shim",
  runs: 9,
  measure,
};

function counted(...args: readonly string[]): number {
  return Number(runTimed(computeBench, args).stdout);
}

function measure(runs: number): Promise<readonly Comparison[]> {
  const mads = ROUNDS * THREADS * MADS_IN_LOOP;
  const product = `a product of two f32 matrices of ${SIDE} by tiles of 16`;
  const parting = `lanes that part at each step: collatz from 1 to ${STARTS}`;
  return withKernels(async (kernels) => {
    const matmul = (name: string, compile: Compile): Promise<Comparison> =>
      inTurn(name, runs, [
        { name: 'the kernel, one core', unit: 'ms', once: () => kernels.matmul(compile) / 1e6 },
        { name: 'the same loops in C, -O3', unit: 'ms', once: () => counted('matmul', `${SIDE}`) / 1e6 },
      ]);
    const collatz = (name: string, compile: Compile): Promise<Comparison> =>
      inTurn(name, runs, [
        { name: 'the kernel, one core', unit: 'ms', once: () => kernels.collatz(compile) / 1e6 },
        { name: 'the same loop in C, -O3', unit: 'ms', once: () => counted('collatz', `${STARTS}`) / 1e6 },
      ]);
    return [
      await matmul(product, 'never'),
      ...(compiles() ? [await matmul(`${product}, compiled`, 'always')] : []),
      await inTurn('instructions of threads, millions a second', runs, [
        { name: 'the kernel, one core', unit: 'M/s', once: () => kernels.rate(kernels.mads()) },
        {
          name: 'one such chain in C, -O3',
          unit: 'M/s',
          once: () => (mads * 1e3) / counted('mads', `${mads}`),
        },
      ]),
      await collatz(parting, 'never'),
      ...(compiles() ? [await collatz(`${parting}, compiled`, 'always')] : []),
      await inTurn('a launch of 256 threads that do next to nothing, in the process', runs, [
        { name: 'the launch', unit: 'us', once: () => kernels.idle() / 1e3 },
        {
          name: 'a thread made and awaited',
          unit: 'us',
          once: () => counted('threads', '2000') / 2000 / 1e3,
        },
      ]),
    ];
  });
}
