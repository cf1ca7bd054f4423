/** The small files of vgpu-agent besides the drop-in: their text, and the changes that write it. Pure. */

import type { MachineFacts, OwnedFileFacts } from '../../contracts/facts.js';
import type { Change, Preflight } from '../../contracts/plan.js';
import { parseGuestConf } from '../../guest/vgpu-host/endpoint.js';
import { guestConf, loaderConf, storeCurrent } from '../../lib/paths.js';

export const loaderConfText = `# The loader finds the vgpu shim here before any other libcuda.so.1. Taken away by: vgpu-agent uninstall
${storeCurrent}
`;

/** Nothing when guest.conf names the endpoint already, however it is written. */
export function guestConfChange(facts: MachineFacts, endpoint: string): readonly Change[] {
  const { guestConf: present } = facts;
  if (present.content !== null && parseGuestConf(present.content) === endpoint) {
    return readableChange(present, 'every CUDA program has to read it, whatever its user');
  }
  const content = present.content === null ? guestConfText(endpoint) : withHost(present.content, endpoint);
  const reason =
    present.content === null
      ? 'gives the shim the address of the host'
      : `the host is at ${endpoint} now, was at ${parseGuestConf(present.content) ?? 'no address'}`;
  return [writeChange({ ...present, path: guestConf }, content, reason)];
}

/** guest.conf where there was none. */
export function guestConfText(endpoint: string): string {
  return `# Where the CUDA calls of this guest are carried out: unix:PATH, vsock:CID:PORT or tcp:ADDRESS:PORT.
# VGPU_HOST in a program's environment overrides it.
host=${endpoint}
`;
}

/** The last `host=` counts, so that one is changed and everything else of the text kept. */
function withHost(text: string, endpoint: string): string {
  const lines = text.split('\n');
  const at = lines.findLastIndex((line) => /^[ \t]*host[ \t]*=/.test(line));
  if (at >= 0) return lines.with(at, `host=${endpoint}`).join('\n');
  return `${text}${text === '' || text.endsWith('\n') ? '' : '\n'}host=${endpoint}\n`;
}

export function loaderConfChange(facts: MachineFacts): readonly Change[] {
  if (facts.loaderConf.content === loaderConfText)
    return readableChange(facts.loaderConf, 'tools of other users read it');
  const reason = 'the loader looks into the store before every other directory (000- sorts first)';
  return [writeChange({ ...facts.loaderConf, path: loaderConf }, loaderConfText, reason)];
}

/** Right in its text, but not readable by all: written again with mode 0644. */
export function readableChange(present: OwnedFileFacts, why: string): readonly Change[] {
  const { state, content } = present;
  if (state.kind !== 'file' || content === null || (state.mode & 0o444) === 0o444) return [];
  const mode = state.mode.toString(8).padStart(4, '0');
  return [writeChange(present, content, `its mode is ${mode}; ${why}`)];
}

/** Writes one of vgpu-agent's text files, mode 0644. */
export function writeChange(
  present: OwnedFileFacts,
  content: string,
  reason: string,
  preflight?: Preflight,
): Change {
  return {
    kind: 'write-file',
    path: present.path,
    content,
    mode: 0o644,
    before: present.state,
    previousContent: present.content,
    ownerPackage: null,
    ...(preflight === undefined ? {} : { preflight }),
    reason,
  };
}
