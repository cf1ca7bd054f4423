/**
 * A specification of the Container Device Interface, as far as we write one: docs/json/cdi-generate.schema.json says
 * the same to others.
 */
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
