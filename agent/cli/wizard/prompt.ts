/** Asks a person by inquirer: a list to move in by arrow keys or numbers. It is loaded at the first question. */
import { VgpuError } from '../../lib/errors.js';
import { oneLine, type Style, wrap } from '../../lib/text.js';
import type { CommandContext } from '../commands/common.js';
import type { Talk } from '../output/terminal.js';
import type { Ask, Choice, Question } from './questions.js';

interface Terminal {
  readonly stdin: NodeJS.ReadStream;
  readonly stderr: NodeJS.WriteStream;
  readonly signal: AbortSignal;
}

interface PromptTerminal extends Terminal {
  readonly style: Style;
}

type Options = Parameters<Ask>[1];
type ChoiceQuestion = Extract<Question, { kind: 'choice' }>;
type TextQuestion = Extract<Question, { kind: 'text' }>;

function stopped(cause?: unknown): VgpuError {
  return new VgpuError('stopped at the question; nothing was changed', {
    kind: 'interrupted',
    operation: 'ask',
    ...(cause === undefined ? {} : { cause }),
  });
}

/**
 * Runs a prompt of inquirer that Ctrl-C, Ctrl-D, the end of the input and `signal` end: a VgpuError `interrupted`. By
 * itself it would wait forever after Ctrl-D, which closes its input.
 */
async function endable<T>(
  { stdin, signal }: Terminal,
  prompt: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const ending = new AbortController();
  const stop = (): void => ending.abort();
  const key = (_: unknown, pressed?: { readonly ctrl?: boolean; readonly name?: string }): void => {
    if (pressed?.ctrl === true && pressed.name === 'd') stop();
  };
  stdin.on('keypress', key);
  stdin.once('end', stop);
  signal.addEventListener('abort', stop, { once: true });
  try {
    if (signal.aborted) stop();
    return await prompt(ending.signal);
  } catch (error) {
    if (error instanceof Error && (error.name === 'ExitPromptError' || error.name === 'AbortPromptError')) {
      throw stopped(error);
    }
    throw error;
  } finally {
    stdin.off('keypress', key);
    stdin.off('end', stop);
    signal.removeEventListener('abort', stop);
  }
}

/** Enter alone means no. */
export function questioner(terminal: Terminal, talk: Talk): NonNullable<CommandContext['ask']> {
  return async (question) => {
    talk.pause();
    const { createPromptModule } = await import('inquirer');
    const { answer } = await endable(terminal, (signal) =>
      createPromptModule({ input: terminal.stdin, output: terminal.stderr, signal })<{ answer: boolean }>([
        { type: 'confirm', name: 'answer', message: question, default: false },
      ]),
    );
    return answer;
  };
}

/** Value of the choice that goes back; no other value begins with a blank. */
const backValue = ' back';

const backChoice: Choice = { value: backValue, label: 'Back', explanation: 'to the question before this' };

function choicesOf(question: Question, { back }: Options): readonly Choice[] {
  if (question.kind === 'text') return [];
  return back ? [...question.choices, backChoice] : question.choices;
}

function choiceText(choice: Choice, all: readonly Choice[], room: number): string {
  const widest = Math.max(...all.map(({ label }) => label.length));
  const indent = ' '.repeat(Math.min(widest + 2, 20));
  return wrap(`${choice.label.padEnd(widest)}  ${choice.explanation}`, room, indent);
}

export function terminalAsk(terminal: PromptTerminal): Ask {
  return async (question, options) => {
    const { stdin, stderr, style } = terminal;
    const { createPromptModule } = await import('inquirer');
    const prompt =
      question.kind === 'choice'
        ? choicePrompt(question, options, style)
        : textPrompt(question, options, style);
    const { answer } = await endable(terminal, (signal) =>
      createPromptModule({ input: stdin, output: stderr, signal, clearPromptOnDone: true })<{
        answer: string;
      }>([prompt]),
    );
    const isBack = answer === backValue || (question.kind === 'text' && options.back && answer === 'back');
    const label = choicesOf(question, options).find(({ value }) => value === answer)?.label ?? answer;
    const shown = isBack ? 'back' : oneLine(label);
    stderr.write(`${style.good('>')} ${wrap(`${question.message} ${shown}`, style.width - 2, '  ')}\n`);
    return isBack ? { kind: 'back' } : { kind: 'answer', value: answer };
  };
}

function choicePrompt(question: ChoiceQuestion, options: Options, style: Style) {
  const all = choicesOf(question, options);
  const room = style.width - 2;
  const choices = all.map((choice) => ({ value: choice.value, name: choiceText(choice, all, room) }));
  return {
    type: 'select' as const,
    name: 'answer' as const,
    message: wrap(question.message, room, '  '),
    choices,
    default: question.preselected,
    loop: false,
    pageSize: 20,
    theme: {
      ...themeOf(style),
      icon: { cursor: '>' },
      style: {
        ...themeOf(style).style,
        disabled: style.dim,
        description: (text: string) => text,
        keysHelpTip: () => style.dim('arrow keys or a number, then Enter; Ctrl-C stops, nothing is changed'),
      },
    },
  };
}

function textPrompt(question: TextQuestion, { back }: Options, style: Style) {
  return {
    type: 'input' as const,
    name: 'answer' as const,
    message: wrap(`${question.message}${back ? ' or back:' : ':'}`, style.width - 2, '  '),
    validate: (text: string) => (back && text === 'back' ? true : (question.problem(text) ?? true)),
    theme: themeOf(style),
  };
}

/** inquirer's own colours ignore --no-color; these do not. */
function themeOf(style: Style) {
  return {
    prefix: { idle: style.good('?'), done: style.good('>') },
    style: {
      answer: (text: string) => text,
      message: style.bold,
      error: (text: string) => style.bad(wrap(text, style.width)),
      defaultAnswer: style.dim,
      help: style.dim,
      highlight: style.bold,
      key: style.bold,
    },
  };
}
