/** The environment that a process was started with. */

/** `/proc/PID/environ`. */
export function environmentOf(environ: Buffer): Readonly<Record<string, string>> {
  const values: Record<string, string> = {};
  for (const assignment of environ.toString('utf8').split('\0')) {
    const equals = assignment.indexOf('=');
    if (equals > 0) values[assignment.slice(0, equals)] = assignment.slice(equals + 1);
  }
  return values;
}
