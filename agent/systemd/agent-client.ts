/** vgpu-agent.service, asked over the bus. It may not run, which is no failure. */
import { BusBusyError, type BusConnection, BusError, busDaemon, connectBus } from './connection.js';
import { bagOf, type PropertyBag } from './properties.js';

const agentName = 'org.vgpu.Agent1';
const agentPath = '/org/vgpu/Agent1';
/** A start that is still under way gets its own time. */
const verifyTimeoutMs = 180_000;

export type AgentClient = NonNullable<Awaited<ReturnType<typeof findAgent>>>;

/** A bus that is not answering for so long will not answer the questions to systemd either. */
const connectWithinMs = 3_000;

/** Null: it does not run (it is not started), or there is no bus. Throws a BusBusyError. */
export async function findAgent() {
  let bus: BusConnection;
  try {
    bus = await connectBus(undefined, connectWithinMs);
  } catch (error) {
    if (error instanceof BusBusyError) throw error;
    return null;
  }
  const owner = await bus
    .call({ ...busDaemon, member: 'GetNameOwner', signature: 's', body: [agentName] })
    .catch((error: unknown) => {
      if (error instanceof BusError) return null;
      throw error;
    });
  if (owner === null) {
    bus.close();
    return null;
  }
  const agent = { destination: agentName, path: agentPath, interface: agentName };
  const textOf = async (member: string): Promise<string> => String((await bus.call({ ...agent, member }))[0]);
  return {
    async properties(): Promise<PropertyBag> {
      const all = { ...agent, interface: 'org.freedesktop.DBus.Properties', member: 'GetAll' };
      const [bag] = await bus.call({ ...all, signature: 's', body: [agentName] });
      return bagOf(bag);
    },
    metrics: () => textOf('Metrics'),
    /** Resolves when every consumer was judged again. Rejects with a BusError when this user may not ask. */
    async verify(): Promise<void> {
      await bus.call({ ...agent, member: 'Verify', timeoutMs: verifyTimeoutMs });
    },
    restart: () => textOf('Restart'),
    close: () => bus.close(),
  };
}

/** Asks the service. Null: it does not run, or the bus is busy. */
export async function askAgent<T>(question: (agent: AgentClient) => Promise<T | null>): Promise<T | null> {
  const agent = await findAgent().catch((error: unknown) => {
    if (error instanceof BusBusyError) return null;
    throw error;
  });
  if (agent === null) return null;
  try {
    return await question(agent);
  } finally {
    agent.close();
  }
}
