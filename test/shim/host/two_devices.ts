/** Two simulated GPUs for the stand-in driver, whose profile is one file. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';

export interface Profile {
  readonly devices: readonly { readonly name: string; readonly uuid: string; readonly pci: object }[];
}

export function profile(name: string): Profile {
  return JSON.parse(readFileSync(path.join(ROOT, `profiles/devices/${name}.json`), 'utf8')) as Profile;
}

/** Writes them, an A100 at the first bus and an H200 at the second, and gives the file's name back. */
export function twoDevices(file: string): string {
  const [first, second] = [profile('a100-40gb'), profile('h200')];
  const devices = [...first.devices, ...second.devices].map((device, i) => ({
    ...device,
    pci: { ...device.pci, address: `0000:0${i + 1}:00.0` },
  }));
  writeFileSync(file, JSON.stringify({ ...first, devices }));
  return file;
}
