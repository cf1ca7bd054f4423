/** The program that loads a device profile as vgpu-hostd does, and the shipped H100 to start from. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type { ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { buildProgram, type Ended, ROOT, runProgram } from '../cuda/private_programs.js';

/** Where the shipped profiles lie. */
export const DIRECTORY = path.join(ROOT, 'profiles', 'devices');

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Device = { [key: string]: Json; attributes: Record<string, Json>; pci: Record<string, Json> };
export type Profile = { [key: string]: Json; devices: Device[] };

export interface Loader {
  readonly program: string;
  readonly scratch: string;
  readonly validate: ValidateFunction;
  /** The text of the shipped H100. */
  readonly good: string;
  /** Writes the text to a file and loads it. */
  load(text: string): Promise<Ended & { readonly file: string }>;
  remove(): Promise<void>;
}

export async function makeLoader(): Promise<Loader> {
  const program = await buildProgram({
    name: 'device_profile',
    libraries: ['jansson'],
    sources: [
      'test/shim/programs/device_profile.c',
      'shim-src/host/backend/software/profile/profile.c',
      'shim-src/host/backend/software/profile/profile_device.c',
      'shim-src/host/backend/software/profile/profile_reader.c',
    ],
  });
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'device-profile-'));
  const schema: object = JSON.parse(await readFile(path.join(DIRECTORY, 'device.schema.json'), 'utf8'));
  return {
    program,
    scratch,
    validate: new Ajv2020({ allErrors: true, strict: true }).compile(schema),
    good: await readFile(path.join(DIRECTORY, 'h100-80gb.json'), 'utf8'),
    load: async (text) => {
      const file = path.join(scratch, 'profile.json');
      await writeFile(file, text);
      return { ...(await runProgram(program, [file])), file };
    },
    remove: () => rm(scratch, { recursive: true, force: true }),
  };
}

/** A profile with one device, changed. */
export function changed(good: string, change: (profile: Profile, device: Device) => void): string {
  const profile = JSON.parse(good) as Profile;
  const [device] = profile.devices;
  assert.ok(device);
  change(profile, device);
  return JSON.stringify(profile);
}
