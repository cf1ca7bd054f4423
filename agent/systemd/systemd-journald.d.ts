/** The part of systemd-journald 1.5.2 (which ships no types) that we use. */
declare module 'systemd-journald' {
  type Send = (message: string, fields?: Readonly<Record<string, string>>) => void;
  const journald: {
    readonly err: Send;
    readonly warning: Send;
    readonly notice: Send;
    readonly info: Send;
  };
  export = journald;
}
