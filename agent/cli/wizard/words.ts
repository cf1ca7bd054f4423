/** The wizard's text other than its questions. Pure. */
import type { Style } from '../../lib/style.js';
import { oneLine, shellWord, wrap } from '../../lib/text.js';
import type { Consumer, Decision, Found, HostSeen } from './types.js';

/** The facts that were found out, a line each. */
export function foundText(found: Found, style: Style): string {
  const { consumers, hosts, installed } = found;
  const libraries = [...new Set(consumers.flatMap((one) => one.libraries.map(libraryLine)))];
  const items: readonly (readonly [label: string, lines: readonly string[]])[] = [
    ['services', consumers.map(({ profile }) => `${profile.unit}: ${profile.description}`)],
    ['libraries', libraries.length === 0 ? ['no other library in the way'] : libraries],
    ['host', hosts.map(hostLine)],
    [
      'installed',
      [
        installed === null
          ? 'nothing yet'
          : `for ${installed.profiles.join(' and ')}, host ${installed.endpoint}`,
      ],
    ],
  ];
  return [
    style.bold('This machine'),
    ...items.flatMap(([label, lines]) =>
      lines.map((line, index) => item(index === 0 ? label : '', line, style)),
    ),
  ].join('\n');
}

function item(label: string, text: string, style: Style): string {
  const indent = ' '.repeat(12);
  return `  ${label.padEnd(10)}${wrap(oneLine(text), style.width - indent.length).replaceAll('\n', `\n${indent}`)}`;
}

function libraryLine({ path, vendor, ownerOfFile }: Consumer['libraries'][number]): string {
  const whose = vendor === 'nvidia' ? "NVIDIA's" : 'neither of vgpu-agent nor of NVIDIA';
  return `${path} is ${whose}${ownerOfFile === null ? '' : ` (package ${ownerOfFile})`}`;
}

/** The answer of an address. */
export function hostLine({ endpoint, answer }: HostSeen): string {
  switch (answer.kind) {
    case 'answers':
      return `${endpoint} answers: ${answer.device}`;
    case 'unreachable':
      return `${endpoint} does not answer: ${oneLine(answer.message.replace(`cannot connect to ${endpoint}: `, ''))}`;
    case 'unasked':
      return `${endpoint} was not asked`;
  }
}

/** The install that does the same without a question. */
export function commandLine({ profile, host, service }: Decision): string {
  const flags = [
    '--profile',
    profile.name,
    '--host',
    shellWord(host),
    service ? '--service' : '--no-service',
  ];
  return `sudo vgpu-agent install ${flags.join(' ')} --yes`;
}
