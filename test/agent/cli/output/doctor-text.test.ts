import assert from 'node:assert/strict';
import { test } from 'node:test';
import { doctorText } from '../../../../agent/cli/output/doctor-text.js';
import { styleFor } from '../../../../agent/lib/text.js';
import { diagnose } from '../../../../agent/verdict/doctor/diagnose.js';
import {
  broken,
  byHand,
  type Check,
  onTheHost,
  type Remedy,
} from '../../../../agent/verdict/doctor/finding.js';
import { doctorFacts } from '../../verdict/doctor/support.js';

const plain = styleFor({ isTty: false, columns: undefined, wanted: true, env: {} });

/** The text of checks that are broken, each with this remedy. */
function textOf(...remedies: readonly Remedy[]): string {
  const all = remedies.map(
    (remedy, index): Check => ({
      id: `check-${index}`,
      title: 'all is well',
      looksAt: 'nothing',
      explains: [],
      examine: () => broken({ cause: 'It is not.', evidence: [], remedy }),
    }),
  );
  return doctorText(diagnose(doctorFacts(), all), plain);
}

const edit = 'sudo systemctl edit ollama.service';

test('a command that was printed above is not repeated, but the rest of the remedy is', () => {
  const text = textOf(byHand('take A out', edit), byHand('take B out', edit));
  assert.match(
    text,
    /check-0\n {2}It is not\.\n {2}do: take A out:\n {6}sudo systemctl edit ollama\.service\n/,
  );
  assert.match(text, /the above\)\n {2}It is not\.\n {2}do: take B out \(the command above\)\n/);
  assert.doesNotMatch(textOf(byHand('take A out', edit), byHand('take A out', edit)), /the command above/);
});

test('the last line says where its command is to be typed, when that is not here', () => {
  assert.match(
    textOf(byHand('edit it', edit)),
    /\nfirst: check-0\nnext: sudo systemctl edit ollama\.service$/,
  );
  assert.match(
    textOf(onTheHost('start it', 'systemctl start vgpu-hostd'), byHand('edit it', edit)),
    /\nfirst: check-0 \(the first of 2: repair it, then look again\)\nnext, on the host: systemctl start vgpu-hostd$/,
  );
});
