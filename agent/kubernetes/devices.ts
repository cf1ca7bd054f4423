/** The devices that a node offers to its kubelet, and the answers to its requests. Pure. */
import { cdiKind, devicesIn } from '../containers/cdi.js';

/** One share of a GPU. Without time-slicing a GPU has one share. */
interface Share {
  /** `GPU-SHARE`, both from 0: the same when the number of shares changes, because the kubelet remembers it. */
  readonly id: string;
  readonly gpu: number;
}

/** Shares of each GPU, or of the GPUs in their order; a GPU beyond the list has one. */
export type TimeSlicing = number | readonly number[];

/** The numbers of the GPUs that the CDI file offers. */
export function gpusIn(cdiText: string): readonly number[] {
  return devicesIn(cdiText).flatMap((name) => {
    const number = name.startsWith(`${cdiKind}=`) ? name.slice(cdiKind.length + 1) : '';
    return /^\d{1,4}$/.test(number) ? [Number(number)] : [];
  });
}

export function sharesOf(gpus: readonly number[], timeSlicing: TimeSlicing): readonly Share[] {
  return gpus.flatMap((gpu) => {
    const count = typeof timeSlicing === 'number' ? timeSlicing : (timeSlicing[gpu] ?? 1);
    return Array.from({ length: count }, (_, share) => ({ id: `${gpu}-${share}`, gpu }));
  });
}

type Answer<T> =
  | { readonly kind: 'answer'; readonly value: T }
  | { readonly kind: 'wrong'; readonly reason: string };

interface Grant {
  readonly envs: Readonly<Record<string, string>>;
  readonly cdi_devices: readonly { readonly name: string }[];
}

/**
 * The edits of one CDI device set CUDA_VISIBLE_DEVICES, and of several devices the last would win. So a container with
 * several GPUs gets `all`, which does not set the variable, and the variable from the kubelet.
 */
export function grant(shares: readonly Share[], ids: readonly string[]): Answer<Grant> {
  const found = lookUp(shares, ids);
  if (found.kind === 'wrong') return found;
  const gpus = [...new Set(found.value.map(({ gpu }) => gpu))].toSorted((a, b) => a - b);
  const [first, second] = gpus;
  if (first === undefined) return wrong('the request names no device');
  if (second === undefined) return answer({ envs: {}, cdi_devices: [{ name: `${cdiKind}=${first}` }] });
  return answer({
    envs: { CUDA_VISIBLE_DEVICES: gpus.join(',') },
    cdi_devices: [{ name: `${cdiKind}=all` }],
  });
}

interface Choice {
  readonly available: readonly string[];
  readonly required: readonly string[];
  readonly count: number;
}

/** Prefers different GPUs, and of these the ones with most shares left. */
export function prefer(shares: readonly Share[], choice: Choice): Answer<readonly string[]> {
  const available = lookUp(shares, choice.available);
  if (available.kind === 'wrong') return available;
  const required = lookUp(shares, choice.required);
  if (required.kind === 'wrong') return required;
  const chosen = [...required.value];
  const left = new Map<number, Share[]>();
  for (const share of available.value) {
    if (chosen.includes(share)) continue;
    left.set(share.gpu, [...(left.get(share.gpu) ?? []), share]);
  }
  const used = (gpu: number): number => chosen.filter((one) => one.gpu === gpu).length;
  while (chosen.length < choice.count) {
    const [best] = [...left]
      .filter(([, some]) => some.length > 0)
      .toSorted(([a, ofA], [b, ofB]) => used(a) - used(b) || ofB.length - ofA.length || a - b);
    const share = best?.[1].shift();
    if (share === undefined)
      return wrong(`${choice.count} devices were requested, and ${chosen.length} are available`);
    chosen.push(share);
  }
  return answer(chosen.map(({ id }) => id));
}

function lookUp(shares: readonly Share[], ids: readonly string[]): Answer<readonly Share[]> {
  const byId = new Map(shares.map((share) => [share.id, share]));
  const found = new Set<Share>();
  for (const id of ids) {
    const share = byId.get(id);
    if (share === undefined) {
      return wrong(
        `this node has no device ${JSON.stringify(id.slice(0, 63))}; it has ${shares.length} devices`,
      );
    }
    found.add(share);
  }
  return answer([...found]);
}

function answer<T>(value: T): Answer<T> {
  return { kind: 'answer', value };
}

function wrong(reason: string): { readonly kind: 'wrong'; readonly reason: string } {
  return { kind: 'wrong', reason };
}
