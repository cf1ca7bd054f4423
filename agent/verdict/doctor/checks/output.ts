/** Checks of the consumer's log: can its start be read, and how long did discovery take. */
import type { JournaldLook } from '../../../guest/look/closer-look.js';
import { choiceOf } from '../../../profile/instance.js';
import { journalBypass, logNamespace } from '../../../systemd/unit-facts.js';
import { journalctl } from '../../advice.js';
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
      const remedy = editJournald([kept.file], `set ${kept.repair}`, namespace);
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
          `${journalctl(unit)} --disk-usage; systemd-analyze cat-config systemd/${journaldOf(namespace)}.conf`,
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

function editJournald(files: readonly string[], text: string, namespace: string): Remedy {
  return byHand(
    `in ${files.join(' and ')} ${text}, then restart journald and the service`,
    `sudoedit ${files.join(' ')} && sudo systemctl restart systemd-${journaldOf(namespace)}`,
  );
}

/** The name of a namespace's service, after "systemd-", and of its configuration, before ".conf". */
function journaldOf(namespace: string): string {
  return namespace === '' ? 'journald' : `journald@${namespace}`;
}

/** journald's own: 10,000 lines in 30 s. */
const usualLines = 10_000;
const usualSeconds = 30;

/**
 * A limit that is lower than journald's own may drop the lines of a start or of a load. journald multiplies the lines by
 * up to 6, by the free space of the disk. Null if there is no such limit, or if a setting is not understood.
 */
function rateLimit(facts: DoctorFacts): Finding | null {
  const { machine, look, verdict, profile } = facts;
  const { unit } = machine;
  const own = unit.kind === 'loaded' ? unit.logging : undefined;
  const ownSeconds = own?.intervalMs == null ? null : own.intervalMs / 1000;
  const burst = half('RateLimitBurst', own?.burst, linesOf);
  const interval = half('RateLimitIntervalSec', ownSeconds, secondsOf);
  const lines = burst === null ? usualLines : burst.value;
  const seconds = interval === null ? usualSeconds : interval.value;
  if (!lines || !seconds || lines / seconds >= usualLines / usualSeconds) return null;
  const halves = [burst, interval].filter((one) => one !== null);
  const files = new Set(halves.map(({ file }) => file));
  const trouble = {
    cause: `The journal keeps ${lines} lines of ${profile.unit} in ${seconds} s and may drop the others; lines about the GPU may be among these.`,
    evidence: halves.map(({ setting, file }) => `${setting} in ${file}`),
    remedy: files.has(profile.unit)
      ? editUnit(facts, 'remove the limit from [Service]')
      : editJournald([...files], 'remove the limit', logNamespace(unit)),
  };
  return verdict.reason === 'no-discovery-line' ? broken(trouble) : warning(trouble);

  function half(
    key: 'RateLimitBurst' | 'RateLimitIntervalSec',
    inUnit: number | null | undefined,
    parse: (text: string) => number | null,
  ): { readonly value: number | null; readonly setting: string; readonly file: string } | null {
    if (inUnit != null) return { value: inUnit, setting: `Log${key}=${inUnit}`, file: profile.unit };
    const found = look.journald[key];
    if (found === undefined) return null;
    return { value: parse(found.value), setting: `${key}=${found.value}`, file: found.file };
  }
}

function linesOf(text: string): number | null {
  return /^\d{1,9}$/.test(text) ? Number(text) : null;
}

/** Months and years are missing: nobody limits lines by them. */
const units = [
  [/^(?:us|usec|µs|μs)$/, 1e-6],
  [/^(?:ms|msec)$/, 1e-3],
  [/^(?:|s|sec|seconds?)$/, 1],
  [/^(?:m|min|minutes?)$/, 60],
  [/^(?:h|hr|hours?)$/, 3600],
  [/^(?:d|days?)$/, 86_400],
  [/^(?:w|weeks?)$/, 604_800],
] as const;

/** A time span of systemd.time(7); null: another form. */
function secondsOf(text: string): number | null {
  let sum = 0;
  const rest = text.replace(/(\d+(?:\.\d+)?)\s*([a-zµμ]*)/g, (_, number: string, name: string) => {
    const unit = units.find(([names]) => names.test(name));
    sum += unit === undefined ? Number.NaN : Number(number) * unit[1];
    return '';
  });
  return rest.trim() === '' && !Number.isNaN(sum) ? sum : null;
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
