/** Checks of the consumer's log: can its start be read, and how long did discovery take. */
import type { JournaldLook, JournaldSetting } from '../../../guest/look/closer-look.js';
import { choiceOf } from '../../../profile/instance.js';
import { journalBypass, logNamespace } from '../../../systemd/unit-facts.js';
import {
  broken,
  byHand,
  type Check,
  type DoctorFacts,
  editUnit,
  type Finding,
  logLines,
  notApplicable,
  ok,
  type Remedy,
  warning,
} from '../finding.js';

export const output: Check = {
  id: 'output',
  title: 'the log of the service reaches the journal',
  looksAt:
    'StandardOutput=, StandardError=, LogLevelMax=, LogNamespace= and LogRateLimitBurst= of the unit, the settings of journald, and whether the journal could be read',
  explains: ['output-bypasses-journal', 'journal-unavailable', 'no-discovery-line', 'journal-cut'],
  examine(facts) {
    const { machine, observation, look } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const bypass = journalBypass(unit);
    if (bypass !== null) {
      const does = bypass.setting.startsWith('LogLevelMax')
        ? 'drops the lines of its log before they reach the journal'
        : 'does not write to the journal';
      return missed(facts, does, [bypass.setting], editUnit(facts, `under [Service] ${bypass.repair}`));
    }
    if (observation.journalError !== null) {
      return broken({
        cause: 'The journal cannot be read, so the log of the service is not known.',
        evidence: [observation.journalError],
        remedy: byHand('see why', 'systemctl status systemd-journald'),
      });
    }
    const namespace = logNamespace(unit);
    const kept = notKept(look.journald);
    if (kept !== null) {
      const does = 'writes to a journal that does not keep its lines';
      const remedy = editJournald(kept, `set ${kept.repair}`, namespace);
      return missed(facts, does, [`${kept.setting} in ${kept.file}`], remedy);
    }
    const limited = rateLimit(facts);
    if (limited !== null) return limited;
    if (facts.verdict.reason === 'journal-cut') {
      return warning({
        cause: `The journal no longer has the beginning of this start of ${unit.name}.`,
        evidence: [`${observation.log.entries} entries of this start are left`],
        remedy: byHand(
          'give the journal more room (SystemMaxUse=, SystemMaxFileSize= and MaxRetentionSec= in journald.conf)',
          'journalctl --disk-usage; systemd-analyze cat-config systemd/journald.conf',
        ),
      });
    }
    const where = namespace === '' ? '' : `, in the journal's namespace ${namespace}`;
    return ok(`${observation.log.entries} entries of this start${where}`);
  },
};

/** `does`: of the unit, a clause. */
function missed(
  { observation, verdict, profile }: DoctorFacts,
  does: string,
  evidence: readonly string[],
  remedy: Remedy,
): Finding {
  const { logFile } = observation;
  if (logFile === null && verdict.mode === 'undetermined') {
    return broken({ cause: `It is not known where it runs: ${profile.unit} ${does}.`, evidence, remedy });
  }
  return warning({
    cause: `${profile.unit} ${does}; lines of this start may be missed.`,
    evidence: logFile === null ? evidence : [...evidence, `read instead: ${logFile}`],
    remedy,
  });
}

/** Levels below that of a program's output, by name and by number (journald.conf(5)). */
const belowInfo = /^(?:[0-5]|emerg|alert|crit|err|warning|notice)$/;

function notKept({
  Storage: storage,
  MaxLevelStore: level,
}: JournaldLook): { readonly setting: string; readonly repair: string; readonly file: string } | null {
  if (storage?.value === 'none')
    return { setting: 'Storage=none', repair: 'Storage=auto', file: storage.file };
  if (level === undefined || !belowInfo.test(level.value)) return null;
  return { setting: `MaxLevelStore=${level.value}`, repair: 'MaxLevelStore=debug', file: level.file };
}

function editJournald({ file }: { readonly file: string }, text: string, namespace: string): Remedy {
  const service = `systemd-journald${namespace === '' ? '' : `@${namespace}`}`;
  return byHand(
    `in ${file} ${text}, then restart journald and the service`,
    `sudoedit ${file} && sudo systemctl restart ${service}`,
  );
}

/** journald's own: 10,000 lines in 30 s. */
const usualBurst = 10_000;
const usualIntervalMs = 30_000;

/** A limit that is lower than journald's own may drop the lines of a start or of a load. */
function rateLimit(facts: DoctorFacts): Finding | null {
  const { machine, look, verdict, profile } = facts;
  const { RateLimitBurst: burst, RateLimitIntervalSec: interval } = look.journald;
  const own = machine.unit.kind === 'loaded' ? machine.unit.logging : undefined;
  const lines = own?.burst ?? numberOf(burst) ?? usualBurst;
  const withinMs = own?.intervalMs ?? spanMs(interval) ?? usualIntervalMs;
  if (lines === 0 || withinMs === 0 || lines / withinMs >= usualBurst / usualIntervalMs) return null;
  const inUnit = (own?.burst ?? null) !== null || (own?.intervalMs ?? null) !== null;
  const settings = [
    own?.burst ? `LogRateLimitBurst=${own.burst}` : burst && `RateLimitBurst=${burst.value}`,
    own?.intervalMs
      ? `LogRateLimitIntervalSec=${own.intervalMs / 1000}`
      : interval && `RateLimitIntervalSec=${interval.value}`,
  ].filter((setting) => setting !== undefined);
  const file = burst?.file ?? interval?.file ?? '/etc/systemd/journald.conf';
  const trouble = {
    cause: `The journal keeps ${lines} lines of ${profile.unit} in ${withinMs / 1000} s and drops the others; lines about the GPU may be among these.`,
    evidence: [`${settings.join(' and ')} in ${inUnit ? profile.unit : file}`],
    remedy: inUnit
      ? editUnit(facts, 'take the limit out of [Service]')
      : editJournald({ file }, 'take the limit out', ''),
  };
  return verdict.reason === 'no-discovery-line' ? broken(trouble) : warning(trouble);
}

function numberOf(setting: JournaldSetting | undefined): number | null {
  return setting === undefined || !/^\d{1,9}$/.test(setting.value) ? null : Number(setting.value);
}

const unitsMs: Readonly<Record<string, number>> = {
  '': 1000,
  ms: 1,
  s: 1000,
  sec: 1000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  hr: 3_600_000,
  d: 86_400_000,
};

/** A time span of systemd.time(7) in its usual forms; null: another form. */
function spanMs(setting: JournaldSetting | undefined): number | null {
  const parts = setting?.value.match(/^(?:\d+(?:\.\d+)? ?[a-z]* ?)+$/) ? setting.value : null;
  if (parts === null) return null;
  let sum = 0;
  for (const [, number = '', unit = ''] of parts.matchAll(/(\d+(?:\.\d+)?) ?([a-z]*)/g)) {
    const factor = unitsMs[unit];
    if (factor === undefined) return null;
    sum += Number(number) * factor;
  }
  return sum;
}

export const discoveryTime: Check = {
  id: 'discovery-time',
  title: 'the service had time to find the GPU',
  looksAt: "time-outs of the service's own GPU discovery in its log of this start",
  explains: ['discovery-timeout', 'host-slow'],
  examine({ machine, observation, verdict }) {
    const { log, probe } = observation;
    if (log.mode === 'gpu' || (log.reason ?? log.hint) !== 'discovery-timeout') return ok();
    const { answer } = machine.host;
    const now = [
      ...(answer.kind === 'answers' ? [`now the host answers after ${answer.milliseconds} ms`] : []),
      ...(probe?.kind === 'answered' && probe.report.ok
        ? [`now vgpu-probe finds the GPU after ${probe.milliseconds} ms, as the service would`]
        : []),
    ];
    return broken({
      cause: `${verdict.profile} stopped looking for GPUs before one answered. It looks only once, when it starts.`,
      evidence: [...logLines(observation), ...now],
      remedy: byHand(
        now.length > 0
          ? 'the host answers in time now: start it again'
          : 'once the host answers, start it again',
        `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf({ name: verdict.profile, unit: verdict.unit })}`,
      ),
    });
  },
};
