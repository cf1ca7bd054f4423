/** The files that say how a host serves, written and read back. Pure. */
import type { GuestLimits, HostDevice } from '../../contracts/serving.js';
import { assignments } from '../../lib/unit-file.js';
import { parseEndpoint } from '../vgpu-host/endpoint.js';

const header = 'Written by vgpu-agent host install. Taken away by: vgpu-agent host uninstall';

/** /etc/default/vgpu-hostd where there was none. */
export function defaultsText(device: HostDevice): string {
  return `# ${header}
# You may edit this file; systemctl restart vgpu-hostd applies it, and ends the sessions.
# cuda: the GPU of this machine. software: a simulated one, which says so.
VGPU_DEVICE=${device}
# More options of vgpu-hostd(8).
VGPU_OPTIONS=
`;
}

/** The text with another device; everything else of it is kept. */
export function withDevice(text: string, device: HostDevice): string {
  const lines = text.split('\n');
  const at = lines.findLastIndex((line) => /^\s*VGPU_DEVICE\s*=/.test(line));
  if (at >= 0) return lines.with(at, `VGPU_DEVICE=${device}`).join('\n');
  return `${text}${text === '' || text.endsWith('\n') ? '' : '\n'}VGPU_DEVICE=${device}\n`;
}

/** The device that /etc/default/vgpu-hostd names; null: none that there is. */
export function deviceIn(text: string): HostDevice | null {
  const last = [...text.matchAll(/^\s*VGPU_DEVICE\s*=\s*"?([a-z]*)"?\s*$/gm)].at(-1)?.[1];
  return last === 'cuda' || last === 'software' ? last : null;
}

/** /etc/vgpu/hostd.conf: every guest that can connect is allowed, within these limits. */
export function confText({ memory, sessions }: GuestLimits): string {
  const limits = [
    ...(memory === null ? [] : [`memory=${memory}`]),
    ...(sessions === null ? [] : [`sessions=${sessions}`]),
  ];
  return `# ${header}
# You may edit this file: who may connect, and the limits of each guest (vgpu-hostd.conf(5)).
# vgpu-hostd --check-config reads it; systemctl reload vgpu-hostd applies it.
limits ${limits.join(' ')}
allow any
`;
}

/** The socket unit with these addresses. `template` is units/vgpu-hostd.socket. */
export function socketText(template: string, listen: readonly string[]): string {
  const lines = listen.map((address) => `ListenStream=${streamOf(address)}`).join('\n');
  return `# ${header}\n${template.replace(/^ListenStream=.*$/m, lines)}`;
}

export function serviceText(template: string): string {
  return `# ${header}\n# Settings of your own go into a drop-in: systemctl edit vgpu-hostd.\n${template}`;
}

/** The addresses of a socket unit, as `--listen` writes them. */
export function listenIn(text: string): readonly string[] {
  return assignments([text], 'Socket', 'ListenStream').flatMap((stream) => {
    const port = /^vsock::(\d+)$/.exec(stream)?.[1];
    if (port !== undefined) return [`vsock:${port}`];
    if (stream.startsWith('/') || stream.startsWith('@')) return [`unix:${stream}`];
    return parseEndpoint(`tcp:${stream}`).kind === 'tcp' ? [`tcp:${stream}`] : [];
  });
}

function streamOf(address: string): string {
  return address.startsWith('vsock:')
    ? `vsock::${address.slice('vsock:'.length)}`
    : address.replace(/^(?:unix|tcp):/, '');
}
