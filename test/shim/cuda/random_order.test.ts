import {
  type CasePrograms,
  describeCases,
  describeCasesInside,
  describeCasesOverTransports,
} from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  random_order: {
    streams:
      'random work on all kinds of streams, in the order that events and waits demand, has its results',
    graphs: 'the same with graphs that are captured, changed and launched on any stream',
    boxes: 'the same with an array, and with fills of boxes',
    threads: 'the same in four threads at once',
  },
};

const WHAT = 'the order of work';
if (process.env['VGPU_TEST_LONG'] === '1') {
  describeCases(WHAT, PROGRAMS, true);
} else {
  // TCP and a VM's memory use the same socket and ring code;
  // memory_calls.test.ts runs over both.
  describeCasesInside(WHAT, PROGRAMS);
  describeCasesOverTransports(WHAT, PROGRAMS, ['unix', 'unix without a ring', 'chain']);
}
