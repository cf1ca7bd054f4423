/** Reads what `vgpu-probe` prints. The probe loaded a foreign library: its words are checked like any input. */
import { readHostWord } from './host-word.js';
import type { ProbeReport } from './probe.js';
import { probeFailureCodes } from './shim-codes.js';

type Json = Readonly<Record<string, unknown>>;

/** The report, or what is wrong with the text. */
export function parseProbeReport(text: string): ProbeReport | { readonly problem: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { problem: `vgpu-probe did not print JSON: ${JSON.stringify(text.slice(0, 200))}` };
  }
  const report = isObject(value) ? reportOf(value) : null;
  return report ?? { problem: `vgpu-probe printed an unknown document: ${text.slice(0, 200)}` };
}

function reportOf(value: Json): ProbeReport | null {
  const { schema, ok, simulated, library, driver, devices, roundTrip, compute, nvml, error } = value;
  if (schema !== 1 || typeof ok !== 'boolean' || typeof simulated !== 'boolean') return null;
  if (!isTextOrNull(library) || !isTextOrNull(driver)) return null;
  if (!Array.isArray(devices) || !devices.every(isDevice)) return null;
  if (!(roundTrip === null || isRoundTrip(roundTrip)) || !isNvml(nvml)) return null;
  const failure = error === null ? null : failureOf(error);
  if (error !== null && failure === null) return null;
  const host = readHostWord(value['host']);
  const found = { schema, ok, simulated, library, driver, devices, roundTrip, nvml, host } as const;
  const report = { ...found, error: failure };
  // An older probe does not name it.
  if (compute === undefined || compute === null) return report;
  return isCompute(compute) ? { ...report, compute } : null;
}

function isDevice(value: unknown): value is ProbeReport['devices'][number] {
  return (
    isObject(value) &&
    typeof value['index'] === 'number' &&
    typeof value['memory'] === 'number' &&
    ['name', 'compute', 'pci', 'uuid'].every((name) => typeof value[name] === 'string')
  );
}

function isRoundTrip(value: unknown): value is NonNullable<ProbeReport['roundTrip']> {
  return (
    isObject(value) &&
    typeof value['ok'] === 'boolean' &&
    typeof value['bytes'] === 'number' &&
    typeof value['microseconds'] === 'number'
  );
}

function isCompute(value: unknown): value is NonNullable<ProbeReport['compute']> {
  return (
    isObject(value) &&
    typeof value['ok'] === 'boolean' &&
    ['values', 'wrong', 'microseconds'].every((name) => typeof value[name] === 'number')
  );
}

function isNvml(value: unknown): value is ProbeReport['nvml'] {
  return (
    isObject(value) &&
    typeof value['ok'] === 'boolean' &&
    isTextOrNull(value['driver']) &&
    isTextOrNull(value['error'])
  );
}

function failureOf(value: unknown): ProbeReport['error'] {
  if (!isObject(value)) return null;
  const { kind, step, code, name, message } = value;
  if (typeof step !== 'string' || typeof message !== 'string' || !isTextOrNull(name)) return null;
  if (code !== null && typeof code !== 'number') return null;
  // An older probe does not say.
  const known = probeFailureCodes.find((one) => one.code === kind)?.code;
  return { kind: known ?? (code === null ? 'other' : 'call'), step, code, name, message };
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isTextOrNull(value: unknown): value is string | null {
  return value === null || typeof value === 'string';
}
