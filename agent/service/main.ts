/**
 * The program of vgpu-agent.service: `vgpu-agent daemon` without the command line, which a process that lives for
 * months would keep in memory (measured: 2 MB).
 */
import { errorDocument, errorText } from '../lib/error-text.js';
import { styleFor } from '../lib/text.js';
import { serve } from './run.js';

const plain = styleFor({ isTty: false, columns: undefined, wanted: false, env: {} });
const line = (text: string): void => void process.stderr.write(`${text}\n`);
// Not awaited here: a CommonJS bundle, which this becomes, has no await outside of a function.
serve(line).catch((error: unknown) => {
  line(errorText(error, plain, false));
  process.exitCode = errorDocument(error).exitCode;
});
