/**
 * Chooses the host in use from a list. The decisions are pure: (state, event) -> state and effects; `now` comes with
 * the events, in milliseconds. The library tries the host in use first (shim-src/guest/config.c), so that all processes
 * of a consumer use the same host even after an earlier host of the list has come back.
 */

import { rmSync } from 'node:fs';
import path from 'node:path';
import type { AgentConfig } from '../guest/agent-conf.js';
import { splitHosts } from '../guest/vgpu-host/endpoint.js';
import { messageOf } from '../lib/errors.js';
import { hostInUseFile } from '../lib/paths.js';
import { openDirectory, replaceFile } from '../lib/trust/files.js';
import type { Kind, OneOfSeveral } from './board.js';
import { type HostEvent, seenAt } from './helper.js';
import { pacer, steadyNow } from './pacer.js';

export interface HostsRules {
  readonly preferFirst: boolean;
  /** Leave the host in use after this time without an answer. Sessions survive shorter losses. */
  readonly leaveMs: number;
  readonly returnMs: number;
}

export interface HostSeen {
  readonly endpoint: string;
  readonly last: HostEvent | null;
  readonly since: number;
}

export interface HostsState {
  readonly hosts: readonly HostSeen[];
  readonly used: string | null;
  /** An earlier host to which consumers may move back; null: none. */
  readonly offered: string | null;
}

export type HostsEvent =
  | Kind<'told', { number: number; host: HostEvent; now: number }>
  | Kind<'time', { now: number }>
  /** A consumer is about to move to the host that was offered. */
  | Kind<'taken', { now: number }>;

export type HostsEffect =
  | Kind<'use', { endpoint: string }>
  /** Reports an event of the host in use. `moved`: the host in use has changed. */
  | Kind<'tell', { endpoint: string; event: HostEvent; moved: boolean }>
  | Kind<'offer', { endpoint: string | null }>
  | Kind<'look', { at: number }>;

interface Next {
  readonly state: HostsState;
  readonly effects: readonly HostsEffect[];
}

export function beginHosts(addresses: readonly string[], used: string | null, now: number): HostsState {
  return {
    hosts: addresses.map((endpoint) => ({ endpoint, last: null, since: now })),
    used: addresses.find((one) => one === used) ?? null,
    offered: null,
  };
}

export function hostsNext(state: HostsState, event: HostsEvent, rules: HostsRules): Next {
  switch (event.kind) {
    case 'time':
      return decide(state, rules, event.now);
    case 'taken': {
      const host = state.hosts.find(({ endpoint }) => endpoint === state.offered);
      if (host?.last?.kind !== 'up') return { state, effects: [] };
      // Consumers that have not moved yet keep the offer; each moves when its restart is allowed.
      const next = { ...state, used: host.endpoint, offered: null };
      return { state: next, effects: [use(host.endpoint), tell(host.endpoint, host.last, true)] };
    }
    case 'told': {
      const hosts = state.hosts.map((one, index) => (index === event.number ? heard(one, event) : one));
      const known = { ...state, hosts };
      const one = hosts[event.number];
      const isUsed = one !== undefined && one.endpoint === state.used;
      const told = isUsed ? [tell(one.endpoint, event.host, false)] : [];
      const next = decide(known, rules, event.now);
      return { state: next.state, effects: [...told, ...next.effects] };
    }
  }
}

function heard(before: HostSeen, { host, now }: Extract<HostsEvent, { kind: 'told' }>): HostSeen {
  const since = before.last?.kind === host.kind ? before.since : now;
  return { ...before, last: host, since };
}

function decide(state: HostsState, rules: HostsRules, now: number): Next {
  const used = state.hosts.find(({ endpoint }) => endpoint === state.used);
  if (used === undefined) return choose(state);
  if (used.last?.kind === 'down') {
    const withdrawn = withdraw(state);
    const other = state.hosts.find(({ last }) => last?.kind === 'up');
    if (other?.last?.kind !== 'up') return withdrawn;
    const due = used.since + rules.leaveMs;
    if (now < due) return { ...withdrawn, effects: [...withdrawn.effects, { kind: 'look', at: due }] };
    return {
      state: { ...withdrawn.state, used: other.endpoint },
      effects: [...withdrawn.effects, use(other.endpoint), tell(other.endpoint, other.last, true)],
    };
  }
  return used.last?.kind === 'up' ? offer(state, rules, now) : { state, effects: [] };
}

/** No consumer has a session yet, so use the first host that answers, as the library does. */
function choose(state: HostsState): Next {
  const first = state.hosts.findIndex(({ last }) => last?.kind !== 'down');
  const host = state.hosts[first];
  if (host === undefined) {
    const [one] = state.hosts;
    const reason = state.hosts
      .map(({ endpoint, last }) => `${endpoint}: ${last?.kind === 'down' ? last.reason : 'no answer'}`)
      .join('; ');
    return one === undefined
      ? { state, effects: [] }
      : { state, effects: [tell(one.endpoint, { kind: 'down', reason }, false)] };
  }
  if (host.last?.kind !== 'up') return { state, effects: [] };
  return {
    state: { ...state, used: host.endpoint },
    effects: [use(host.endpoint), tell(host.endpoint, host.last, false)],
  };
}

function offer(state: HostsState, { preferFirst, returnMs }: HostsRules, now: number): Next {
  const at = state.hosts.findIndex(({ endpoint }) => endpoint === state.used);
  const earlier = preferFirst ? state.hosts.slice(0, at).filter(({ last }) => last?.kind === 'up') : [];
  const lasting = earlier.find(({ since }) => now - since >= returnMs);
  if (lasting === undefined) {
    const withdrawn = withdraw(state);
    const due = Math.min(...earlier.map(({ since }) => since + returnMs));
    if (!Number.isFinite(due)) return withdrawn;
    return { ...withdrawn, effects: [...withdrawn.effects, { kind: 'look', at: due }] };
  }
  if (lasting.endpoint === state.offered) return { state, effects: [] };
  const { endpoint } = lasting;
  return { state: { ...state, offered: endpoint }, effects: [{ kind: 'offer', endpoint }] };
}

function withdraw(state: HostsState): Next {
  if (state.offered === null) return { state, effects: [] };
  return { state: { ...state, offered: null }, effects: [{ kind: 'offer', endpoint: null }] };
}

function use(endpoint: string): HostsEffect {
  return { kind: 'use', endpoint };
}

function tell(endpoint: string, event: HostEvent, moved: boolean): HostsEffect {
  return { kind: 'tell', endpoint, event, moved };
}

interface HostsEffects {
  readonly rules: () => HostsRules;
  /** Null: the list has fewer than two hosts. */
  readonly use: (endpoint: string | null) => void;
  readonly used: () => string | null;
  readonly tell: (endpoint: string, event: HostEvent, moved: boolean) => void;
  readonly offer: (endpoint: string | null) => void;
  readonly show: (state: HostsState) => void;
  readonly signal: AbortSignal;
}

export function hostsWatch(effects: HostsEffects) {
  let state = beginHosts([], null, steadyNow());
  const step = (event: HostsEvent): void => {
    const next = hostsNext(state, event, effects.rules());
    state = next.state;
    // Write the file before telling the judges, which may restart a consumer immediately.
    for (const one of next.effects) if (one.kind === 'use' && several()) effects.use(one.endpoint);
    effects.show(state);
    for (const one of next.effects) {
      if (one.kind === 'tell') effects.tell(one.endpoint, one.event, one.moved);
      if (one.kind === 'offer') effects.offer(one.endpoint);
      if (one.kind === 'look') pace.at(one.at);
    }
  };
  const several = (): boolean => state.hosts.length > 1;
  const pace = pacer(async () => step({ kind: 'time', now: steadyNow() }), effects.signal);
  return {
    watch(hosts: string) {
      const addresses = hosts === '' ? [] : splitHosts(hosts);
      state = beginHosts(addresses, effects.used(), steadyNow());
      if (!several() || state.used === null) effects.use(null);
      effects.show(state);
    },
    hear: (number: number, host: HostEvent) => step({ kind: 'told', number, host, now: steadyNow() }),
    take: () => step({ kind: 'taken', now: steadyNow() }),
    reconsider: () => pace.soon(),
    get place() {
      return Math.max(
        0,
        state.hosts.findIndex(({ endpoint }) => endpoint === state.used),
      );
    },
  };
}

export function hostsRules({ hosts }: AgentConfig): HostsRules {
  return {
    preferFirst: hosts.prefer === 'first',
    leaveMs: hosts.leaveAfterSeconds * 1000,
    returnMs: hosts.returnAfterSeconds * 1000,
  };
}

export function shownHosts({ hosts, used }: HostsState): readonly OneOfSeveral[] {
  if (hosts.length < 2) return [];
  return hosts.map(({ endpoint, last }) => ({ ...seenAt(endpoint, last), inUse: endpoint === used }));
}

/** Returns null, or the reason of a failure; programs then try the hosts in the order of the list. */
export function writeHostInUse(endpoint: string | null, file = hostInUseFile): string | null {
  try {
    if (endpoint === null) {
      rmSync(file, { force: true });
      return null;
    }
    const directory = openDirectory(path.dirname(file));
    try {
      replaceFile(directory, path.basename(file), `${endpoint}\n`, 0o644);
    } finally {
      directory.close();
    }
    return null;
  } catch (error) {
    return `cannot write ${file}: ${messageOf(error)}`;
  }
}
