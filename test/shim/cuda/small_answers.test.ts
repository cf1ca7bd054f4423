import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  small_answers: {
    drivers_answers: "questions with NULL, of nothing and of garbage have the answers of NVIDIA's driver",
    limits:
      "each limit of a context has the driver's value or error: no context is shared with a graphics queue, as cuBLAS 13.1 asks",
    older_names: 'a name that got a parameter with CUDA 13 means the current context without it',
    range_in_callback: 'a range is not told in a callback, by which libgomp knows that it is in one',
    old_launches: 'a function keeps block, memory and parameters for launches as CUDA 3 had them',
    exportable: 'memory of a type that could be exported is memory like any other',
    ended_stream: 'a stream may end while it is captured, and its end is no work',
    ended_capture: 'a capture ends with the stream that it began on, or with its context, and leaves nothing',
    references:
      'a reset of the primary context ends it and keeps its references, which are released one by one',
    later_grid: "a graph's kernel may get its grid after the graph is instantiated",
  },
};

describeCases('small answers', PROGRAMS);
