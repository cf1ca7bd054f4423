/** Decides which users may have the service act: root, and those that polkit allows. */
import { type BusConnection, BusError, type IncomingCall } from '../../systemd/connection.js';

const polkit = {
  destination: 'org.freedesktop.PolicyKit1',
  path: '/org/freedesktop/PolicyKit1/Authority',
  interface: 'org.freedesktop.PolicyKit1.Authority',
} as const;
const allowInteraction = 1;

/** Null: the caller may. Else why not, for him. `action` is one of units/org.vgpu.Agent1.policy. */
export async function mayNot(
  bus: Pick<BusConnection, 'call' | 'variant'>,
  call: Pick<IncomingCall, 'sender' | 'member' | 'interactive'>,
  action: string,
): Promise<string | null> {
  if ((await userOf(bus, call.sender)) === 0) return null;
  try {
    const [result] = await bus.call({
      ...polkit,
      member: 'CheckAuthorization',
      signature: '(sa{sv})sa{ss}us',
      body: [
        ['system-bus-name', { name: bus.variant('s', call.sender) }],
        action,
        {},
        // polkit's dialogue opens only for a caller that allows interaction; a script gets its answer at once.
        call.interactive ? allowInteraction : 0,
        '',
      ],
    });
    if (!Array.isArray(result)) return `only root may call ${call.member}: polkit gave no valid answer`;
    if (result[0] === true) return null;
    return `you may not call ${call.member}: polkit does not allow you ${action}`;
  } catch (error) {
    // Fail closed: no polkit, one that does not know the action, or one that keeps silent.
    const why = error instanceof BusError ? error.type : String(error);
    return `only root may call ${call.member} (polkit did not answer: ${why})`;
  }
}

async function userOf(bus: Pick<BusConnection, 'call'>, sender: string): Promise<number> {
  const [user] = await bus.call({
    destination: 'org.freedesktop.DBus',
    path: '/org/freedesktop/DBus',
    interface: 'org.freedesktop.DBus',
    member: 'GetConnectionUnixUser',
    signature: 's',
    body: [sender],
  });
  return Number(user);
}
