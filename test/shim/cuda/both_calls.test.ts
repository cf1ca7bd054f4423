import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  both_calls: {
    mapped: 'pinned memory is in kernels what it is in the program, or has no address there',
    managed: 'managed memory is one for kernels, copies and the program, or is refused',
    in_order: 'a copy takes what a kernel before it wrote to pinned memory',
    at_the_same_time: 'a kernel and the program talk while it runs, where the attribute says so',
    arrived: 'a copy to managed memory that has returned is there',
    variables: 'variables that a module says are managed lie in memory of both sides, or nobody is told so',
    advice: 'advice and prefetches are taken, told again, and refused for other memory',
    many: 'small pieces come in numbers and are given back',
  },
};

describeCases('memory of both sides', PROGRAMS, true);
