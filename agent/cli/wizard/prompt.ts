/** How a question reaches a person: a list to move in, or, on a terminal that cannot be drawn on, numbered lines. */
import { VgpuError } from '../../lib/errors.js';
import type { Style } from '../../lib/text.js';
import type { CommandContext } from '../commands/common.js';
import type { Talk } from '../output/terminal.js';
import type { Ask } from './questions.js';

export interface PromptTerminal {
  readonly stdin: NodeJS.ReadStream;
  readonly stderr: NodeJS.WriteStream;
  /** Nothing may be drawn twice (TERM=dumb). */
  readonly dumb: boolean;
  readonly style: Style;
  readonly signal: AbortSignal;
}

/** The prompts are loaded at the first question: no other command pays for them. */
export function terminalAsk(terminal: PromptTerminal): Ask {
  return async (question, options) => {
    if (terminal.signal.aborted) throw stopped();
    const { askInLines, askInList } = await import('./prompt-list.js');
    return (terminal.dumb ? askInLines : askInList)(terminal, question, options);
  };
}

export function stopped(cause?: unknown): VgpuError {
  return new VgpuError('stopped at the question; nothing was changed', {
    kind: 'interrupted',
    operation: 'ask',
    ...(cause === undefined ? {} : { cause }),
  });
}

interface Terminal {
  readonly stdin: NodeJS.ReadStream;
  readonly stderr: NodeJS.WriteStream;
}

/**
 * Runs a prompt of inquirer that Ctrl-C, Ctrl-D, the end of the input and `signal` end: a VgpuError `interrupted`. By
 * itself it would wait forever after Ctrl-D, which closes its input.
 */
export async function endable<T>(
  { stdin, signal }: Pick<PromptTerminal, 'stdin' | 'signal'>,
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

/** Null without a terminal: inquirer would end the question like a Ctrl-C. Enter alone means no. */
export function questioner(terminal: Terminal, talk: Talk, signal: AbortSignal): CommandContext['ask'] {
  const { stdin, stderr } = terminal;
  if (stdin.isTTY !== true || stderr.isTTY !== true) return null;
  return async (question) => {
    talk.pause();
    const { createPromptModule } = await import('inquirer');
    const { answer } = await endable({ stdin, signal }, (ending) =>
      createPromptModule({ input: stdin, output: stderr, signal: ending })<{ answer: boolean }>([
        { type: 'confirm', name: 'answer', message: question, default: false },
      ]),
    );
    return answer;
  };
}
