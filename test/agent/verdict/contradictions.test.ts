// All that a person reads of one state: status, verdict and doctor must not contradict each other.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { doctorText } from '../../../agent/cli/output/doctor-text.js';
import { statusText } from '../../../agent/cli/output/status-text.js';
import type { HostFacts } from '../../../agent/contracts/facts.js';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { statusView } from '../../../agent/install/pipeline/status-view.js';
import { styleFor } from '../../../agent/lib/text.js';
import { lostVerdict, staleVerdict } from '../../../agent/service/judge/shown.js';
import { diagnose } from '../../../agent/verdict/doctor/diagnose.js';
import { type Changes, doctorFacts } from './doctor/support.js';
import { answered, findingsOf, processFacts, unit } from './support.js';

const plain = styleFor({ isTty: false, columns: 200, wanted: false, env: {} });
const gone: HostFacts = {
  endpoint: 'unix:/nope',
  from: 'guest.conf',
  answer: { kind: 'unreachable', message: 'unix:/nope: No such file or directory', word: null },
};
const there: HostFacts['answer'] = { kind: 'answers', device: 'H100', simulated: false, milliseconds: 203 };
const notRun = { kind: 'not-run', message: 'no such file' } as const;
const same = (verdict: Verdict): Verdict => verdict;

/** Each with what becomes of its verdict in the service. */
const states: readonly (readonly [what: string, Changes, (verdict: Verdict) => Verdict])[] = [
  ['it works', { machine: { unit: unit() } }, same],
  [
    'the store is gone under a process that preloaded the library',
    { machine: { unit: unit() }, observation: { probe: notRun, host: there } },
    same,
  ],
  [
    'the same on the CPU',
    {
      machine: { unit: unit() },
      observation: { probe: notRun, log: findingsOf('0.32.9_cpu-only_nobackends_debug0') },
    },
    same,
  ],
  [
    'no process had it',
    { observation: { probe: notRun, processes: [{ role: 'main', facts: processFacts({ libraries: [] }) }] } },
    same,
  ],
  [
    'the address of the host was changed to one where nothing answers',
    { machine: { unit: unit(), host: gone }, observation: { host: there, probe: answered() } },
    (verdict) => lostVerdict(verdict, 'unix:/nope: No such file or directory'),
  ],
  ['the host came back', { machine: { unit: unit() } }, staleVerdict],
];

/** Of each pair one alone may be said. */
const pairs: readonly (readonly [RegExp, RegExp])[] = [
  [/host does not answer|does not answer: unix/, /answers in \d+ ms/],
  [
    /has not loaded the libcuda of vgpu-agent|no process had it loaded/,
    /has the libcuda of vgpu-agent loaded/,
  ],
  [/runs on the GPU/, /runs on the CPU/],
  [/has no libcuda loaded/, /has the libcuda of vgpu-agent loaded/],
];

for (const [what, changes, then] of states) {
  test(`nothing is contradicted when ${what}`, () => {
    const facts = doctorFacts(changes);
    const verdict = then(facts.verdict);
    const told = { ...facts, verdict };
    const view = statusView(facts.profile, facts.machine, facts.plan, verdict);
    const text = `${statusText(view, plain)}\n${doctorText(diagnose(told), plain)}`.replaceAll(/\s+/g, ' ');
    for (const [one, other] of pairs)
      assert.ok(!(one.test(text) && other.test(text)), `${one} and ${other}: ${text}`);
    assert.doesNotMatch(text, /\(from flag\)/);
  });
}
