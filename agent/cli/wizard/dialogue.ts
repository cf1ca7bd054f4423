/** The dialogue: question by question, and back; ends when all is known that an install needs. */
import type { HostFacts } from '../../contracts/facts.js';
import { VgpuError } from '../../lib/errors.js';
import { hanging, oneLine, type Style, shellWord, vendorText } from '../../lib/text.js';
import {
  type Answers,
  type Ask,
  type Consumer,
  type Decision,
  type Found,
  type HostSeen,
  lookAgain,
  next,
  otherAddress,
  type Question,
  stopHere,
  yes,
} from './questions.js';

export interface DialogueEffects {
  readonly ask: Ask;
  readonly askHost: (endpoint: string) => Promise<HostFacts['answer']>;
  readonly lookAgain: () => Promise<readonly HostSeen[]>;
  readonly say: (text: string) => void;
}

interface Standing {
  readonly found: Found;
  readonly answers: Answers;
  readonly past: readonly Standing[];
}

export function beginning(found: Found): Standing {
  return { found, answers: {}, past: [] };
}

export function back(standing: Standing): Standing {
  return standing.past.at(-1) ?? standing;
}

/** Throws `interrupted` when the person stops, `refused` when no host is left to go on with. */
export async function decide(
  start: Standing,
  effects: DialogueEffects,
): Promise<{ readonly decision: Decision; readonly standing: Standing }> {
  let standing = start;
  for (;;) {
    const question = next(standing.found, standing.answers);
    if (!('kind' in question)) return { decision: question, standing };
    const answer = await effects.ask(question, { back: standing.past.length > 0 });
    standing =
      answer.kind === 'back' ? back(standing) : await taken(standing, question, answer.value, effects);
  }
}

async function taken(
  standing: Standing,
  question: Question,
  value: string,
  effects: DialogueEffects,
): Promise<Standing> {
  const { answers, found } = standing;
  const going = (more: Answers): Standing => ({
    found,
    answers: { ...answers, ...more },
    past: [...standing.past, standing],
  });
  switch (question.id) {
    case 'consumer':
      return going({ profile: value });
    case 'service':
      return going({ service: value === yes });
    case 'host':
      if (value === otherAddress) return going({ typing: true });
      if (value === stopHere) throw noHost(found.hosts);
      // Another look is no step that one could go back from.
      if (value === lookAgain) return { ...standing, found: { ...found, hosts: await effects.lookAgain() } };
      return going({ host: value });
    case 'address': {
      const answer = await effects.askHost(value);
      const seen: HostSeen = { endpoint: value, from: 'typed', answer };
      effects.say(hostLine(seen));
      // Asked again: an address without an answer is most often a typing error.
      return answer.kind === 'answers' ? going({ host: value }) : standing;
    }
    case 'go':
      throw new VgpuError('the wizard does not have this question', { kind: 'internal', operation: 'ask' });
  }
}

function noHost(hosts: readonly HostSeen[]): VgpuError {
  return new VgpuError(`no host answers:\n${hosts.map((one) => `  ${hostLine(one)}`).join('\n')}`, {
    kind: 'refused',
    operation: 'find the host',
    remedy:
      'start vgpu-hostd on the host, then sudo vgpu-agent setup; to install before it runs: ' +
      'sudo vgpu-agent install --host ADDRESS --allow-unreachable-host',
  });
}

export function foundText(found: Found, style: Style): string {
  const { consumers, hosts, installed } = found;
  const libraries = [...new Set(consumers.flatMap((one) => one.libraries.map(libraryLine)))];
  const there =
    installed === null
      ? 'nothing yet'
      : `for ${installed.profiles.join(' and ')}, host ${installed.endpoint}`;
  const items: readonly (readonly [label: string, lines: readonly string[]])[] = [
    ['services', consumers.map(({ profile }) => `${profile.unit}: ${profile.description}`)],
    ['libraries', libraries.length === 0 ? ['no other library in the way'] : libraries],
    ['host', hosts.map(hostLine)],
    ['installed', [there]],
  ];
  const lines = items.flatMap(([label, texts]) =>
    texts.map((text, index) => hanging(`  ${(index === 0 ? label : '').padEnd(10)}`, text, style)),
  );
  return [style.bold('This machine'), ...lines].join('\n');
}

function libraryLine({ path, vendor, ownerOfFile }: Consumer['libraries'][number]): string {
  return `${path} is ${vendorText(vendor)}${ownerOfFile === null ? '' : ` (package ${ownerOfFile})`}`;
}

function hostLine({ endpoint, answer }: HostSeen): string {
  switch (answer.kind) {
    case 'answers':
      return `${endpoint} answers: ${answer.device}`;
    case 'unreachable':
      return `${endpoint} does not answer: ${oneLine(answer.message.replace(`cannot connect to ${endpoint}: `, ''))}`;
    case 'unasked':
      return `${endpoint} was not asked`;
  }
}

export function commandLine({ profile, host, service }: Decision): string {
  const flags = [
    '--profile',
    profile.name,
    '--host',
    shellWord(host),
    service ? '--service' : '--no-service',
  ];
  return `sudo vgpu-agent install ${flags.join(' ')} --yes`;
}
