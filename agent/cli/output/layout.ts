/** The one layout of labelled text. */
import { oneLine, type Style, wrap } from '../../lib/text.js';

/**
 * The label, then the text on one line or wrapped below its beginning. `width`: columns of the label, if it has colours.
 */
export function hanging(label: string, text: string, style: Style, width = label.length): string {
  const indent = ' '.repeat(width);
  return label + wrap(oneLine(text), style.width - width).replaceAll('\n', `\n${indent}`);
}
