import type { Consumer } from '../../contracts/manifest.js';
import { VgpuError } from '../../lib/errors.js';
import { fits, forUnit, genericProfile, usualProfile } from '../../profile/instance.js';
import type { Profile } from '../../profile/types.js';
import type { Workplace } from './workplace.js';

export interface Choice {
  readonly profile?: string;
  readonly unit?: string;
}

/** Throws `profile` for an unknown profile, `usage` where several are installed and none is named. */
export async function chooseOne(work: Chooser, choice: Choice): Promise<Profile> {
  const unit = choice.unit === undefined ? undefined : await ownName(work, choice.unit);
  const chosen = await choose(work, unit === undefined ? choice : { ...choice, unit });
  return forUnit(chosen, await ownName(work, chosen.unit));
}

type Chooser = Pick<Workplace, 'manifest' | 'profile' | 'profiles' | 'unit'>;

/** A unit has one name and may have aliases: drop-ins, the journal and the manifest need its own one. */
async function ownName(work: Chooser, unit: string): Promise<string> {
  // Without the bus the command has its own error to report, or needs no unit.
  const facts = await work.unit(unit).catch(() => null);
  return facts?.kind === 'loaded' ? facts.name : unit;
}

async function choose(work: Chooser, choice: Choice): Promise<Profile> {
  const installed = (await work.manifest())?.consumers ?? [];
  if (choice.unit !== undefined) return ofUnit(work, choice.unit, choice.profile, installed);
  if (choice.profile !== undefined) return ofProfile(work.profile(choice.profile), installed);
  const [first, second] = installed;
  if (first === undefined) return work.profile(usualProfile);
  if (second !== undefined) throw severalInstalled(installed);
  return forUnit(work.profile(first.profile), first.unit);
}

export async function chooseAll(work: Chooser, choice: Choice): Promise<readonly Profile[]> {
  const installed = (await work.manifest())?.consumers ?? [];
  if (choice.unit !== undefined || choice.profile !== undefined || installed.length === 0) {
    return [await chooseOne(work, choice)];
  }
  return installed.map((one) => forUnit(work.profile(one.profile), one.unit));
}

function ofUnit(
  work: Pick<Workplace, 'profile' | 'profiles'>,
  unit: string,
  name: string | undefined,
  installed: readonly Consumer[],
): Profile {
  const known = name ?? installed.find((one) => one.unit === unit)?.profile;
  if (known !== undefined) return forUnit(work.profile(known), unit);
  const profiles = work.profiles();
  const found = profiles.find((one) => one.unit === unit) ?? profiles.find((one) => fits(one, unit));
  return forUnit(found ?? work.profile(genericProfile), unit);
}

/** The profile's own unit, unless the profile is installed for exactly one other. */
function ofProfile(profile: Profile, installed: readonly Consumer[]): Profile {
  const units = installed.filter((one) => one.profile === profile.name).map((one) => one.unit);
  const [only] = units;
  if (only === undefined || units.length > 1 || units.includes(profile.unit)) return profile;
  return forUnit(profile, only);
}

function severalInstalled(installed: readonly Consumer[]): VgpuError {
  const list = installed.map((one) => `${one.unit} (profile ${one.profile})`).join(', ');
  return new VgpuError(`several services have the GPU, so the command must name one: ${list}`, {
    kind: 'usage',
    operation: 'choose the service',
    remedy: `name it: --unit ${installed[0]?.unit ?? 'UNIT'}`,
  });
}
