import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  random_order: {
    streams:
      'random work on all kinds of streams, in the order that events and waits demand, has its results',
    graphs: 'the same with graphs that are captured, changed and launched on any stream',
    boxes: 'the same with an array, and with fills of boxes',
    threads: 'the same in four threads at once',
  },
};

describeCases('the order of work', PROGRAMS, true);
