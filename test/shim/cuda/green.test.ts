import { type CasePrograms, describeCases, describeCasesOverMappingDriver } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  green_calls: {
    resources: "a device, a context and a stream have the device's multiprocessors",
    splits_by_count: 'multiprocessors are split into groups of the documented sizes',
    splits_by_size: 'multiprocessors are split into groups of given sizes, which can be found out',
    describes: 'resources that do not belong together make no descriptor',
    contexts: 'a green context has its resources, and its streams know it',
    computes: 'kernels on its streams compute, with the variables of the primary context',
    cooperative: 'a cooperative grid must fit on its multiprocessors',
    events: 'an event is recorded after all its work, and all its work waits for an event',
    ends: 'objects made in it outlive it, but its streams return errors',
    ends_with_primary: 'it retains the primary context, which cannot be reset while it exists',
    many: 'many are made one after the other',
  },
};

describeCases('green contexts', PROGRAMS, true);
describeCasesOverMappingDriver('green contexts', PROGRAMS);
