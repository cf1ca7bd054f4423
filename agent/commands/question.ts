/** Asks a person yes or no, if there is one. */
import { VgpuError } from '../errors.js';
import type { Talk } from '../output/terminal.js';
import type { CommandContext } from './types.js';

interface Terminal {
  readonly stdin: NodeJS.ReadStream;
  readonly stderr: NodeJS.WriteStream;
}

/**
 * Null when standard input or standard error is no terminal: inquirer would end such a question like a
 * Ctrl-C, and the person would not know why. The question goes to standard error; Enter alone means no.
 */
export function questioner(terminal: Terminal, talk: Talk): CommandContext['ask'] {
  const { stdin, stderr } = terminal;
  if (stdin.isTTY !== true || stderr.isTTY !== true) return null;
  return async (question) => {
    talk.pause();
    const { createPromptModule } = await import('inquirer');
    const prompt = createPromptModule({ input: stdin, output: stderr });
    try {
      const { answer } = await prompt<{ answer: boolean }>([
        { type: 'confirm', name: 'answer', message: question, default: false },
      ]);
      return answer;
    } catch (error) {
      if (error instanceof Error && error.name === 'ExitPromptError') {
        throw new VgpuError('stopped at the question; nothing was changed', {
          kind: 'interrupted',
          operation: 'ask',
          cause: error,
        });
      }
      throw error;
    }
  };
}
