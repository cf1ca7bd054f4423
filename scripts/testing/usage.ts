/**
 * Loaded into each test file's process (node --import): appends the processor time of the process and of the children
 * that it waited for to the file that VGPU_TEST_USAGE names. Node's test runner reports only wall time. test/guest/support/guest.ts
 * adds the processor time of a guest's services.
 */
import { appendFileSync, readFileSync } from 'node:fs';

const target = process.env['VGPU_TEST_USAGE'];
// The runner itself is not a test file.
if (target !== undefined && process.env['NODE_TEST_CONTEXT'] !== undefined) {
  process.on('exit', () => {
    // proc_pid_stat(5): fields 14 to 17 are user and system time of the process, and of its children, in ticks of 10 ms.
    // The second field, a name, may hold spaces.
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const ticks = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 15);
    const seconds = ticks.reduce((sum, one) => sum + Number(one), 0) / 100;
    appendFileSync(target, `${process.argv[1]}\t${seconds}\n`);
  });
}
