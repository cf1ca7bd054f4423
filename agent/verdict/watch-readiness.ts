/** Asks the consumer over HTTP whether it is ready. */
import type { UnitFacts } from '../contracts/unit.js';
import { own } from '../lib/json.js';
import type { Profile } from '../profile/types.js';
import type { ConfirmEffects, ReadinessSeen } from './observation.js';

const askEveryMs = 200;
/** The pause if nothing else is pending, short so that it does not delay the verdict. */
const askSoonMs = 25;
const answerWithinMs = 2_000;

export function watchReadiness(
  profile: Profile,
  effects: Pick<ConfirmEffects, 'get' | 'clock'>,
  now: {
    readonly unit: () => UnitFacts;
    readonly address: () => string | null;
    readonly announced: () => boolean;
  },
  signal: AbortSignal,
) {
  const { readiness } = profile;
  if (readiness.kind === 'none') {
    const unasked = { kind: 'unasked', why: 'the profile requires none' } as const;
    return {
      seen: (): ReadinessSeen => unasked,
      answeredAt: () => null,
      forget() {},
      done: Promise.resolve(),
    };
  }
  const start = effects.clock.now();
  let seen: ReadinessSeen = { kind: 'unasked', why: 'not yet' };
  let answeredAt: number | null = null;

  const urlsNow = (): readonly string[] =>
    consumerUrls({ profile, unit: now.unit(), address: now.address() }, readiness.path);

  /** If the log names another address than the one that answered, another program has answered. */
  const disown = (): void => {
    if (seen.kind !== 'answered' || urlsNow().includes(seen.url)) return;
    answeredAt = null;
    seen = { kind: 'silent', url: seen.url, lastError: 'the log names another address' };
  };

  const ask = async (url: string): Promise<void> => {
    if (seen.kind === 'unasked') seen = { kind: 'silent', url, lastError: 'no answer yet' };
    const answer = await effects.get(url, answerWithinMs, signal);
    if (signal.aborted) return;
    if (answer.kind === 'failed') seen = { kind: 'silent', url, lastError: answer.message };
    else if (answer.status < 200 || answer.status > 299) {
      seen = { kind: 'silent', url, lastError: `HTTP status ${answer.status}` };
    } else {
      answeredAt = effects.clock.now();
      seen = { kind: 'answered', url, afterMs: answeredAt - start };
    }
  };

  const run = async (): Promise<void> => {
    // `now` reaches for watches that the caller is still putting together.
    await Promise.resolve();
    for (let turn = 0; !signal.aborted; turn += 1) {
      const unit = now.unit();
      if (unit.kind === 'loaded' && unit.sandbox.privateNetwork) {
        seen = { kind: 'unasked', why: 'the unit has its own network namespace' };
      } else {
        const urls = urlsNow();
        disown();
        if (answeredAt === null) await ask(urls[turn % urls.length] ?? '');
      }
      await effects.clock.sleep(now.announced() && answeredAt === null ? askSoonMs : askEveryMs, signal);
    }
  };

  return {
    seen() {
      disown();
      return seen;
    },
    answeredAt() {
      disown();
      return answeredAt;
    },
    forget() {
      answeredAt = null;
      if (seen.kind === 'answered')
        seen = { kind: 'silent', url: seen.url, lastError: 'no answer since the service started again' };
    },
    done: run(),
  };
}

interface Address {
  readonly scheme: 'http' | 'https';
  readonly host: string;
  readonly port: number;
}

const schemePorts: Readonly<Record<Address['scheme'], number>> = { http: 80, https: 443 };

/**
 * Reads an address as Ollama reads OLLAMA_HOST: `host`, `host:port`, `:port`,
 * `http://host[:port][/path]`, `[::1]:port`, a bare IPv6 address, in quotes or not.
 * Missing or invalid parts come from `fallback`; with a scheme, a missing port is that scheme's.
 */
function parseAddress(text: string, fallback: Address): Address {
  const trimmed = text
    .trim()
    .replace(/^["']+|["']+$/g, '')
    .trim();
  const [, schemeText, rest = ''] = /^(?:([A-Za-z]+):\/\/)?([^/]*)/.exec(trimmed) ?? [];
  const scheme = schemeText?.toLowerCase() === 'https' ? 'https' : 'http';
  const defaultPort = schemeText === undefined ? fallback.port : schemePorts[scheme];
  const split = /^(?:\[([^\]]*)\]|([^:]*))(?::([^:]*))?$/.exec(rest);
  // More than one colon and no brackets: an IPv6 address by itself.
  const host = split === null ? rest : (split[1] ?? split[2] ?? '');
  const port = split?.[3] === undefined || split[3] === '' ? defaultPort : Number(split[3]);
  return {
    scheme,
    // `:port` names no host: Go listens on all of them.
    host: host === '' ? (rest === '' ? fallback.host : '0.0.0.0') : host,
    port: Number.isInteger(port) && port > 0 && port <= 65_535 ? port : defaultPort,
  };
}

const noFallback: Address = { scheme: 'http', host: '127.0.0.1', port: 80 };

/** Where the consumer listens; none if the profile requires no readiness. `address`: the one that the log names. */
export function consumerUrls(
  { profile: { readiness }, unit, address }: Listening,
  path: string,
): readonly string[] {
  if (readiness.kind === 'none') return [];
  const { addressVariable, defaultAddress } = readiness;
  const environment = unit.kind === 'loaded' ? unit.environment : {};
  const configured = addressVariable === null ? undefined : own(environment, addressVariable);
  return readinessUrls(address ?? configured ?? defaultAddress, defaultAddress, path);
}

export interface Listening {
  readonly profile: Profile;
  readonly unit: UnitFacts;
  readonly address: string | null;
}

/** The likeliest first. For an address of all interfaces: loopback, for `[::]` in both families. */
export function readinessUrls(address: string, defaultAddress: string, path: string): readonly string[] {
  const { scheme, host, port } = parseAddress(address, parseAddress(defaultAddress, noFallback));
  const hosts = host === '::' ? ['127.0.0.1', '::1'] : [host === '0.0.0.0' ? '127.0.0.1' : host];
  return hosts.map((one) => `${scheme}://${one.includes(':') ? `[${one}]` : one}:${port}${path}`);
}
