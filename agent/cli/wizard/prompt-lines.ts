/**
 * Questions as plain lines: numbered choices, the answer typed and ended by Enter. For terminals that cannot
 * be drawn on (TERM=dumb: an editor's shell, a serial line, a braille display).
 */
import { createInterface } from 'node:readline';
import { wrap } from '../../lib/text.js';
import { backValue, choicesOf, choiceText, type PromptTerminal, stopped } from './prompt.js';
import type { Answer, Question } from './types.js';

/** Asks until the line is an answer. */
export async function askInLines(
  terminal: PromptTerminal,
  question: Question,
  options: { readonly back: boolean },
): Promise<Answer> {
  const { stderr, style } = terminal;
  stderr.write(`\n${wrap(question.message, style.width)}\n`);
  const choices = question.kind === 'choice' ? choicesOf(question, options) : [];
  for (const [index, choice] of choices.entries()) {
    const number = ` ${index + 1}. `;
    const text = choiceText(choice, choices, style.width - number.length);
    stderr.write(`${number}${text.replaceAll('\n', `\n${' '.repeat(number.length)}`)}\n`);
  }
  for (;;) {
    stderr.write(question.kind === 'text' ? (options.back ? 'address or back: ' : 'address: ') : hint());
    const line = (await readLine(terminal)).trim();
    const answer = read(line);
    if (answer !== null) return answer;
  }

  function hint(): string {
    const usual = choices.findIndex(({ value }) => value === preselected()) + 1;
    return `number, or Enter for ${usual}: `;
  }
  function preselected(): string {
    return question.kind === 'choice' ? question.preselected : '';
  }
  function read(line: string): Answer | null {
    if (options.back && line.toLowerCase() === 'back') return { kind: 'back' };
    if (question.kind === 'text') {
      const problem = question.problem(line);
      if (problem === null) return { kind: 'answer', value: line };
      stderr.write(`${problem}\n`);
      return null;
    }
    const value = line === '' ? preselected() : choices[Number(line) - 1]?.value;
    if (value === undefined) {
      stderr.write(`${JSON.stringify(line)} is not a number from 1 to ${choices.length}\n`);
      return null;
    }
    return value === backValue ? { kind: 'back' } : { kind: 'answer', value };
  }
}

/** Throws `interrupted` at the end of the input and when the command is asked to stop. */
function readLine({ stdin, stderr, signal }: PromptTerminal): Promise<string> {
  const lines = createInterface({ input: stdin, terminal: false });
  return new Promise<string>((resolve, reject) => {
    const stop = (): void => {
      lines.off('close', stop);
      stderr.write('\n');
      reject(stopped());
    };
    lines.once('line', (line) => {
      lines.off('close', stop);
      signal.removeEventListener('abort', stop);
      resolve(line);
    });
    lines.once('close', stop);
    signal.addEventListener('abort', stop, { once: true });
  }).finally(() => lines.close());
}
