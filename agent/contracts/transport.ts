/** The system calls by which the shim reaches the host: a unit that forbids one of them keeps its processes from it. */
export const transportCalls = ['socket', 'connect'];
