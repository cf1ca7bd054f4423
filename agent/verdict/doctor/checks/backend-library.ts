import path from 'node:path';
import { isContainer } from '../../../containers/container-unit.js';
import { versionFits } from '../../log/grammar.js';
import { broken, byHand, editUnit, notApplicable, ok, unknown } from '../finding.js';
import type { Check, DoctorFacts, Finding } from '../types.js';

/** An upgrade can lose the consumer's own CUDA code, or leave the device out of it; then no driver helps. */
export const backendLibrary: Check = {
  id: 'backend-library',
  title: 'the service has its CUDA backend',
  looksAt:
    "the files that the profile names as the consumer's CUDA backend, in the consumer's own directories, and what " +
    'the service says of the device in its log',
  explains: ['shim-not-loaded', 'no-discovery-line', 'architecture-not-compiled'],
  examine(facts) {
    const { profile, verdict, look, machine } = facts;
    const inContainer = isContainer(machine.unit);
    const left = leftOut(facts);
    if (left !== null) return left;
    const rule = profile.doctor?.backend;
    if (rule === undefined) return notApplicable('the profile names no such file');
    if (!versionFits(rule.versions, verdict.consumerVersion)) {
      return notApplicable(
        `${profile.name} ${verdict.consumerVersion ?? 'of an unknown version'} keeps it in another directory, or may not have it`,
      );
    }
    const { directories, libraries } = look.consumer;
    const named = libraries.filter((one) => rule.files.includes(path.basename(one.path)));
    const whole = named.filter(({ elf }) => elf !== null);
    if (whole.length > 0) return ok(...whole.map((one) => one.path));
    if (verdict.mode === 'gpu')
      return notApplicable('it keeps its CUDA code in another directory: it is on the GPU');
    if (inContainer && machine.processes.length === 0) return unknown('no process of its container is known');
    const spoilt = named.map((one) => `${one.path}: ${one.problem ?? 'cannot be used'}`);
    return broken({
      cause: `${profile.name} has no ${rule.files.join(' or ')}: ${rule.why}. An interrupted upgrade is a frequent cause.`,
      evidence: spoilt.length > 0 ? spoilt : [lookedIn(rule.files, directories)],
      remedy: inContainer
        ? editUnit(facts, `use an image of ${profile.name} that has it`)
        : byHand(`install ${profile.name} again, as it was installed before`, rule.reinstall),
    });
  },
};

/** It has CUDA code, and none for this device. */
function leftOut({ profile, observation, verdict }: DoctorFacts): Finding | null {
  const { log, probe } = observation;
  const said = log.reason ?? (log.mode === 'gpu' ? null : log.hint);
  if (said !== 'architecture-not-compiled') return null;
  const lines = log.evidence.filter(({ kind, weight }) => kind === 'log-line' && weight === 'against');
  const devices = probe?.kind === 'answered' ? probe.report.devices : [];
  return broken({
    cause: `${profile.name} has no code for the compute capability of this device, so it does not use the device.`,
    evidence: [
      ...lines.map(({ text }) => text),
      ...devices.map(({ name, compute }) => `${name}: compute capability ${compute}, as vgpu-probe finds`),
    ],
    remedy: byHand(
      `upgrade ${profile.name}, or choose another of its CUDA libraries (see the reason architecture-not-compiled); ` +
        'if the GPU is simulated, you can also choose another device profile on the host; then',
      `sudo systemctl restart ${verdict.unit}`,
    ),
  });
}

function lookedIn(files: readonly string[], directories: readonly string[]): string {
  const what = files.join(', ');
  return directories.length === 0
    ? `${what}: none of the directories that the profile names exists`
    : `${what}: not in ${directories.join(', ')}`;
}
