import { type CasePrograms, describeCases } from '../case_programs.js';

const PROGRAMS: CasePrograms = {
  graph_nodes: {
    generic: 'nodes of every kind are added, changed and launched by the generic calls',
    attributes: 'the attributes of a kernel node are set, kept when it changes, and copied',
    other_kinds: 'parameters of another kind are refused as such',
    circles: 'a graph is not moved into a graph that is a part of it',
    events: 'events of nodes are changed, wait, and are waited for',
    memory_operations: 'a node writes and waits for values in memory',
  },
  graph_edges: {
    edges: 'edges keep their data, and a query that would lose it is refused',
    captured_edges: 'a capture into a graph begins behind its nodes, with the edges that were asked for',
    dot: 'a graph is written down for dot',
    branches: 'branches, child graphs and what joins them are done in their order',
    in_turn: 'launches of one executable run one after the other in whatever streams they are',
  },
  graph_conditions: {
    decides: 'a kernel decides whether a body is done, or which',
    repeats: 'a body is done again for as long as a kernel says so',
    nests: 'bodies hold conditions and child graphs of their own, and can be captured',
    defaults: 'a condition begins with its default value at each launch, also when its graph is gone',
    changed: 'nodes of bodies, and all of a graph with conditions, are changed in an executable',
    update_takes_over: 'an executable has the conditions of the graph that it was updated from for itself',
    ordered: 'a graph whose stream waits decides when its turn has come',
    outlived: 'a launch that waits does what its executable was, which may be changed and destroyed',
    restricted: 'a graph with conditions is not cloned, nested or instantiated twice',
    bad_requests: 'conditions that make no sense are refused',
  },
  graph_updates: {
    switches: 'nodes of an executable are switched off and on',
    children: 'what a child graph does in an executable is changed',
    updates: 'an update that cannot be says which node is why, and does nothing',
  },
  graph_memory: {
    allocates: 'a graph allocates memory at an address that stays, uses and frees it',
    outlives: 'what a graph allocated and did not free is used after it and freed by others',
    twice: 'a graph is not launched again over its own memory, but where it shall be freed then',
    captured: 'a capture makes nodes of what allocates and frees in the order of a stream',
    restricted: 'a graph with memory is not cloned, cut or instantiated twice',
    updated: 'an update gives an executable the memory of the other graph, unless another executable uses it',
    moved: 'a child graph with memory is moved into its parent',
    counted: 'memory of graphs is counted, trimmed and given back',
    bad_requests: 'memory that a graph cannot have is refused',
  },
  graph_objects: {
    user_objects: 'the destructor of a user object runs when its last reference goes',
    user_objects_of_executables: 'an executable holds what its graph held, until its work is done',
    executables_of_ended_contexts:
      'an executable whose context has ended is refused, and destroying it disturbs no other context',
  },
};

describeCases('graph nodes', PROGRAMS);
