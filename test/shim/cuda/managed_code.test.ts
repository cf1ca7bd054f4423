import { type CasePrograms, describeCases, describeCasesOverMappingDriver } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  managed_code: {
    in_turn: 'a kernel, copies and the program change a variable in turn',
    library_module: "a module of a library has the library's variables, and they end with it",
    references: "texture references of a library's module end with the library",
    other_context: 'a module tells where a variable lies whatever context is current, or none',
    context_ends: "memory of a context's modules is given back with it, a library's is kept",
    without_context: 'a query without a context does not make the primary context active',
  },
};

describeCases('managed variables', PROGRAMS, true);
describeCasesOverMappingDriver('managed variables', PROGRAMS);
