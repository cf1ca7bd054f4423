import {
  type CasePrograms,
  describeCases,
  describeCasesOverLateDriver,
  describeCasesOverMappingDriver,
  describeCasesOverRings,
} from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  stream_calls: {
    properties: 'streams say what they were made with and know handles that are none',
    attributes: 'streams keep their attributes',
    events: 'events measure time at the host',
    pinned_reads: 'pinned memory has what was read once the program has waited',
    many_reads: 'many reads on many streams all arrive',
    host_functions: 'functions of the program run in the order of their stream',
    wait_values: 'a stream waits for a value without holding up others',
    events_recorded_again:
      'an event that is recorded again or destroyed holds only what waited for it before',
    without_context: 'a thread without a current context queues work in a stream, which knows its own',
    default_stream_order: 'the default stream and blocking streams wait for each other',
  },
  copy_calls: {
    pointers: 'what pointers and peers are asked and set to',
    linear: 'copies between all kinds of memory',
    batch: 'a batch of copies',
    batch_boxes: 'a batch of copies in three dimensions',
    two_dimensions: 'copies in two dimensions touch their box only',
    three_dimensions: 'copies in three dimensions touch their box only',
    fills: 'fills of all widths in one and two dimensions',
  },
  read_calls: {
    lengths: 'reads of every length into ordinary memory have all bytes, and no more',
    behind_work: 'a read behind work that waits has the bytes that this work wrote',
    one_node: 'a short copy that is captured is one node',
    threads: 'threads that read at the same time get what they read',
  },
  pool_calls: {
    allocates: 'memory taken and freed in the order of a stream is used and given back',
    waits: 'memory freed on a stream that waits is freed when its turn comes',
    thresholds: 'a pool keeps what its release threshold says, and gives it back when it is trimmed',
    pools: 'pools are made, set, limited and destroyed, and the default pool stays',
    bad_requests: 'what cannot be of a pool is refused',
    captures: 'a capture does not free what no graph allocated',
    managed: 'managed memory of a pool is seen by program and device, and is freed in the order of a stream',
    managed_refusals: 'a pool of managed memory has no limit and no other process',
  },
  pinned_calls: {
    lengths: 'copies of every length to and from pinned memory are done when they return',
    in_order: 'asynchronous copies through the same pinned memory keep their order',
    behind_a_wait: 'copies behind a stream that waits are made after it',
    returns: 'a long copy to pinned memory returns while its stream waits for a later call',
    many: 'pinned memory is made, given back and made again',
    threads: 'many threads have pinned memory of their own',
    forks: 'a child that forked has none of it',
    viewed:
      "vLLM's buffers are seen by the device where memory is shared, and refused by their error elsewhere",
    seen_at_once:
      'the program sees each fill and copy into pinned, registered and managed memory when the call returns',
  },
  earlier_failures: {
    made: 'what is made is there although work before it failed, and that is told by the next wait',
    questions: 'every wait and question for work tells a failure, once',
  },
  virtual_calls: {
    grows: 'a reservation that grows piece by piece is used as one memory',
    aliases: 'what is mapped twice is one memory, and what is made again is empty',
    access_rules: 'mapped memory is only there where access was given',
    bad_requests: 'virtual memory that cannot be is refused, and what is taken is counted',
  },
};

describeCases('memory and streams', PROGRAMS, true);

const SPANS = { pinned_calls: { spans: 'a copy of more than one span is done when it returns' } };
describeCasesOverRings('copies in spans', SPANS);

const { stream_calls = {}, copy_calls = {}, read_calls = {}, pinned_calls = {}, pool_calls = {} } = PROGRAMS;
// This case does not end on NVIDIA's driver 580.159.04 either: it destroys a context with a wait that nobody ends.
const { default_stream_order: _waits, ...streams } = stream_calls;
describeCasesOverMappingDriver('memory and streams', {
  stream_calls: streams,
  copy_calls,
  read_calls,
  pinned_calls: { ...pinned_calls, ...SPANS.pinned_calls },
  pool_calls,
});

const { pinned_reads = '' } = streams;
describeCasesOverLateDriver('memory and streams', { stream_calls: { pinned_reads }, read_calls });
