/** The wizard's facts, questions and decisions: data, so that any kind of terminal can ask it. */
import type { HostFacts, LibraryCandidate } from '../../contracts/facts.js';
import { parseHosts } from '../../guest/vgpu-host/endpoint.js';
import type { Profile } from '../../profile/types.js';

export interface Consumer {
  readonly profile: Profile;
  /** Driver libraries here other than the shim. */
  readonly libraries: readonly Pick<LibraryCandidate, 'path' | 'vendor' | 'ownerOfFile'>[];
}

export interface HostSeen {
  readonly endpoint: string;
  /** Why it was tried: `VGPU_HOST`, `/etc/vgpu/guest.conf`, `the usual socket`, ... */
  readonly from: string;
  readonly answer: HostFacts['answer'];
}

export interface Found {
  readonly consumers: readonly Consumer[];
  readonly hosts: readonly HostSeen[];
  readonly installed: {
    readonly profiles: readonly string[];
    readonly endpoint: string;
    readonly service: boolean;
  } | null;
}

export interface Answers {
  readonly profile?: string;
  readonly host?: string;
  readonly service?: boolean;
  readonly typing?: true;
}

export interface Decision {
  readonly profile: Profile;
  readonly host: string;
  readonly service: boolean;
}

export interface Choice {
  readonly value: string;
  readonly label: string;
  readonly explanation: string;
}

export type Question =
  | {
      readonly kind: 'choice';
      readonly id: 'consumer' | 'host' | 'service' | 'go';
      readonly message: string;
      readonly choices: readonly Choice[];
      readonly preselected: string;
    }
  | {
      readonly kind: 'text';
      readonly id: 'address';
      readonly message: string;
      readonly problem: (text: string) => string | null;
    };

export type Answer = { readonly kind: 'answer'; readonly value: string } | { readonly kind: 'back' };

/** Throws `interrupted` when the person stops. `back`: there is an earlier question to go back to. */
export type Ask = (question: Question, options: { readonly back: boolean }) => Promise<Answer>;

export const otherAddress = 'other';
export const lookAgain = 'again';
export const stopHere = 'stop';
export const yes = 'yes';
const no = 'no';

function chosenConsumer({ consumers }: Found, { profile }: Answers): Consumer | null {
  const [only] = consumers;
  if (consumers.length === 1 && only !== undefined) return only;
  return consumers.find((one) => one.profile.name === profile) ?? null;
}

export function next(found: Found, answers: Answers): Question | Decision {
  const consumer = chosenConsumer(found, answers);
  const { host, service } = answers;
  if (consumer === null) return consumerQuestion(found);
  if (host === undefined) return answers.typing === true ? addressQuestion() : hostQuestion(found);
  if (service === undefined) return serviceQuestion(found);
  return { profile: consumer.profile, host, service };
}

/** Enter alone takes the installed one, else ollama, else the first. */
function consumerQuestion({ consumers, installed }: Found): Question {
  const names = consumers.map(({ profile }) => profile.name);
  const usual = [installed?.profiles[0], 'ollama'].find((name) => names.some((one) => one === name));
  return {
    kind: 'choice',
    id: 'consumer',
    message: 'Which service should use the GPU of the host?',
    choices: consumers.map(({ profile }) => ({
      value: profile.name,
      label: profile.name,
      explanation: profile.unit,
    })),
    preselected: usual ?? names[0] ?? '',
  };
}

const typeIt: Choice = {
  value: otherAddress,
  label: 'Another address',
  explanation: 'you type where vgpu-hostd listens',
};

function hostQuestion({ hosts, installed }: Found): Question {
  const answering = hosts.filter(({ answer }) => answer.kind === 'answers');
  const [first] = answering;
  if (first === undefined) {
    return {
      kind: 'choice',
      id: 'host',
      message: 'No host answers. What now?',
      choices: [
        { value: lookAgain, label: 'Look again', explanation: 'after vgpu-hostd was started on the host' },
        typeIt,
        { value: stopHere, label: 'Stop', explanation: 'nothing is changed' },
      ],
      preselected: lookAgain,
    };
  }
  if (answering.length === 1) {
    return {
      kind: 'choice',
      id: 'host',
      message: `Use the GPU of the host at ${first.endpoint}?`,
      choices: [{ value: first.endpoint, label: 'Yes', explanation: deviceOf(first) }, typeIt],
      preselected: first.endpoint,
    };
  }
  const usual = answering.find(({ endpoint }) => endpoint === installed?.endpoint) ?? first;
  return {
    kind: 'choice',
    id: 'host',
    message: "Which host's GPU?",
    choices: [
      ...answering.map((one) => ({
        value: one.endpoint,
        label: one.endpoint,
        explanation: deviceOf(one),
      })),
      typeIt,
    ],
    preselected: usual.endpoint,
  };
}

function deviceOf({ answer }: HostSeen): string {
  return answer.kind === 'answers' ? answer.device : 'does not answer';
}

function addressQuestion(): Question {
  return {
    kind: 'text',
    id: 'address',
    message:
      'Where does vgpu-hostd listen? (unix:/PATH, vsock:CID:PORT, tcp:ADDRESS:PORT; several with commas)',
    problem: (text) => {
      const parsed = parseHosts(text);
      return parsed.kind === 'bad' ? `${JSON.stringify(text)} is not an address: ${parsed.reason}` : null;
    },
  };
}

function serviceQuestion({ installed }: Found): Question {
  const there = installed?.service === true;
  return {
    kind: 'choice',
    id: 'service',
    message: there ? 'Keep the service vgpu-agent.service?' : 'Install the service vgpu-agent.service too?',
    choices: [
      {
        value: yes,
        label: 'Yes',
        explanation: 'it watches for drift, repairs it, and restarts the consumer when needed',
      },
      {
        value: no,
        label: 'No',
        explanation: there
          ? 'it is removed; nothing repairs drift then'
          : 'set up once; nothing repairs drift, and updates may undo it',
      },
    ],
    preselected: yes,
  };
}

export function goQuestion(unit: string): Question {
  return {
    kind: 'choice',
    id: 'go',
    message: `Change this, and restart ${unit}?`,
    choices: [
      { value: yes, label: 'Yes', explanation: 'all of the above; uninstall restores every byte' },
      { value: no, label: 'No', explanation: 'nothing is changed' },
    ],
    // Enter alone changes nothing, here as in install.
    preselected: no,
  };
}
