/** The dialogue without a terminal: what is asked, in which order, and what the answers lead to. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  back,
  beginning,
  commandLine,
  type DialogueEffects,
  decide,
} from '../../../../agent/cli/wizard/dialogue.js';
import { hostCandidates } from '../../../../agent/cli/wizard/find-out.js';
import type { Answer, Consumer, Found, HostSeen } from '../../../../agent/cli/wizard/questions.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import { loadProfile } from '../../../../agent/profile/load.js';

const ollama: Consumer = { profile: loadProfile('ollama'), libraries: [] };
const llama: Consumer = { profile: loadProfile('llama-server'), libraries: [] };

function host(endpoint: string, answers = true): HostSeen {
  return {
    endpoint,
    from: 'a test',
    answer: answers
      ? { kind: 'answers', device: 'NVIDIA X', simulated: false, milliseconds: 1 }
      : { kind: 'unreachable', message: 'Connection refused', word: null },
  };
}

const found = (more: Partial<Found> = {}): Found => ({
  consumers: [ollama],
  hosts: [host('unix:/a')],
  installed: null,
  ...more,
});

/** Answers these in turn; `back` goes back. Notes the questions. */
function person(...answers: readonly string[]): DialogueEffects & { readonly asked: string[] } {
  const left = [...answers];
  const asked: string[] = [];
  return {
    asked,
    ask: async (question, options): Promise<Answer> => {
      asked.push(question.id);
      const next = left.shift();
      assert.ok(next !== undefined, `nobody expected ${question.id}`);
      if (next !== 'back') return { kind: 'answer', value: next };
      assert.ok(options.back, `${question.id} has no way back`);
      return { kind: 'back' };
    },
    askHost: async (endpoint) => host(endpoint, endpoint === 'unix:/typed').answer,
    lookAgain: async () => [host('unix:/late')],
    say: () => {},
  };
}

describe('questions', () => {
  for (const [what, here, answers, questions, decided] of [
    [
      'one service and one host: a yes',
      found(),
      ['unix:/a', 'yes'],
      ['host', 'service'],
      ['ollama', 'unix:/a', true],
    ],
    [
      'two services: which',
      found({ consumers: [llama, ollama] }),
      ['llama-server', 'unix:/a', 'no'],
      ['consumer', 'host', 'service'],
      ['llama-server', 'unix:/a', false],
    ],
    [
      'two hosts: which',
      found({ hosts: [host('unix:/a'), host('unix:/dead', false), host('unix:/b')] }),
      ['unix:/b', 'yes'],
      ['host', 'service'],
      ['ollama', 'unix:/b', true],
    ],
    [
      'an address is asked for until a host answers there',
      found(),
      ['other', 'unix:/wrong', 'unix:/typed', 'yes'],
      ['host', 'address', 'address', 'service'],
      ['ollama', 'unix:/typed', true],
    ],
    [
      'no host answers: another look',
      found({ hosts: [host('unix:/late', false)] }),
      ['again', 'unix:/late', 'yes'],
      ['host', 'host', 'service'],
      ['ollama', 'unix:/late', true],
    ],
    [
      'back and forth',
      found({ consumers: [ollama, llama] }),
      ['ollama', 'other', 'back', 'back', 'llama-server', 'unix:/a', 'back', 'unix:/a', 'no'],
      ['consumer', 'host', 'address', 'host', 'consumer', 'host', 'service', 'host', 'service'],
      ['llama-server', 'unix:/a', false],
    ],
  ] as const) {
    test(what, async () => {
      const someone = person(...answers);
      const { decision } = await decide(beginning(here), someone);
      assert.deepEqual(someone.asked, questions);
      assert.deepEqual([decision.profile.name, decision.host, decision.service], decided);
    });
  }
});

test('from the plan, "back" returns to the last question without its answer', async () => {
  const { standing } = await decide(beginning(found()), person('unix:/a', 'yes'));
  const someone = person('no');
  const { decision } = await decide(back(standing), someone);
  assert.deepEqual(someone.asked, ['service']);
  assert.equal(decision.service, false);
});

test('setup without an answering host ends as refused, with the addresses tried and the errors', async () => {
  const hosts = [host('unix:/a', false), host('vsock:2:1', false)];
  await assert.rejects(decide(beginning(found({ hosts })), person('stop')), (error) => {
    assert.ok(error instanceof VgpuError);
    assert.equal(error.kind, 'refused');
    assert.match(error.message, /unix:\/a does not answer: Connection refused\n.*vsock:2:1 does not answer/);
    return true;
  });
});

test('candidates: configured addresses come first, the usual ones last, each once', () => {
  const candidates = hostCandidates({
    environment: 'tcp:10.0.0.1:1',
    guestConf: 'host=unix:/run/vgpu/hostd.sock\n',
    installed: 'tcp:10.0.0.1:1',
  });
  assert.deepEqual(
    candidates.map(({ endpoint, from }) => `${endpoint} ${from}`),
    [
      'tcp:10.0.0.1:1 VGPU_HOST',
      'unix:/run/vgpu/hostd.sock /etc/vgpu/guest.conf',
      'vsock:2:14833 the usual place of a virtual machine',
    ],
  );
});

test('an invalid address is not a candidate', () => {
  const sources = { environment: '', guestConf: 'host=http://nowhere\n', installed: null };
  const endpoints = hostCandidates(sources).map(({ endpoint }) => endpoint);
  assert.deepEqual(endpoints, ['unix:/run/vgpu/hostd.sock', 'vsock:2:14833']);
});

test('the command line can be pasted into a shell', () => {
  const line = commandLine({ profile: ollama.profile, host: "unix:/run/a b'c", service: true });
  assert.equal(line, `sudo vgpu-agent install --profile ollama --host 'unix:/run/a b'\\''c' --service --yes`);
});
