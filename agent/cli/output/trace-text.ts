/** The text of a traced start: programs with the symbols that they bound; equal results are one entry. */

import type { Style } from '../../lib/style.js';
import { oneLine, plural, wrap } from '../../lib/text.js';
import type { TracedProcess } from '../../verdict/doctor/trace/bindings.js';
import type { TraceFacts } from '../../verdict/doctor/trace/types.js';
import {
  bindingText,
  deafText,
  libraryText,
  processNames,
  silence,
  together,
} from '../../verdict/doctor/trace/words.js';

/** Lines with an empty one after them; none without a trace. */
export function traceText(facts: TraceFacts | null, style: Style): readonly string[] {
  if (facts?.kind !== 'traced') return [];
  const { processes, live } = facts;
  const asked = processes.filter((one) => one.asked);
  const deaf = live.filter(({ traced }) => traced === false);
  return [
    style.bold(`one traced start (${plural(facts.lines, 'line')} of the tracer)`),
    ...together(asked, (one) => linesOf(one).join('\n')).flatMap((group) => [
      line(processNames(group), '  ', style),
      ...linesOf(group[0]).map((text) => line(text, '    ', style)),
    ]),
    ...together(
      processes.filter((one) => !one.asked),
      () => '',
    ).map((group) => line(`${processNames(group)} ${silence(group[0], processes)}`, '  ', style)),
    ...deaf.map((one) => line(deafText(one), '  ', style)),
    ...(processes.length === 0 && deaf.length === 0 ? [line('no process was seen', '  ', style)] : []),
    '',
  ];
}

function linesOf({ bindings, opened, bypassed }: TracedProcess): readonly string[] {
  const foreign = opened.filter(({ vendor }) => vendor !== 'vgpu' && vendor !== null);
  const lines = [
    ...bindings.map(bindingText),
    ...foreign.map(({ file, vendor }) => `opened ${libraryText({ library: file, vendor })}`),
    ...bypassed.map((object) => `lookups of ${object} are not traced`),
  ];
  return lines.length > 0 ? lines : ['called no function of it'];
}

function line(text: string, indent: string, style: Style): string {
  return indent + wrap(oneLine(text), style.width - indent.length, `${indent}  `);
}
