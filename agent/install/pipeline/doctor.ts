/** doctor: the facts that its checks are given, gathered once; and `--fix`, which is install's own way. */

import type { Emit } from '../../contracts/events.js';
import type { Profile } from '../../profile/types.js';
import { decideVerdict } from '../../verdict/decide.js';
import { diagnose } from '../../verdict/doctor/diagnose.js';
import type { Diagnosis, DoctorFacts } from '../../verdict/doctor/finding.js';
import { type Approval, recoverFirst } from './ask-then-lock.js';
import { type InstallResult, install } from './install.js';
import type { Traced } from './trace.js';
import type { DoctorWorkplace } from './workplace.js';

interface DoctorRequest {
  readonly profile: Profile;
  /** As in ConfirmRequest. What the consumer has said is there already, so these are short. */
  readonly timeoutMs: number | null;
  readonly patienceMs?: number | null;
  readonly signal: AbortSignal;
  /** The result of a trace, and the restart after it; null or absent: there was none. */
  readonly traced?: Traced | null;
}

export interface Examined {
  readonly facts: DoctorFacts;
  readonly diagnosis: Diagnosis;
}

export async function examine(work: DoctorWorkplace, request: DoctorRequest, emit: Emit): Promise<Examined> {
  const facts = await gather(work, request, emit);
  return { facts, diagnosis: diagnose(facts) };
}

async function gather(work: DoctorWorkplace, request: DoctorRequest, emit: Emit): Promise<DoctorFacts> {
  const { profile, timeoutMs, patienceMs = null, signal, traced = null } = request;
  const mark = traced?.mark ?? null;
  emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${profile.unit}` });
  const machine = await work.inspect(profile, null);
  emit({ kind: 'facts', facts: machine });
  emit({ kind: 'phase', phase: 'confirm', text: `finding out where ${profile.unit} runs` });
  const [observation, look] = await Promise.all([
    work.observe({ profile, facts: machine, mark, timeoutMs, patienceMs, signal }, emit),
    work.lookCloser(profile, machine),
  ]);
  const plan = work.planInstall(profile, machine, {
    endpoint: machine.manifest?.endpoint ?? null,
    // Separate checks report a real GPU and a host that does not answer, and neither must hide other findings.
    force: true,
    allowUnreachable: true,
    restart: true,
  });
  return {
    profile,
    machine,
    look,
    plan,
    observation,
    verdict: decideVerdict(observation),
    trace: traced?.facts ?? null,
  };
}

interface FixRequest extends DoctorRequest, Approval {}

/** Null: nothing of vgpu-agent is installed here, and the doctor does not decide to install it. */
export async function fix(
  work: DoctorWorkplace,
  request: FixRequest,
  emit: Emit,
): Promise<InstallResult | null> {
  await work.locked('repair', () => recoverFirst(work, emit), { signal: request.signal });
  const manifest = await work.manifest();
  if (manifest === null) return null;
  return install(
    work,
    {
      profile: request.profile,
      host: manifest.endpoint,
      force: false,
      restart: true,
      rollbackOnFailure: false,
      timeoutMs: null,
      signal: request.signal,
      approve: request.approve,
      asks: request.asks,
    },
    emit,
  );
}
