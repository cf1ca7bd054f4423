/** All facts about this guest, at one moment. */
import { machine } from 'node:os';
import { consumersOwn } from '../containers/container-unit.js';
import type { Distribution, LibraryCandidate, LoaderFacts, MachineFacts } from '../contracts/facts.js';
import type { Consumer, Manifest } from '../contracts/manifest.js';
import type { UnitFacts } from '../contracts/unit.js';
import {
  defaultSocket,
  dropInPath,
  guestConf,
  guestState,
  isInStore,
  loaderConf,
  storeCurrent,
  traceRecord,
} from '../lib/paths.js';
import type { CommandRunner } from '../lib/run-command.js';
import type { Profile } from '../profile/types.js';
import type { Manager } from '../systemd/types.js';
import { readContainers } from './containers.js';
import { readDistribution } from './distribution.js';
import { ContentCache, ownedFile } from './files/content.js';
import { Root } from './files/root.js';
import { readAlternatives } from './libraries/alternatives.js';
import { findCandidates, libraryOf } from './libraries/candidates.js';
import { readLoaderCache, readLoaderDirectories } from './libraries/loader.js';
import { type OwnerCache, packageOwners } from './libraries/packages.js';
import { readService } from './service.js';
import { readShimBuild, readStore } from './shim/store.js';
import { resolveServiceUser } from './unit/access.js';
import { readProcesses } from './unit/processes.js';
import { findRealGpu, readVmMemory } from './vgpu-host/devices.js';
import { readHost } from './vgpu-host/probe.js';

export interface InspectEffects {
  readonly root: string;
  readonly runner: CommandRunner;
  readonly manager: Pick<Manager, 'unit' | 'processes'>;
  readManifest(): Promise<Manifest | null>;
  /** The profile of a consumer that is installed; null when it cannot be read any more. */
  profileOf(consumer: Consumer): Profile | null;
  /** Why the service refuses agent.json; null: it does not. */
  confProblem(): string | null;
  /** Keeps contents from one inspection to the next (the service); default: a new one. */
  readonly contents?: ContentCache;
  readonly owners?: OwnerCache;
}

export interface InspectOptions {
  readonly endpoint: string | null;
  readonly endpointFrom?: 'agent.json';
  readonly environmentHost: string | undefined;
  readonly shimDirectory: string;
  /** Ask the host and, where there is a trace of one, a real GPU. False keeps to files, bus and /proc. */
  readonly ask: boolean;
  readonly questionTimeoutMs?: number;
}

const defaultQuestionMs = 5_000;

/** Changes nothing. Throws when the shim is not built, the bus is silent, or an address is wrong. */
export async function inspect(
  effects: InspectEffects,
  profile: Profile,
  options: InspectOptions,
): Promise<MachineFacts> {
  const { runner } = effects;
  const root = new Root(effects.root);
  const contents = effects.contents ?? new ContentCache();
  const timeoutMs = options.questionTimeoutMs ?? defaultQuestionMs;
  const isTraced = (): boolean => root.lstat(traceRecord)?.isFile() === true;
  // A trace may end while we look, and what was seen of the unit before is then of it.
  const traced = isTraced();

  // Each part begins at once and runs beside the others: bus, getent and the probe work while files are read.
  const consumer = inspectConsumer(effects, profile.unit, contents);
  const containers = consumer.then(({ unit }) => readContainers(root, runner, unit, contents));
  const shim = readShimBuild(options.shimDirectory, contents);
  const ourFiles = readOurFiles(root, profile, contents);
  const libraries = readLibraries(root, runner, profile, contents, effects.owners);
  const host = Promise.all([shim, ourFiles]).then(([built, files]) =>
    readHost(runner, {
      sources: {
        flag: options.endpoint,
        ...(options.endpointFrom === undefined ? {} : { flagFrom: options.endpointFrom }),
        environment: options.environmentHost,
        guestConf: files.guestConf.content,
        defaultSocketExists: root.stat(defaultSocket)?.isSocket() ?? false,
      },
      shim: options.ask ? built : null,
      timeoutMs,
    }),
  );
  const realGpu = Promise.all([libraries, shim]).then(([found, built]) =>
    findRealGpu(root, runner, {
      candidates: found.candidates,
      architecture: found.distribution.architecture,
      program: options.ask ? (built.files.find((file) => file.name === 'vgpu-probe')?.source ?? null) : null,
      timeoutMs,
    }),
  );
  const manifest = effects.readManifest();
  const service = Promise.all([libraries, manifest]).then(([{ distribution }, installed]) => {
    const others = (installed?.consumers ?? [])
      .filter((one) => one.unit !== profile.unit)
      .map((one) => ({ unit: one.unit, profile: effects.profileOf(one) }));
    const consumers = [...others, { unit: profile.unit, profile }];
    return readService(root, contents, effects.manager, consumers, distribution, effects.confProblem);
  });
  const store = readStore(root, contents);
  const vmMemory = readVmMemory(root, contents);
  // All at once, so that a failure of one leaves no other unhandled.
  await Promise.all([
    libraries,
    ourFiles,
    consumer,
    shim,
    host,
    realGpu,
    manifest,
    service,
    containers,
    store,
    vmMemory,
  ]);
  return {
    ...(await libraries),
    ...(await ourFiles),
    ...(await consumer),
    shim: await shim,
    host: await host,
    realGpu: await realGpu,
    store: await store,
    manifest: await manifest,
    service: await service,
    containers: await containers,
    vmMemory: await vmMemory,
    interrupted: root.lstat(guestState.transaction) !== null,
    ...(traced || isTraced() ? { traced: true } : {}),
  };
}

async function readOurFiles(
  root: Root,
  profile: Profile,
  contents: ContentCache,
): Promise<Pick<MachineFacts, 'guestConf' | 'loaderConf' | 'dropIn'>> {
  const [conf, loader, dropIn] = await Promise.all([
    ownedFile(root, guestConf, contents),
    ownedFile(root, loaderConf, contents),
    ownedFile(root, dropInPath(profile.unit), contents),
  ]);
  return { guestConf: conf, loaderConf: loader, dropIn };
}

async function readLibraries(
  root: Root,
  runner: CommandRunner,
  profile: Profile,
  contents: ContentCache,
  owners: OwnerCache | undefined,
): Promise<Pick<MachineFacts, 'distribution' | 'loader' | 'alternatives' | 'candidates'>> {
  const distribution = readDistribution(root, machine());
  const cache = await readLoaderCache(root, runner);
  const loader: LoaderFacts = {
    cache: cache.filter(({ soname }) => libraryOf(soname) !== null),
    directories: readLoaderDirectories(root, distribution),
  };
  const alternatives = readAlternatives(root);
  const found = await findCandidates(root, profile, distribution, loader, alternatives, contents);
  const candidates = await withOwners(root, runner, distribution, found, owners);
  return { distribution, loader, alternatives, candidates };
}

async function inspectConsumer(
  effects: InspectEffects,
  name: string,
  contents: ContentCache,
): Promise<Pick<MachineFacts, 'unit' | 'serviceUser' | 'processes'>> {
  const unit: UnitFacts = await effects.manager.unit(name);
  if (unit.kind !== 'loaded') return { unit, serviceUser: null, processes: [] };
  const [serviceUser, processes] = await Promise.all([
    resolveServiceUser(effects.runner, unit),
    unit.mainPid === 0 && unit.activeState === 'inactive'
      ? []
      : effects.manager
          .processes(name)
          .then((pids) => readProcesses(pids, contents))
          .then((found) => consumersOwn(unit, found)),
  ]);
  return { unit, serviceUser, processes };
}

async function withOwners(
  root: Root,
  runner: CommandRunner,
  distribution: Distribution,
  candidates: readonly LibraryCandidate[],
  cache: OwnerCache | undefined,
): Promise<readonly LibraryCandidate[]> {
  const fileOf = ({ resolution }: LibraryCandidate): string | null =>
    resolution.kind === 'file' ? resolution.realPath : null;
  // dpkg-query reads the file lists of all packages. What leads through the store's link to its current version needs
  // no change, so nothing uses its owner: on a machine with only our library the query is skipped.
  const isOurs = ({ path: name, resolution }: LibraryCandidate): boolean =>
    isInStore(name) ||
    (resolution.kind === 'file' &&
      resolution.steps.some(({ target }) => target.startsWith(`${storeCurrent}/`)));
  const others = candidates.filter((one) => one.state.kind !== 'absent' && !isOurs(one));
  const paths = others.flatMap((one) => [one.path, fileOf(one)]).filter((file) => file !== null);
  const owners = await packageOwners(root, runner, distribution.family, paths, cache);
  return candidates.map((candidate) => ({
    ...candidate,
    ownerOfPath: owners.get(candidate.path) ?? null,
    ownerOfFile: owners.get(fileOf(candidate) ?? '') ?? null,
  }));
}
