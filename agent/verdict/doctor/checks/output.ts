/** Checks of the consumer's log: can its start be read, and how long did discovery take. */
import type { JournaldLook } from '../../../guest/look/closer-look.js';
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
    'StandardOutput=, StandardError=, LogLevelMax= and LogNamespace= of the unit, the settings of journald, and whether the journal could be read',
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
