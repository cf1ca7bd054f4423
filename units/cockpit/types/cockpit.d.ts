/** The part that page.js uses of base1/cockpit.js (https://cockpit-project.org/guide/latest/api-base1.html). */

interface CockpitBus {
  call(
    path: string,
    interfaceName: string,
    member: string,
    args: readonly unknown[],
    options: { readonly type: string; readonly timeout: number },
  ): Promise<readonly unknown[]>;
  subscribe(
    match: { readonly path: string; readonly interface: string; readonly member: string },
    heard: () => void,
  ): void;
  addEventListener(name: 'owner', heard: (event: unknown, owner: string | null) => void): void;
  addEventListener(
    name: 'close',
    heard: (event: unknown, options: { readonly problem?: string }) => void,
  ): void;
}

interface CockpitProcess extends Promise<string> {
  stream(heard: (chunk: string) => void): CockpitProcess;
}

declare const cockpit: {
  dbus(name: string, options: { readonly bus: 'system'; readonly superuser: 'try' }): CockpitBus;
  permission(options: { readonly admin: true }): unknown;
  spawn(
    command: readonly string[],
    options: { readonly superuser: 'try'; readonly err: 'message' },
  ): CockpitProcess;
};
