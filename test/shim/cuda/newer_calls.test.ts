import { type CasePrograms, describeCases, describeCasesOverMappingDriver } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  newer_calls: {
    described: 'nodes of work are described by one call',
    described_too: 'and so are nodes of every other kind',
    named: 'graphs and nodes have the numbers of the DOT file',
    placed: 'a kernel node with a function of another context is refused by the newer calls',
    located: 'managed memory is memory of the host',
    classes: 'the class of a tensor map has no effect',
    refused: 'calls that are not carried are found and refused',
  },
};

describeCases('calls of CUDA 13.1 to 13.5', PROGRAMS, true);
describeCasesOverMappingDriver('calls of CUDA 13.1 to 13.5', PROGRAMS);
