/** Values of flags, checked while they are parsed: a bad one is a usage error that quotes it. */
import { InvalidArgumentError } from 'commander';
import { parseEndpoint } from '../../guest/vgpu-host/endpoint.js';

/** A day: no consumer starts more slowly, and a typing error must not cause an endless wait. */
const longestSeconds = 86_400;

/** Seconds, as typed after `--timeout`; fractions allowed. */
export function seconds(value: string): number {
  const number = /^\d*\.?\d+$/.test(value) ? Number(value) : 0;
  if (number <= 0 || number > longestSeconds) {
    throw new InvalidArgumentError(
      `It must be a number of seconds, more than 0 and at most ${longestSeconds}.`,
    );
  }
  return number;
}

/** `unix:PATH`, `vsock:CID:PORT` or `tcp:ADDRESS:PORT`, as typed after `--host`. */
export function endpoint(value: string): string {
  const parsed = parseEndpoint(value);
  if (parsed.kind === 'bad') {
    throw new InvalidArgumentError(
      `${capital(parsed.reason)}. Write unix:/PATH, vsock:CID:PORT or tcp:ADDRESS:PORT.`,
    );
  }
  return value;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Types of units that are no service (systemd.unit(5)). */
const otherUnit = /\.(socket|device|mount|automount|swap|target|path|timer|slice|scope)$/;

/** The name of a service, as typed after `--unit`; `.service` may be left out. */
export function unitName(value: string): string {
  const other = otherUnit.exec(value)?.[1];
  if (other !== undefined) {
    throw new InvalidArgumentError(
      `It is a ${other}, and only a service can have the GPU: name the service that it starts, such as ${value.replace(otherUnit, '.service')}.`,
    );
  }
  const name = value.endsWith('.service') ? value : `${value}.service`;
  if (/^[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\-]+)?\.service$/.test(name) && name.length <= 255) return name;
  throw new InvalidArgumentError(
    /@\.service$/.test(name)
      ? 'It is a template: name an instance of it, such as ollama@1.service.'
      : 'It must be the name of a systemd service, such as ollama.service or ollama@1.service.',
  );
}

/** The help text of `--profile`, the same everywhere. */
export const profileHelp =
  'what the service needs: the name of a profile (default: the installed one, else ollama)';
/** The help text of `--unit`. */
export const unitHelp = 'the systemd service, if it is not that of the profile, or if several are installed';
export const hostHelp = 'where vgpu-hostd listens: unix:PATH, vsock:CID:PORT or tcp:ADDRESS:PORT';

/** The help text of `--allow-unreachable-host`. */
export const unreachableHelp =
  'continue although the host does not answer (an image, or a host that comes later)';

/** The help text of `--compute`. */
export const computeHelp =
  'also run test kernels on the device and check every number; the verdict is GPU only if all are right';

/** Examples under a command's help: the command, and what it is for below it. */
export function examples(...lines: readonly (readonly [command: string, what: string])[]): string {
  return `\nExamples:\n${lines.map(([command, what]) => `  ${command}\n      ${what}`).join('\n')}`;
}
