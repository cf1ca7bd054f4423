import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  link_calls: {
    joins: 'texts that call each other are one module, each with what is its own',
    weak_and_shared: 'a strong definition stands for a weak one',
    one_input: 'one input is linked, too',
    linked_again: 'a linked image can be an input again',
    later_names: 'an initialiser may name what a later text defines',
    chained_names: 'thousands of variables may each name the next one',
    parts: 'a program of several objects is linked when it is loaded',
    undefined: 'a call of what nobody defines is an error at the load',
    device_runtime: "the device runtime's barrier holds a grid together, and other libraries are refused",
    refusals: 'what cannot be linked is told in the log, by name',
    unsound: 'inputs that are cut off, or are not what their type says, are refused',
    damaged: 'a damaged text is linked or refused, and nothing else',
  },
};

describeCases('linking', PROGRAMS);
