import {
  type CasePrograms,
  describeCases,
  describeCasesFarFromMappingDriver,
  describeCasesInVmOfMappingDriver,
  describeCasesOverMappingDriver,
} from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  both_calls: {
    offered: 'is offered by the attributes of the device only if program and device share memory',
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

const WHAT = 'memory of both sides';
describeCases(WHAT, PROGRAMS, true);
describeCasesOverMappingDriver(WHAT, PROGRAMS);

/** Cases of other programs that need shared memory. */
const OTHERS: CasePrograms = {
  pinned_calls: { viewed: "vLLM's buffers are seen by the device, or refused by their error" },
  pool_calls: {
    managed: 'managed memory of a pool is seen by program and device, or there is none',
    managed_refusals: 'a pool of managed memory has no limit and no other process',
  },
  registered_calls: {
    turns: 'a kernel and the program use registered memory in turn, or it has no address there',
    read_only: 'memory is registered for a device that only reads, or that is refused',
  },
};
describeCasesFarFromMappingDriver(WHAT, { ...PROGRAMS, ...OTHERS });
const { variables: _mirrored, ...both_calls } = PROGRAMS['both_calls'] ?? {};
describeCasesInVmOfMappingDriver(WHAT, {
  ...OTHERS,
  both_calls,
  managed_code: { refused_in_vm: 'a managed variable, whose address the driver chose, is refused' },
});
