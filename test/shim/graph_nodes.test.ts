import { type CasePrograms, describeCases } from './case_programs.js';

const PROGRAMS: CasePrograms = {
  graph_nodes: {
    generic: 'nodes of every kind are added, changed and launched by the generic calls',
    edges: 'edges keep their data, and a query that would lose it is refused',
    captured_edges: 'a capture into a graph begins behind its nodes, with the edges that were asked for',
    attributes: 'the attributes of a kernel node are set, kept when it changes, and copied',
    switches: 'nodes of an executable are switched off and on',
    events: 'events of nodes are changed, wait, and are waited for',
    memory_operations: 'a node writes and waits for values in memory',
    children: 'what a child graph does in an executable is changed',
    updates: 'an update that cannot be says which node is why, and does nothing',
    dot: 'a graph is written down for dot',
  },
};

describeCases('graph nodes', PROGRAMS, 46_000 + (process.pid % 4_000));
