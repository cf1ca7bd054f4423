/** Checks of library files on this machine: a real GPU, the links to the driver, the consumer's own libraries. */
import path from 'node:path';
import { isContainer } from '../../../containers/container-unit.js';
import type { ElfFacts, LibraryCandidate } from '../../../contracts/facts.js';
import { nativeElf } from '../../../guest/elf.js';
import { libraryOf } from '../../../guest/libraries/candidates.js';
import { isInStore } from '../../../lib/paths.js';
import { vendorText } from '../../../lib/text.js';
import { choiceOf } from '../../../profile/instance.js';
import { versionFits } from '../../log/grammar.js';
import {
  broken,
  byHand,
  type Check,
  changeEvidence,
  consumerCandidates,
  type DoctorFacts,
  editUnit,
  type Finding,
  fixes,
  leadsToStore,
  notApplicable,
  ok,
  plannedChanges,
  publicCandidates,
  repairPlace,
  unknown,
  warning,
  whereFound,
} from '../finding.js';

export const realGpu: Check = {
  id: 'real-gpu',
  title: 'the guest has no GPU of its own',
  looksAt:
    "/proc/driver/nvidia/gpus, /dev/nvidia* and /dev/dxg, and what NVIDIA's own libcuda lists, if there is one",
  explains: [],
  examine({ machine, profile }) {
    const { realGpu: found, manifest } = machine;
    if (found.kind === 'none') return ok();
    if (manifest === null) return notApplicable('no shim is installed that could take its place');
    const giveBack = byHand(
      'if the service should use that GPU, uninstall the shim',
      `sudo vgpu-agent uninstall ${choiceOf(profile)}`,
    );
    const cause = found.works
      ? `A real GPU works in this guest, and ${profile.unit} uses the host's instead of it.`
      : 'This guest has a device of a real GPU that does not work. ' +
        'The shim does not need it; to use that GPU, repair its driver.';
    return warning({ cause, evidence: [found.evidence], remedy: giveBack });
  },
};

export const libraryFormat: Check = {
  id: 'library-format',
  title: 'files named like the driver can be loaded',
  looksAt:
    "class, machine and SONAME of every libcuda and libnvidia-ml in the public and the service's directories",
  explains: ['library-not-found'],
  examine(facts) {
    const places = [...publicCandidates(facts), ...consumerCandidates(facts)];
    const found = places.filter((one) => one.resolution.kind === 'file' && !leadsToStore(one));
    if (found.length === 0) return notApplicable('no other file has the name of a driver library');
    const bad = found.flatMap((candidate) => {
      const what = formatProblem(candidate, facts);
      return what === null ? [] : [{ candidate, what }];
    });
    const [first] = bad;
    if (first === undefined) return ok(`${found.length} inspected`);
    return broken({
      cause:
        'A program that looks for the CUDA driver there gets a file that the loader refuses, or that has the name of another library.',
      evidence: bad.map(({ candidate, what }) => `${whereFound(candidate)} ${what}`),
      remedy: repairPlace(facts, first.candidate),
    });
  },
};

/** A predicate without a full stop; null when the loader takes it under that name. */
function formatProblem(
  { elf, elfProblem, library }: LibraryCandidate,
  { machine }: DoctorFacts,
): string | null {
  if (elf === null)
    return elfProblem === null || elfProblem === undefined ? null : `is not a library: ${elfProblem}`;
  if (elf.type !== 'dyn') return `is not a shared library (ELF type ${elf.type})`;
  const native = nativeElf(machine.distribution.architecture);
  if (native !== null && (native.class !== elf.class || native.machine !== elf.machine)) {
    return `is for ${elf.class}-bit ${elf.machine}; this machine loads ${native.class}-bit ${native.machine} (wrong ELF class)`;
  }
  const soname = `${library}.so.1`;
  if (elf.soname === soname) return null;
  return elf.soname === null
    ? `has no SONAME; the loader finds it by name only with the SONAME ${soname}`
    : `has the SONAME ${elf.soname}, not ${soname}`;
}

export const foreignLibrary: Check = {
  id: 'foreign-library',
  title: 'no other driver is found in place of the shim',
  looksAt:
    'the vendor of each libcuda and libnvidia-ml in the public directories and those of the service, by content',
  explains: ['foreign-library-loaded'],
  examine(facts) {
    if (facts.machine.manifest === null) return notApplicable('nothing is installed');
    const inPublic = publicCandidates(facts).filter(isForeign);
    const inConsumer = consumerCandidates(facts).filter(isForeign);
    const [first] = [...inPublic, ...inConsumer];
    if (first === undefined) return ok();
    const trouble = {
      cause:
        inPublic.length > 0
          ? 'A program that looks for the CUDA driver there gets that library, which does not use the host.'
          : `${facts.profile.name}'s own directories are searched first for its child processes, and hold a driver that does not use the host.`,
      evidence: [...inPublic, ...inConsumer].map((candidate) => describe(candidate, facts)),
      remedy: repairPlace(facts, first),
    };
    // A preloaded shim wins over what only lies in a directory: then GPU mode stands for now.
    return inPublic.length === 0 && facts.verdict.mode === 'gpu' ? warning(trouble) : broken(trouble);
  },
};

function isForeign(candidate: LibraryCandidate): boolean {
  return (candidate.vendor === 'nvidia' || candidate.vendor === 'foreign') && !leadsToStore(candidate);
}

function describe(candidate: LibraryCandidate, { machine }: DoctorFacts): string {
  const noGpu = machine.realGpu.kind === 'none' ? ', which finds no GPU in this machine' : '';
  const whose = candidate.vendor === 'nvidia' ? `NVIDIA's library${noGpu}` : vendorText(candidate.vendor);
  const owner = candidate.ownerOfFile === null ? '' : ` (package ${candidate.ownerOfFile})`;
  return `${whereFound(candidate)} is ${whose}${owner}`;
}

export const publicLinks: Check = {
  id: 'public-links',
  title: 'public links lead to the shim',
  looksAt:
    "the profile's public directories, every link followed to its end, Debian's alternatives among them",
  explains: ['library-not-found'],
  examine(facts) {
    if (facts.machine.manifest === null) return notApplicable('nothing is installed');
    const planned = plannedChanges(facts).filter(
      (change) => change.kind === 'alternative' || (change.kind === 'write-link' && !isInStore(change.path)),
    );
    if (planned.length === 0) {
      const leading = publicCandidates(facts).filter(({ vendor }) => vendor === 'vgpu');
      return ok(...leading.map((candidate) => `${candidate.path} leads to the shim`));
    }
    return broken({
      cause:
        'A program that looks for the CUDA driver in the usual directories does not find the shim there.',
      evidence: planned.map(changeEvidence),
      remedy: fixes(facts, 'set the links again'),
    });
  },
};

/** An upgrade can lose the consumer's own CUDA code, or leave the device out of it; then no driver helps. */
export const backendLibrary: Check = {
  id: 'backend-library',
  title: 'the service has its CUDA backend',
  looksAt:
    "the files that the profile names as the consumer's CUDA backend, in the consumer's own directories, and what " +
    'the service logged about the device',
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

const shown = 10;

export const symbols: Check = {
  id: 'symbols',
  title: 'the shim has every function that the service needs',
  looksAt:
    "whether the loader finds in the shim every function of the driver and of NVML that the service's own libraries need",
  explains: ['library-symbol-missing'],
  examine({ machine, look }) {
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const needs = new Map<string, readonly string[]>();
    for (const { neededBy, outcome, missing } of look.loader.processes.flatMap(({ choices }) => choices)) {
      if (neededBy === null || outcome.kind !== 'found' || outcome.vendor !== 'vgpu') continue;
      needs.set(neededBy, [...new Set([...(needs.get(neededBy) ?? []), ...missing])]);
    }
    if (needs.size === 0) return notApplicable('the loader gives the shim to none of its own libraries');
    const lacking = [...needs].filter(([, missing]) => missing.length > 0);
    if (lacking.length === 0) return ok(...[...needs.keys()].map((file) => `${file}: all are there`));
    const all = lacking.length === needs.size;
    const trouble = {
      cause:
        `The loader refuses ${lacking.map(([file]) => file).join(', ')}: ` +
        `the shim ${machine.shim.version} does not have what it needs.` +
        (all ? '' : ' It will use its other libraries, which can be loaded.'),
      evidence: lacking.map(([file, missing]) => {
        const rest = missing.length > shown ? `, and ${missing.length - shown} more` : '';
        return `${file} needs ${missing.slice(0, shown).join(', ')}${rest}`;
      }),
      remedy: byHand(
        'install a newer vgpu-agent; until there is one, a former release of the service',
        'vgpu-agent version',
      ),
    };
    return all ? broken(trouble) : warning(trouble);
  },
};

/** Programs and libraries that name a driver in a way which no preload and no search path changes. */
export const directLinking: Check = {
  id: 'direct-linking',
  title: 'the service is linked to the driver by its SONAME',
  looksAt:
    "DT_NEEDED of the service's programs and own libraries; a preloaded shim is found by its SONAME, with RTLD_DEEPBIND too",
  explains: ['shim-not-loaded', 'foreign-library-loaded'],
  examine(facts) {
    const { executables, consumer } = facts.look;
    const binaries = binariesOf([...executables, ...consumer.libraries]);
    if (binaries.length === 0) return notApplicable('none of its programs and libraries could be read');
    const asking = binaries.flatMap(({ path: file, elf }) =>
      elf.needed
        .filter((name) => libraryOf(path.basename(name)) !== null)
        .map((name) => ({ file, name, right: /^lib(?:cuda|nvidia-ml)\.so\.1$/.test(name) })),
    );
    const wrong = asking.filter(({ right }) => !right);
    const fixed = staticMain(facts);
    // A consumer that is on the GPU through the shim all the same is well.
    if ((wrong.length === 0 && fixed === null) || facts.verdict.mode === 'gpu') {
      return ok(...asking.map(({ file, name }) => `${file} needs ${name}`));
    }
    return broken({
      cause:
        fixed === null
          ? 'It is linked to a driver by a path or by another SONAME, so the shim is not used.'
          : 'It is linked statically: no loader reads LD_PRELOAD or LD_LIBRARY_PATH for it.',
      evidence: [
        ...wrong.map(({ file, name }) => `${file}: DT_NEEDED ${name}`),
        ...(fixed === null ? [] : [`${fixed} has no DT_NEEDED at all`]),
      ],
      remedy: editUnit(facts, 'use a build that is linked dynamically, with libcuda.so.1'),
    });
  },
};

function binariesOf(all: readonly { readonly path: string; readonly elf: ElfFacts | null }[]) {
  return all.flatMap(({ path: file, elf }) => (elf === null ? [] : [{ path: file, elf }]));
}

/** The one program of the service when it is static; where it has dynamic ones too, those do the work. */
function staticMain({ look }: DoctorFacts): string | null {
  const known = binariesOf(look.executables);
  return known.every(({ elf }) => elf.needed.length === 0) ? (known[0]?.path ?? null) : null;
}

export const nvml: Check = {
  id: 'nvml',
  title: 'NVML works too',
  looksAt: 'libnvidia-ml.so.1, called by vgpu-probe in the environment of the unit, separately from libcuda',
  explains: [],
  examine({ machine, observation, look }) {
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { probe } = observation;
    if (probe?.kind !== 'answered') return unknown('vgpu-probe gave no answer in the unit');
    const { report } = probe;
    if (!report.ok) return notApplicable('CUDA does not work; repair that before NVML');
    if (report.nvml.ok) return ok(`driver ${report.nvml.driver ?? 'unknown'}`);
    const picked = look.loader.processes.flatMap(({ choices }) =>
      choices.flatMap(({ library, outcome }) =>
        library === 'libnvidia-ml.so.1' && outcome.kind === 'found'
          ? [`the loader chooses ${outcome.realPath}, by ${outcome.by}`]
          : [],
      ),
    );
    return warning({
      cause:
        'CUDA works and NVML does not. Programs that ask NVML first (vLLM, nvidia-smi) find no GPU; ' +
        'Ollama works without it, but reads free memory and the driver version from it.',
      evidence: [report.nvml.error ?? 'it gave no reason', ...new Set(picked)],
      remedy: byHand(
        'see which file is loaded for it; if it is not the shim, remove it',
        `ldconfig -p | grep libnvidia-ml; systemctl cat ${machine.unit.name}`,
      ),
    });
  },
};
