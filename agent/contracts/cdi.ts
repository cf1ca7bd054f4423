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

export interface CdiEdits {
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
  /** For a container that asks for any of the devices. */
  readonly containerEdits: CdiEdits;
}

/** As a command asks for it: `vgpu.org/gpu=all`. */
export function isOurDevice(device: string): boolean {
  return device.startsWith(`${cdiKind}=`) || device.startsWith(`${cdiNvidiaKind}=`);
}
