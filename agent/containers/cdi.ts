/** CDI (Container Device Interface): the part of a spec that we write, and the devices that one offers. */
import { jsonIn, member } from '../lib/json.js';
import { oneLine } from '../lib/text.js';

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

export function isOurDevice(device: string): boolean {
  return device.startsWith(`${cdiKind}=`) || device.startsWith(`${cdiNvidiaKind}=`);
}

export function devicesIn(text: string): readonly string[] {
  const spec = jsonIn(text);
  const kind = member(spec, 'kind');
  const devices = member(spec, 'devices');
  if (typeof kind !== 'string' || !Array.isArray(devices)) return [];
  return devices.flatMap((device: unknown) => {
    const name = member(device, 'name');
    return typeof name === 'string' ? [`${oneLine(kind)}=${oneLine(name)}`] : [];
  });
}
