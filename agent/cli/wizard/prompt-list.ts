/** Questions by inquirer: a list to move in by arrow keys or numbers. */
import { createInterface } from 'node:readline';
import { createPromptModule } from 'inquirer';
import { oneLine, type Style, wrap } from '../../lib/text.js';
import { endable, type PromptTerminal, stopped } from './prompt.js';
import type { Answer, Choice, Question } from './questions.js';

/** Value of the choice that goes back; no other value begins with a blank. */
const backValue = ' back';

const backChoice: Choice = { value: backValue, label: 'Back', explanation: 'to the question before this' };

function choicesOf(
  question: Extract<Question, { kind: 'choice' }>,
  { back }: { readonly back: boolean },
): readonly Choice[] {
  return back ? [...question.choices, backChoice] : question.choices;
}

function choiceText(choice: Choice, all: readonly Choice[], room: number): string {
  const widest = Math.max(...all.map(({ label }) => label.length));
  const indent = ' '.repeat(Math.min(widest + 2, 20));
  return wrap(`${choice.label.padEnd(widest)}  ${choice.explanation}`, room, indent);
}

/** A window that is dragged sends many; it is drawn again when the size has settled. */
const resizeMs = 150;

/** Draws the question again, whole, when the terminal has another size. */
export async function askInList(
  terminal: PromptTerminal,
  question: Question,
  options: { readonly back: boolean },
): Promise<Answer> {
  let kept = question.kind === 'choice' ? question.preselected : '';
  for (;;) {
    const asked = await askOnce(terminal, question, options, kept);
    if (asked.kind !== 'redraw') return asked;
    kept = asked.kept;
  }
}

async function askOnce(
  terminal: PromptTerminal,
  question: Question,
  options: { readonly back: boolean },
  kept: string,
): Promise<Answer | { readonly kind: 'redraw'; readonly kept: string }> {
  const { stdin, stderr, style, signal } = terminal;
  const redraw = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const resized = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => redraw.abort(), resizeMs);
  };
  stderr.on('resize', resized);
  const seen = { kept };
  try {
    const { answer } = await endable(terminal, (ending) =>
      createPromptModule({
        input: stdin,
        output: stderr,
        signal: AbortSignal.any([ending, redraw.signal]),
        clearPromptOnDone: true,
      })<{ answer: string }>([
        question.kind === 'choice'
          ? choicePrompt(question, options, style, seen)
          : textPrompt(question, options, style, seen),
      ]),
    );
    const isBack = answer === backValue || (question.kind === 'text' && options.back && answer === 'back');
    const shown = isBack ? 'back' : oneLine(labelOf(question, answer));
    stderr.write(`${style.good('>')} ${wrap(`${question.message} ${shown}`, style.width - 2, '  ')}\n`);
    return isBack ? { kind: 'back' } : { kind: 'answer', value: answer };
  } catch (error) {
    if (redraw.signal.aborted && !signal.aborted) return { kind: 'redraw', kept: seen.kept };
    throw error;
  } finally {
    clearTimeout(timer);
    stderr.off('resize', resized);
  }
}

function labelOf(question: Question, value: string): string {
  if (question.kind === 'text') return value;
  return question.choices.find((one) => one.value === value)?.label ?? value;
}

interface Seen {
  kept: string;
}

function choicePrompt(
  question: Extract<Question, { kind: 'choice' }>,
  options: { readonly back: boolean },
  style: Style,
  seen: Seen,
) {
  const all = choicesOf(question, options);
  const room = style.width - 2;
  const choices = all.map((choice) => ({ value: choice.value, name: choiceText(choice, all, room) }));
  return {
    type: 'select' as const,
    name: 'answer' as const,
    message: wrap(question.message, room, '  '),
    choices,
    default: seen.kept,
    loop: false,
    pageSize: 20,
    theme: {
      ...themeOf(style),
      icon: { cursor: '>' },
      style: {
        ...themeOf(style).style,
        highlight: (text: string) => {
          seen.kept = choices.find(({ name }) => text.endsWith(name))?.value ?? seen.kept;
          return style.bold(text);
        },
        disabled: (text: string) => style.dim(text),
        description: (text: string) => text,
        keysHelpTip: () => style.dim('arrow keys or a number, then Enter; Ctrl-C stops, nothing is changed'),
      },
    },
  };
}

function textPrompt(
  question: Extract<Question, { kind: 'text' }>,
  { back }: { readonly back: boolean },
  style: Style,
  seen: Seen,
) {
  return {
    type: 'input' as const,
    name: 'answer' as const,
    message: wrap(`${question.message}${back ? ' or back:' : ':'}`, style.width - 2, '  '),
    default: seen.kept,
    prefill: 'editable' as const,
    validate: (text: string) => (back && text === 'back' ? true : (question.problem(text) ?? true)),
    transformer: (text: string) => {
      seen.kept = text;
      return text;
    },
    theme: themeOf(style),
  };
}

/** inquirer's own colours ignore --no-color; these do not. */
function themeOf(style: Style) {
  return {
    prefix: { idle: style.good('?'), done: style.good('>') },
    style: {
      answer: (text: string) => text,
      message: (text: string) => style.bold(text),
      error: (text: string) => style.bad(wrap(text, style.width)),
      defaultAnswer: (text: string) => style.dim(text),
      help: (text: string) => style.dim(text),
      highlight: (text: string) => style.bold(text),
      key: (text: string) => style.bold(text),
    },
  };
}

// Questions as plain lines: numbered choices, the answer typed and ended by Enter. For terminals that cannot
// be drawn on (TERM=dumb: an editor's shell, a serial line, a braille display).

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
