/** What the shim calls to reach the host: a unit that forbids one of them keeps its processes from it. */
export const transportCalls = ['socket', 'connect'];
