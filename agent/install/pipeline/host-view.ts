/** Facts of a host as `host status` tells them. */
import type { HostView } from '../../contracts/views.js';
import { servingDrift } from '../plan/serving/drift.js';
import { asItIs, type HostWorkplace } from './serving-host.js';

export async function hostView(work: HostWorkplace, isRoot: boolean): Promise<HostView> {
  const device = await work.device();
  const facts = await work.look(asItIs, device ?? 'software');
  const { manifest, socket, service } = facts;
  const installed =
    manifest === null
      ? null
      : {
          agent: manifest.agent,
          device,
          listen: facts.listen,
          files: manifest.items.filter((item) => item.kind === 'file' || item.kind === 'link').length,
        };
  return {
    installed,
    units: {
      socket: { activeState: socket.activeState, unitFileState: socket.unitFileState },
      service: { activeState: service.activeState, unitFileState: service.unitFileState },
    },
    outdated: facts.outdated,
    drift: servingDrift(facts),
    interrupted: facts.interrupted,
    answer: await answerOf(work, service.activeState, isRoot),
  };
}

async function answerOf(
  work: HostWorkplace,
  activeState: string,
  isRoot: boolean,
): Promise<HostView['answer']> {
  if (activeState !== 'active') return { kind: 'silent', message: `vgpu-hostd.service is ${activeState}` };
  return isRoot ? work.askDaemon() : { kind: 'not-asked' };
}
