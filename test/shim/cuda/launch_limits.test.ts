import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  launch_limits: {
    cooperative_size:
      'a cooperative grid runs up to what fits at once, and a larger one is refused at the launch',
    cluster_size: 'clusters that do not divide the grid, or are too large, are refused at the launch',
    first_launch: 'each launch returns the error of code that is loaded late, and no other call does',
    two_contexts: 'a kernel of a library is launched in two contexts in turn',
    active_clusters: 'as many clusters fit at once as their blocks do',
  },
};

describeCases('limits of launches', PROGRAMS);
