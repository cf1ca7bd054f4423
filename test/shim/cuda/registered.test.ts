import { describeCases, describeCasesOverMappingDriver, describeCasesOverRings } from '../case_programs.js';

const TURNS = {
  registered_calls: {
    turns: 'a kernel and the program use it in turn where it is, or it has no address there',
    read_only:
      'is registered for a device that only reads where the attribute says so, and refused elsewhere',
  },
};
describeCases('memory that the program registers', TURNS, true);
describeCasesOverMappingDriver('memory that the program registers', TURNS);

const IN_PLACE = {
  registered_calls: {
    reallocated: 'an allocation that was registered, or is, can grow',
    forks: 'a child has its own copy of it, and changes nothing of the parent',
    written_in_a_fork:
      "what another library's fork handler writes is in the child, the parent and the kernel",
    unregistered_at_once: 'a launch before the end of a registration has written what it writes',
    other_memory: 'files, shared memory, stacks and holes have no address there',
  },
  registered_pages: {
    one_page:
      'is in kernels what it is in the program, and stays so when other memory of its page is unregistered',
    neighbours: 'is so where it goes on in pages of its own, and copies to and from it bring all bytes',
    between: 'is so between two others, in every order in which they are unregistered',
    mapped_over: 'has no address on the device where the program has other memory by now',
    forked: 'is copied for a child',
  },
};
describeCasesOverRings('registered memory that is shared in place', IN_PLACE);
describeCasesOverMappingDriver('registered memory that is shared in place', IN_PLACE);

describeCasesOverRings('registered memory that is shared in place, beside other threads and without rights', {
  registered_calls: {
    writers: 'threads that write to it and beside it lose nothing while it is registered again and again',
    first_writes: 'the first write to a page is not lost either',
    forks_while_a_kernel_writes: 'neither a kernel nor the program loses a write while children are made',
    stacks: "nor has a thread's own stack an address there",
    without_rights: 'an ordinary user loses nothing either',
    without_userfaultfd: 'where userfaultfd is not allowed it has no address on the device, and copies work',
    pinned_elsewhere: 'memory that is pinned for other devices is left where it is',
  },
});
