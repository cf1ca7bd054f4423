/**
 * Draws a program's output as a terminal in SVG: the picture of the README.
 *
 *   sudo ./scripts/demo | node dist/scripts/picture.js 'sudo ./scripts/demo' >docs/demo.svg
 */
import { readFileSync } from 'node:fs';

/** Sizes in pixels of a monospace font of 13 pixels; columns of the terminal. */
const size = { column: 7.83, line: 18, margin: 16, bar: 30, columns: 100 } as const;

const [command = ''] = process.argv.slice(2);
const output = readFileSync(0, 'utf8').trim().split('\n');
const lines = [`$ ${command}`, ...output].flatMap(wrapped);
const width = Math.ceil(size.columns * size.column + 2 * size.margin);
const height = lines.length * size.line + 2 * size.margin + size.bar;

/** Continuation lines keep the indentation of their line. */
function wrapped(line: string): readonly string[] {
  const indent = /^[ +]*/.exec(line)?.[0].replaceAll('+', ' ') ?? '';
  const rows: string[] = [];
  let rest = line.trimEnd();
  while (rest.length > size.columns) {
    const space = rest.lastIndexOf(' ', size.columns);
    const at = space > indent.length ? space : size.columns;
    rows.push(rest.slice(0, at));
    rest = indent + rest.slice(at).trimStart();
  }
  return [...rows, rest];
}

function colour(line: string): string {
  if (line.startsWith('$ ')) return '#e6edf3';
  if (line.startsWith('== ')) return '#79c0ff';
  if (/^GPU\b/.test(line)) return '#7ee787';
  if (/^ *\+ /.test(line)) return '#a5d6a7';
  return '#b1bac4';
}

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const rows = lines.map((line, index) => {
  const y = size.bar + size.margin + (index + 0.75) * size.line;
  return `<text x="${size.margin}" y="${y}" fill="${colour(line)}" xml:space="preserve">${escaped(line)}</text>`;
});
process.stdout.write(
  [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"`,
    '  font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13">',
    `<title>Output of ${escaped(command)}</title>`,
    `<rect width="${width}" height="${height}" rx="8" fill="#0d1117"/>`,
    ...['#ff5f57', '#febc2e', '#28c840'].map(
      (fill, index) => `<circle cx="${20 + 20 * index}" cy="16" r="6" fill="${fill}"/>`,
    ),
    ...rows,
    '</svg>',
    '',
  ].join('\n'),
);
