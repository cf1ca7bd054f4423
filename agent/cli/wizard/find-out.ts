/** Everything that can be found out before the first question. Uses only the effects passed in. */

import type { Emit } from '../../contracts/events.js';
import type { HostFacts, MachineFacts } from '../../contracts/facts.js';
import type { Plan, PlanOptions } from '../../contracts/plan.js';
import type { UnitFacts } from '../../contracts/unit.js';
import { parseGuestConf, parseHosts } from '../../guest/vgpu-host/endpoint.js';
import { refusal } from '../../install/pipeline/ask-then-lock.js';
import { stopIfAsked, VgpuError } from '../../lib/errors.js';
import { agentUnitFile, defaultPort, defaultSocket, guestConf, userProfiles } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import type { Consumer, Found, HostSeen } from './questions.js';

export interface FindOutEffects {
  readonly profiles: readonly Profile[];
  unit(name: string): Promise<UnitFacts>;
  inspect(profile: Profile): Promise<MachineFacts>;
  planInstall(profile: Profile, facts: MachineFacts, options: PlanOptions): Plan;
  askHost(endpoint: string): Promise<HostFacts['answer']>;
  readonly environmentHost: string | undefined;
  readonly emit: Emit;
  readonly signal: AbortSignal;
}

export async function findOut(effects: FindOutEffects): Promise<Found> {
  effects.emit({ kind: 'phase', phase: 'inspect', text: 'looking for services that can use a GPU' });
  const present = await presentProfiles(effects);
  const { consumers, facts } = await inspectAll(effects, present);
  const found: Found = { consumers, hosts: [], installed: installedOf(facts) };
  const candidates = hostCandidates({
    environment: effects.environmentHost,
    guestConf: facts.guestConf.content,
    installed: facts.manifest?.endpoint ?? null,
  });
  return { ...found, hosts: await findHosts(effects, candidates, [facts.host]) };
}

export async function findHosts(
  effects: Pick<FindOutEffects, 'askHost' | 'emit' | 'signal'>,
  candidates: readonly Candidate[],
  known: readonly Pick<HostFacts, 'endpoint' | 'answer'>[] = [],
): Promise<readonly HostSeen[]> {
  const { emit, signal, askHost } = effects;
  const where = candidates.map(({ endpoint }) => endpoint).join(', ');
  emit({ kind: 'phase', phase: 'inspect', text: `looking for a host at ${where}` });
  const seen = await Promise.all(
    candidates.map(async ({ endpoint, from }) => {
      const before = known.find((one) => one.endpoint === endpoint && one.answer.kind === 'answers');
      return { endpoint, from, answer: before?.answer ?? (await askHost(endpoint)) };
    }),
  );
  stop(signal);
  return seen;
}

type Candidate = Pick<HostSeen, 'endpoint' | 'from'>;

export function hostCandidates(sources: {
  readonly environment: string | undefined;
  readonly guestConf: string | null;
  readonly installed: string | null;
}): readonly Candidate[] {
  const candidates = new Map<string, string>();
  const add = (endpoint: string | null | undefined, from: string): void => {
    if (endpoint === null || endpoint === undefined || candidates.has(endpoint)) return;
    // Text that is no address cannot be asked; install says what is wrong with it.
    if (parseHosts(endpoint).kind !== 'bad') candidates.set(endpoint, from);
  };
  add(sources.environment, 'VGPU_HOST');
  add(parseGuestConf(sources.guestConf ?? ''), guestConf);
  add(sources.installed, 'what is installed');
  add(`unix:${defaultSocket}`, 'the usual socket');
  add(`vsock:2:${defaultPort}`, 'the usual place of a virtual machine');
  return [...candidates].map(([endpoint, from]) => ({ endpoint, from }));
}

async function presentProfiles({ profiles, unit, signal }: FindOutEffects): Promise<readonly Profile[]> {
  const units = await Promise.all(
    profiles.map(async (profile) => ({ profile, unit: await unit(profile.unit) })),
  );
  stop(signal);
  const present = units.filter(({ unit: { kind } }) => kind === 'loaded').map(({ profile }) => profile);
  if (present.length > 0) return present;
  const masked = units.find(({ unit: { kind } }) => kind === 'masked')?.profile;
  throw new VgpuError(
    `no service here can be given a GPU: ${units.map((one) => `${one.profile.unit} is ${one.unit.kind}`).join(', ')}`,
    {
      kind: 'refused',
      operation: 'look for services',
      remedy:
        masked === undefined
          ? `install one of them first, or describe yours in ${userProfiles} (docs/reference/profiles.md)`
          : `to allow it to run: systemctl unmask ${masked.unit}`,
    },
  );
}

/** Those that an install would not refuse; throws the refusal when there are none. */
async function inspectAll(
  effects: FindOutEffects,
  profiles: readonly Profile[],
): Promise<{ readonly consumers: readonly Consumer[]; readonly facts: MachineFacts }> {
  const consumers: Consumer[] = [];
  let last: MachineFacts | null = null;
  let refused: VgpuError | null = null;
  for (const profile of profiles) {
    const facts = await effects.inspect(profile);
    stop(effects.signal);
    // The address is asked for later: neither a bad one in guest.conf nor a host that is away is a reason to refuse.
    const options = {
      endpoint: `unix:${defaultSocket}`,
      force: false,
      allowUnreachable: true,
      restart: true,
    };
    const plan = effects.planInstall(profile, facts, options);
    if (plan.kind === 'refused') {
      const error = refusal(plan, 'look at this machine');
      refused ??= error;
      effects.emit({
        kind: 'note',
        level: 'info',
        code: 'consumer-refused',
        text: `${profile.unit}: ${error.message}`,
        remedy: null,
      });
      continue;
    }
    last = facts;
    consumers.push({ profile, libraries: othersIn(facts) });
  }
  if (last !== null) return { consumers, facts: last };
  throw refused ?? new VgpuError('no profile was looked at', { kind: 'internal', operation: 'inspect' });
}

function othersIn({ candidates }: MachineFacts): Consumer['libraries'] {
  const files = new Map<string, Consumer['libraries'][number]>();
  for (const { path, vendor, ownerOfFile, resolution } of candidates) {
    if (vendor !== 'nvidia' && vendor !== 'foreign') continue;
    const file = resolution.kind === 'file' ? resolution.realPath : path;
    files.set(file, { path: file, vendor, ownerOfFile });
  }
  return [...files.values()];
}

function installedOf({ manifest }: MachineFacts): Found['installed'] {
  if (manifest === null) return null;
  const service = manifest.items.some((item) => item.kind === 'file' && item.path === agentUnitFile);
  return { profiles: manifest.consumers.map((one) => one.profile), endpoint: manifest.endpoint, service };
}

function stop(signal: AbortSignal): void {
  stopIfAsked(signal, 'stopped before the first question; nothing was changed', { operation: 'look around' });
}
