/** Which lines of a log are of one start, and what is kept of the lines of one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DeviceRule, LogGrammar, Profile, ReasonRule } from '../../../agent/profile/types.js';
import type { LogEntry } from '../../../agent/verdict/log/entry.js';
import type { LogFindings } from '../../../agent/verdict/log/findings.js';
import { logJudges } from '../../../agent/verdict/log/judge.js';
import { judgeLog, llamaServer, plainEntry } from './support.js';

const fromGroups: DeviceRule = {
  versions: '*',
  message: '^GPU (?<name>\\S+)(?: (?<compute>[\\d.]+))?(?: at (?<pci>\\S+))?$',
  fields: { library: [], compute: ['compute'], name: ['name'], pci: ['pci'] },
  fixed: { library: 'cuda', compute: '9.0' },
  gpu: ['cuda'],
  cpu: [],
  degradedCompute: [],
};
const onCpu: DeviceRule = {
  ...fromGroups,
  message: '^CPU',
  fields: { library: [], compute: [], name: [], pci: [] },
  fixed: { library: 'cpu' },
  gpu: [],
  cpu: ['cpu'],
};
const placed: DeviceRule = {
  ...fromGroups,
  message: '^place (?<name>\\S+) (?<pci>\\S+)$',
  fields: { ...fromGroups.fields, compute: [] },
  fixed: { library: 'cuda' },
};
const rule = (message: string, weight: ReasonRule['weight'], reason: ReasonRule['reason']): ReasonRule => ({
  ...{ versions: '*', fields: {} },
  ...{ message, weight, reason },
});

/** A made-up consumer, whose lines say what they are. */
const grammar: LogGrammar = {
  ...llamaServer.log,
  format: 'text',
  starts: [
    { message: '^starts', first: true },
    { message: '^config', first: false },
  ],
  version: null,
  address: null,
  devices: [fromGroups, onCpu, placed],
  reasons: [
    rule('^why', 'reason', 'no-device'),
    rule('^why', 'hint', 'driver-too-old'),
    rule('^fell back', 'contradicts', 'context-create-failed'),
    rule('^too old', 'hint', 'unsupported-log-version'),
    rule('^old$', 'reason', 'unsupported-log-version'),
    rule('^load failed', 'hint', 'preload-ignored'),
  ],
  finished: ['^over', '^ready'],
  loads: [
    { message: '^load failed', says: 'failed' },
    { message: '^on the CPU', says: 'cpu' },
    { message: '^on the GPU', says: 'gpu' },
  ],
};
const alone: Profile = { ...llamaServer, processes: { main: ['x'], children: [] }, log: grammar };
const withChildren: Profile = { ...alone, processes: { main: ['x'], children: ['y'] } };

const judged = (...lines: readonly string[]): LogFindings => judgeLog(alone, lines);
const texts = ({ evidence }: LogFindings): readonly string[] => evidence.map(({ text }) => text);

/** How the judge sees lines with what is known of where they are from. */
function seen(profile: Profile, ...entries: readonly Partial<LogEntry>[]): readonly [string, number] {
  const judge = logJudges(profile)();
  for (const entry of entries) judge.push({ ...plainEntry('', 'x'), ...entry });
  const { mode, starts } = judge.findings();
  return [mode, starts];
}
const gpu = 'GPU H100';

test('an announcement is of its own start: another one, told apart by systemd, has to say it again', () => {
  const [one, other] = ['a'.repeat(32), 'b'.repeat(32)];
  const device = (invocationId: string | null) => ({ text: gpu, invocationId });
  const over = (invocationId: string | null) => ({ text: 'over', invocationId });
  assert.deepEqual(seen(alone, device(one), over(one)), ['gpu', 0]);
  assert.deepEqual(seen(alone, device(one), over(other)), ['undetermined', 1]);
  assert.deepEqual(seen(alone, device(one), over(null)), ['gpu', 0], 'what is not known is no other one');
  assert.deepEqual(seen(alone, device(null), over(one)), ['gpu', 0]);
  assert.deepEqual(seen(alone, device(null), over(one), { text: 'ready', invocationId: other }), [
    'undetermined',
    1,
  ]);
});

test('another process is another start, unless the consumer has children', () => {
  const device = (pid: number | null) => ({ text: gpu, pid });
  const over = (pid: number | null) => ({ text: 'over', pid });
  assert.deepEqual(seen(alone, device(7), over(7)), ['gpu', 0]);
  assert.deepEqual(seen(alone, device(7), over(8)), ['undetermined', 1]);
  assert.deepEqual(seen(alone, device(7), over(null)), ['gpu', 0]);
  assert.deepEqual(seen(alone, device(null), over(7)), ['gpu', 0]);
  assert.deepEqual(seen(alone, device(null), over(7), { text: 'ready', pid: 8 }), ['undetermined', 1]);
  assert.deepEqual(seen(withChildren, device(7), over(8)), ['gpu', 0]);
});

test("after a boot, or systemd's message that the unit ended, the next relevant line begins a start", () => {
  const ends: readonly Partial<LogEntry>[] = [
    { text: '-- Reboot --', speaker: 'boundary' },
    { text: 'x.service: Main process exited, code=exited', speaker: 'manager' },
    { text: 'Stopped x.service.', speaker: 'manager' },
  ];
  for (const end of ends) {
    assert.deepEqual(seen(alone, { text: gpu }, end), ['gpu', 0]);
    assert.deepEqual(seen(alone, { text: gpu }, end, { text: 'nothing' }), ['gpu', 0]);
    assert.deepEqual(seen(alone, { text: gpu }, end, { text: 'over' }), ['undetermined', 1]);
    assert.deepEqual(seen(alone, { text: gpu }, end, { text: gpu }, { text: 'over' }), ['gpu', 1]);
  }
  assert.deepEqual(seen(alone, { text: gpu }, { text: 'Reloaded.', speaker: 'manager' }, { text: 'over' }), [
    'gpu',
    0,
  ]);
});

test('a line that begins a start does so after what belongs to its end', () => {
  assert.deepEqual(texts(judged(gpu, 'over', 'config')), [], 'discovery was over');
  assert.deepEqual(texts(judged('config', gpu, 'config')), [], 'it is there twice');
  assert.deepEqual(texts(judged('starts', 'config', gpu)), [gpu], 'two marks of one start');
  assert.deepEqual(texts(judged(gpu, 'config')), [gpu], 'not the first line of one');
  assert.deepEqual(texts(judged(gpu, 'starts')), [], 'its first line');
  const judge = logJudges(alone)();
  judge.push({ ...plainEntry(gpu, 'x'), truncated: true });
  judge.push(plainEntry('starts', 'x'));
  assert.deepEqual(texts(judge.findings()), [], 'also after a device that was not counted');
});

test('the same end of discovery twice is of two starts; two words of one end are not', () => {
  assert.deepEqual(
    [judged(gpu, 'over', 'ready').mode, judged(gpu, 'over', 'over').mode],
    ['gpu', 'undetermined'],
  );
  assert.equal(judged(gpu, 'over', 'over').state, 'decided');
});

test('starts and entries are counted', () => {
  const { starts, entries } = judged('starts', gpu, 'hello', 'starts', gpu);
  assert.deepEqual([starts, entries], [2, 5]);
  assert.equal(judged(gpu).starts, 0, 'a log that begins in the middle of one');
});

test('a device that is announced too late is reported, with the reason', () => {
  assert.deepEqual(texts(judged('CPU', gpu)), ['CPU', `not counted, the CPU was announced already: ${gpu}`]);
  assert.deepEqual(texts(judged('over', gpu)), [`not counted, discovery was over already: ${gpu}`]);
  assert.deepEqual(texts(judged('CPU one', 'CPU two')), ['CPU one', 'CPU two']);
  assert.deepEqual(texts(judged(gpu, 'CPU')), ['CPU'], 'a device before the CPU is of a former start');
});

test('the newest twelve of the lines that do not count are kept', () => {
  const late = Array.from({ length: 15 }, (_, index) => `GPU n${index}`);
  const cut = (kept: readonly string[]): readonly string[] => kept.map((text) => text.slice(-7).trim());
  assert.deepEqual(cut(texts(judged('over', ...late))), cut(late.slice(3)));
  const judge = logJudges(alone)();
  for (const text of late) judge.push({ ...plainEntry(text, 'x'), truncated: true });
  assert.deepEqual(cut(texts(judge.findings())), cut(late.slice(3)));
});

test('64 devices and twelve reasons are kept', () => {
  const many = (count: number, name: string) =>
    Array.from({ length: count }, (_, index) => `${name}${index}`);
  assert.equal(judged(...many(70, 'GPU n')).devices.length, 64);
  assert.deepEqual(texts(judged(...many(15, 'why '))), many(12, 'why '));
});

test('a line that gives two reasons is quoted once; the same words elsewhere are another line', () => {
  assert.deepEqual(texts(judged('why')), ['why']);
  assert.deepEqual(texts(judged('why', 'why')), ['why', 'why']);
  const judge = logJudges(alone)();
  for (const text of ['why one', 'why two']) judge.push(plainEntry(text, 'the same place'));
  assert.deepEqual(texts(judge.findings()), ['why one', 'why two']);
});

test('a quote has 400 characters, and no space around it', () => {
  const long = `why ${'x'.repeat(396)}`;
  assert.deepEqual(texts(judged(long)), [long]);
  assert.deepEqual(texts(judged(`${long}y`)), [`${long}...`]);
  assert.deepEqual(texts(judged('why  ')), ['why']);
});

test('a record in a log that has none is a line like others', () => {
  assert.equal(judged('x msg="over"').state, 'undecided');
  assert.equal(judged('over msg="x"').state, 'decided');
});

test('two kinds of lines of the same devices are put together, in whatever order', () => {
  const whole = { library: 'cuda', compute: '9.0', name: 'H100', pci: '01:00.0' };
  const second = { ...whole, compute: '8.0', name: 'A100', pci: null };
  const [one, two, place] = ['GPU H100 9.0', 'GPU A100 8.0', 'place H100 01:00.0'];
  assert.deepEqual(judged(one, place).devices, [whole]);
  assert.deepEqual(judged(place, one).devices, [whole]);
  assert.deepEqual(judged(one, two, place).devices, [whole, second]);
  assert.deepEqual(judged(place, one, two).devices, [whole, second]);
  assert.deepEqual(judged(two, place).devices, [second], 'one of another name is another device');
});

test('the first of several lists of the same length is the base', () => {
  const { devices } = judged('GPU H100 9.0', 'place A100 02:00.0');
  assert.deepEqual(
    devices.map(({ name }) => name),
    ['H100'],
  );
});

test('one simulated device makes it a simulated GPU', () => {
  const simulated: Profile = {
    ...alone,
    log: { ...grammar, devices: [{ ...fromGroups, message: '^GPU (?<name>.+)$' }] },
  };
  assert.equal(judgeLog(simulated, ['GPU A', 'GPU B (simulated)']).simulated, true);
  assert.equal(judgeLog(simulated, ['GPU A', 'GPU B']).simulated, false);
});

test('a line that outweighs an announcement is the reason; other lines are reported and do not count', () => {
  const weights = (findings: LogFindings) => findings.evidence.map(({ weight }) => weight);
  const contradicted = judged(gpu, 'fell back');
  assert.deepEqual([contradicted.mode, contradicted.reason], ['degraded', 'context-create-failed']);
  assert.deepEqual(weights(contradicted), ['for', 'against']);
  const explained = judged(gpu, 'why');
  assert.deepEqual([explained.mode, explained.reason], ['gpu', null]);
  assert.deepEqual(weights(explained), ['for', 'neutral']);
  assert.equal(judged('why', 'fell back').hint, 'driver-too-old');
  assert.equal(judged('CPU', 'why', 'fell back').reason, 'context-create-failed');
});

test('a log of a version without announcements is reported, by a reason or a hint', () => {
  for (const line of ['old', 'too old'])
    assert.deepEqual([judged(line).mode, judged(line).reason], ['undetermined', 'unsupported-log-version']);
  assert.equal(judged('why').reason, 'no-discovery-line');
});

test('a line of a load that is already quoted as a reason is not quoted twice', () => {
  assert.deepEqual(texts(judged(gpu, 'load failed')), [gpu, 'load failed']);
  assert.deepEqual(texts(judged(gpu, 'load failed', 'on the CPU')), [gpu, 'load failed', 'on the CPU']);
  const weights = judged(gpu, 'on the GPU').evidence.map(({ weight }) => weight);
  assert.deepEqual(weights, ['for', 'for']);
});
