/** File name patterns: `*`, `?`, `[a-z]`, `[!a-z]`, in any component. No `**`, no braces. */
import path from 'node:path';

interface Tree {
  readdir(directory: string): readonly string[];
  exists(file: string): boolean;
}

/** Sorted by code unit. As in glob(7), a leading dot is matched by a dot only. */
export function glob(tree: Tree, pattern: string): readonly string[] {
  let found: readonly string[] = ['/'];
  for (const part of path.resolve('/', pattern).split('/').filter(Boolean)) {
    if (!/[*?[]/.test(part)) {
      found = found.map((directory) => path.join(directory, part));
      continue;
    }
    const matches = componentMatcher(part);
    found = found.flatMap((directory) =>
      tree
        .readdir(directory)
        .filter(matches)
        .map((name) => path.join(directory, name)),
    );
  }
  return found.filter((file) => tree.exists(file)).sort();
}

function componentMatcher(pattern: string): (name: string) => boolean {
  const expression = new RegExp(`^${toExpression(pattern)}$`, 's');
  return (name) => (name.startsWith('.') ? pattern.startsWith('.') : true) && expression.test(name);
}

function toExpression(pattern: string): string {
  let expression = '';
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern.charAt(at);
    if (character === '*') expression += '.*';
    else if (character === '?') expression += '.';
    else if (character === '[') {
      // A `]` right after the opening (or its `!`) is an ordinary member.
      const end = pattern.indexOf(']', at + (pattern.charAt(at + 1) === '!' ? 3 : 2));
      if (end === -1) {
        expression += '\\[';
        continue;
      }
      const negated = pattern.charAt(at + 1) === '!';
      const members = pattern.slice(at + (negated ? 2 : 1), end).replaceAll(/[\\\]^[]/g, '\\$&');
      expression += `[${negated ? '^' : ''}${members}]`;
      at = end;
    } else expression += character.replaceAll(/[\\^$.|+(){}\]]/g, '\\$&');
  }
  return expression;
}
