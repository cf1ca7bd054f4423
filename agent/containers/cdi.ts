/** CDI (Container Device Interface): the part of a spec that we write, and the devices that one offers. */
import { member } from '../lib/json.js';
import { oneLine } from '../lib/text.js';

/**
 * A specification of the Container Device Interface, as far as we write one: docs/json/cdi-generate.schema.json says
 * the same to others.
 */
export const cdiKind = 'vgpu.org/gpu';
export const cdiNvidiaKind = 'nvidia.com/gpu';

export interface CdiMount {
  readonly hostPath: string;
  readonly containerPath: string;
  readonly options: readonly string[];
}

interface CdiEdits {
  readonly env?: readonly string[];
  readonly mounts?: readonly CdiMount[];
}

export interface CdiDevice {
  readonly name: string;
  readonly containerEdits: CdiEdits;
}

export interface CdiSpec {
  readonly cdiVersion: string;
  readonly kind: string;
  readonly devices: readonly CdiDevice[];
  readonly containerEdits: CdiEdits;
}

/** As a command asks for it: `vgpu.org/gpu=all`. */
export function isOurDevice(device: string): boolean {
  return device.startsWith(`${cdiKind}=`) || device.startsWith(`${cdiNvidiaKind}=`);
}

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
