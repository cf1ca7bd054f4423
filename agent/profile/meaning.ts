/** Rules that a schema cannot express: expressions compile, ranges are ranges, and names refer to something. */
import validRange from 'semver/ranges/valid.js';
import { pointerPart } from './json.js';
import { compilePattern } from './patterns.js';
import { nearest } from './suggest.js';
import type { DeviceRule, Profile } from './types.js';
import type { Problem } from './validate.js';
import { isVariable, variableNames, variablesIn } from './variables.js';

const loaderVariables: ReadonlySet<string> = new Set(['LD_PRELOAD', 'LD_LIBRARY_PATH']);

/** Every problem of a profile that fits the schema; empty: it is good. */
export function checkMeaning(profile: Profile): readonly Problem[] {
  const problems: Problem[] = [];
  const say = (pointer: string, message: string): void => {
    problems.push({ pointer, message });
  };
  /** The groups of the expression; null: it is bad, which was said. */
  const pattern = (
    pointer: string,
    source: string,
    groups: readonly string[] = [],
  ): readonly string[] | null => {
    const result = compilePattern(source);
    if (result.kind === 'bad') {
      say(pointer, `${JSON.stringify(source)}: ${result.message}`);
      return null;
    }
    for (const group of groups) {
      if (!result.groups.includes(group)) {
        say(pointer, `${JSON.stringify(source)} has no group (?<${group}>...)`);
      }
    }
    return result.groups;
  };
  const range = (pointer: string, versions: string): void => {
    if (validRange(versions) === null) {
      say(
        pointer,
        `${JSON.stringify(versions)} is not a range of versions; allowed: as in ">=0.12.4 <0.30" or "*"`,
      );
    }
  };
  const variables = (pointer: string, text: string): void => {
    for (const name of variablesIn(text)) {
      if (isVariable(name)) continue;
      const word = nearest(name, variableNames);
      const known = variableNames.map((variable) => `\${${variable}}`).join(', ');
      const hint = word === null ? '' : `; did you mean \${${word}}?`;
      say(pointer, `\${${name}} is unknown; known: ${known}${hint}`);
    }
  };

  profile.consumerLibraries.forEach((path, index) => {
    variables(`/consumerLibraries/${index}`, path);
  });
  for (const rule of ['backend', 'opensByPath'] as const) {
    const versions = profile.doctor?.[rule]?.versions;
    if (versions !== undefined) range(`/doctor/${rule}/versions`, versions);
  }
  for (const [family, directories] of Object.entries(profile.publicLinks.directories)) {
    directories.forEach(({ path }, index) => {
      const pointer = `/publicLinks/directories/${family}/${index}/path`;
      variables(pointer, path);
      const owned = profile.consumerLibraries.find((own) => own.replace(/\/\*?$/, '') === path);
      if (owned !== undefined) {
        say(
          pointer,
          `${JSON.stringify(path)} belongs to the consumer (consumerLibraries); vgpu-agent writes nothing there`,
        );
      }
    });
  }
  profile.environment.forEach((entry, index) => {
    const pointer = `/environment/${index}`;
    if (loaderVariables.has(entry.name) && entry.separator !== ':') {
      say(
        `${pointer}/separator`,
        `${JSON.stringify(entry.separator)} was given; for ${entry.name} allowed: ":"`,
      );
    }
    if (profile.environment.findIndex(({ name }) => name === entry.name) !== index) {
      say(`${pointer}/name`, `${JSON.stringify(entry.name)} is given twice`);
    }
    entry.entries.forEach((text, at) => {
      variables(`${pointer}/entries/${at}`, text);
      if (/[\n\r\0]/.test(text)) say(`${pointer}/entries/${at}`, 'line breaks and NUL are not allowed');
      if (entry.preflight !== 'none' && !/^(?:\/|\$\{store\})/.test(text)) {
        say(
          `${pointer}/entries/${at}`,
          `${JSON.stringify(text)} was given, allowed: an absolute path or \${store}/...`,
        );
      }
    });
  });
  profile.overrides.forEach(({ value }, index) => {
    pattern(`/overrides/${index}/value`, value);
  });

  const { log } = profile;
  log.starts.forEach(({ message }, index) => {
    pattern(`/log/starts/${index}/message`, message);
  });
  if (log.version !== null) pattern('/log/version/message', log.version.message, ['version']);
  if (log.address !== null) pattern('/log/address/message', log.address.message, ['address']);
  log.finished.forEach((message, index) => {
    pattern(`/log/finished/${index}`, message);
  });
  if (log.prefix !== undefined) pattern('/log/prefix', log.prefix);
  const fields = (pointer: string, rules: Readonly<Record<string, string>>): void => {
    for (const [key, source] of Object.entries(rules)) {
      pattern(`${pointer}/${pointerPart(key)}`, source);
      if (log.format === 'text')
        say(`${pointer}/${pointerPart(key)}`, 'a log of format "text" has no fields');
    }
  };
  log.loads?.forEach((rule, index) => {
    pattern(`/log/loads/${index}/message`, rule.message, rule.says === 'layers' ? ['gpu', 'all'] : []);
    fields(`/log/loads/${index}/fields`, rule.fields ?? {});
  });
  if (log.children !== undefined) {
    pattern('/log/children/line', log.children.line, ['child']);
    pattern('/log/children/began', log.children.began, ['child', 'name']);
    pattern('/log/children/ended', log.children.ended, ['name']);
  }
  log.reasons.forEach((rule, index) => {
    range(`/log/reasons/${index}/versions`, rule.versions);
    pattern(`/log/reasons/${index}/message`, rule.message);
    fields(`/log/reasons/${index}/fields`, rule.fields);
  });
  log.devices.forEach((rule, index) => {
    const pointer = `/log/devices/${index}`;
    range(`${pointer}/versions`, rule.versions);
    if (rule.fields.library.length === 0 && rule.fixed.library === undefined) {
      say(
        `${pointer}/fields/library`,
        'no key is named, and fixed.library is not given: the library stays unknown',
      );
    }
    if (log.format === 'text') {
      const groups = pattern(`${pointer}/message`, rule.message);
      if (groups !== null) checkGroups(rule, groups, pointer, say);
    }
  });
  return problems;
}

/** In a text log the fields are groups of the expression: each must be there. */
function checkGroups(
  rule: DeviceRule,
  groups: readonly string[],
  pointer: string,
  say: (pointer: string, message: string) => void,
): void {
  for (const [field, names] of Object.entries(rule.fields)) {
    names.forEach((name, at) => {
      if (!groups.includes(name)) {
        say(
          `${pointer}/fields/${field}/${at}`,
          `${JSON.stringify(name)} is not a group of the expression in "message"`,
        );
      }
    });
  }
}
