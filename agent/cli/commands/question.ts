/** Asks a person yes or no, if there is one. */
import { VgpuError } from '../../lib/errors.js';
import type { Talk } from '../output/terminal.js';
import type { CommandContext } from './types.js';

interface Terminal {
  readonly stdin: NodeJS.ReadStream;
  readonly stderr: NodeJS.WriteStream;
}

/**
 * Null when standard input or standard error is no terminal: inquirer would end such a question like a
 * Ctrl-C, and the person would not know why. The question goes to standard error; Enter alone means no. Ctrl-C,
 * Ctrl-D, the end of the input and `signal` end the question: a VgpuError `interrupted`.
 */
export function questioner(terminal: Terminal, talk: Talk, signal: AbortSignal): CommandContext['ask'] {
  const { stdin, stderr } = terminal;
  if (stdin.isTTY !== true || stderr.isTTY !== true) return null;
  return async (question) => {
    talk.pause();
    const { createPromptModule } = await import('inquirer');
    const ending = new AbortController();
    const stop = (): void => ending.abort();
    // inquirer would wait forever: Ctrl-D closes its input.
    const key = (_: unknown, pressed?: { readonly ctrl?: boolean; readonly name?: string }): void => {
      if (pressed?.ctrl === true && pressed.name === 'd') stop();
    };
    const prompt = createPromptModule({ input: stdin, output: stderr, signal: ending.signal });
    stdin.on('keypress', key);
    stdin.once('end', stop);
    signal.addEventListener('abort', stop, { once: true });
    try {
      if (signal.aborted) stop();
      const { answer } = await prompt<{ answer: boolean }>([
        { type: 'confirm', name: 'answer', message: question, default: false },
      ]);
      return answer;
    } catch (error) {
      if (error instanceof Error && (error.name === 'ExitPromptError' || error.name === 'AbortPromptError')) {
        throw new VgpuError('stopped at the question; nothing was changed', {
          kind: 'interrupted',
          operation: 'ask',
          cause: error,
        });
      }
      throw error;
    } finally {
      stdin.off('keypress', key);
      stdin.off('end', stop);
      signal.removeEventListener('abort', stop);
    }
  };
}
