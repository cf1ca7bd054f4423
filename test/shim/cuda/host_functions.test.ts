import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  host_functions: {
    queues_behind: 'work is queued behind a function that has not run, and begins after it',
    feeds_copies: 'a copy behind a function takes what the function has written to pinned memory',
    delays_no_other: 'a stream that is not ordered after the function works meanwhile',
    is_waited_for: 'a wait that began before a function ran returns after it',
    later_work_is_not_waited_for: 'work that is queued after a wait began does not make it longer',
    graphs_go_on: 'the launch of a graph does not wait for a function in it',
    outlives_its_stream: 'a destroyed stream does its work, with code that is unloaded after that',
    ends_with_its_context: 'a context ends although a function in it has not run, and disturbs no other',
    reads_in_turn: 'a copy of a stream without work comes after the work that its stream is ordered after',
    many_in_a_row: 'thousands of functions run in their order',
    much_behind: 'far more work than a queue holds waits for its turn',
  },
};

describeCases('host functions that take their time', PROGRAMS, true);
