/** The program of vgpu-agent.service. It is not a command, because the command line costs a process 2 MB for life. */
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
