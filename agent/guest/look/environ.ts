/** The environment that a process was started with. */

/** `/proc/PID/environ`. */
export function environmentOf(environ: Buffer): Readonly<Record<string, string>> {
  return Object.fromEntries(
    environ
      .toString('utf8')
      .split('\0')
      .flatMap((assignment) => {
        const equals = assignment.indexOf('=');
        return equals > 0 ? [[assignment.slice(0, equals), assignment.slice(equals + 1)]] : [];
      }),
  );
}
