import { type CasePrograms, describeCasesOverRings, describeCasesOverTransports } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  busy_kernels: {
    tells: 'a stream and an event behind the kernel are not ready, another stream is',
    tells_of_many_blocks: 'so if other threads of the host run blocks of the kernel, too',
    tells_of_ordered_streams: 'the default stream waits for a blocking one',
    ends_by_other_streams: 'other streams write to the memory that the kernel looks at',
    is_watched: 'another stream reads what the kernel has written so far',
    queues_behind: 'what is queued behind the kernel, and behind an event after it, runs in its order',
    second_one: 'the kernel behind it can be asked about as well',
    graphs_keep_order: 'a graph behind it runs before what is queued behind the graph',
    fails_late: 'its error is told when it has ended',
    is_waited_for: 'another thread of the program waits for it and disturbs nobody',
    later_ones_are_not_waited_for:
      'a wait that began before a second kernel was launched is not for that one',
    delays_no_other: 'other streams and their events are waited for, and code is looked up',
    is_the_load: 'NVML tells the load of the simulated GPU while the kernel runs, and none before and after',
    is_left: 'a program that leaves does not wait for it',
  },
};

const SHARED: CasePrograms = {
  busy_kernels: {
    sees_the_program: 'the program writes to the memory that the kernel looks at',
    copies_afterwards: 'a copy behind it takes what pinned memory holds when it has ended',
  },
};

describeCasesOverTransports('kernels that run until the program lets them end', PROGRAMS);
describeCasesOverRings('kernels that wait for memory of the program', SHARED);
