import { member } from '../../lib/own.js';
import { oneLine } from '../../lib/text.js';

/**
 * The devices that a CDI file offers, as a command asks for them. None of a text that is no such file: a file on
 * the machine may have been changed to anything.
 */
export function devicesIn(text: string): readonly string[] {
  const spec = parsed(text);
  const kind = member(spec, 'kind');
  const devices = member(spec, 'devices');
  if (typeof kind !== 'string' || !Array.isArray(devices)) return [];
  return devices.flatMap((device: unknown) => {
    const name = member(device, 'name');
    return typeof name === 'string' ? [`${oneLine(kind)}=${oneLine(name)}`] : [];
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
