import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  printing: {
    in_order: 'what a kernel prints comes between what the program printed before and after it waited',
    copies: 'a copy that waits brings it, too',
    more_than_fits: 'of more than a MiB the newest is kept',
    nobody_reads: 'a program without a standard output goes on',
    never_waits: 'a program that ends without waiting is not told',
    forked: 'a child that is forked while another thread prints can print, too',
  },
};

describeCases('what kernels print', PROGRAMS, true);
