/** The text of `host status`. */
import type { HostDaemon, HostDaemonSession } from '../../contracts/host-daemon.js';
import type { HostView } from '../../contracts/views.js';
import type { Style } from '../../lib/style.js';
import { bytes, oneLine, plural } from '../../lib/text.js';

export function hostStatusText(view: HostView, style: Style): string {
  const { installed, units, answer } = view;
  const lines = [
    installed === null
      ? 'nothing is installed by vgpu-agent host install'
      : `installed by vgpu-agent ${installed.agent}: ${plural(installed.files, 'file')}, --device ${installed.device ?? 'unknown'}, at ${oneLine(installed.listen.join(' '))}`,
    `vgpu-hostd.socket ${unitText(units.socket)}; vgpu-hostd.service ${unitText(units.service)}`,
    ...answerText(answer, installed !== null, style),
    ...(view.outdated
      ? [`${style.caution('outdated')}: the running program is not the installed one: vgpu-hostd hand-over`]
      : []),
    ...view.drift.map(
      (file) =>
        `${style.caution('changed')}: ${oneLine(file)} is not as it was installed: sudo vgpu-agent host install`,
    ),
    ...(view.interrupted
      ? [
          `${style.caution('interrupted')}: an earlier run was interrupted; host install or host uninstall cleans up`,
        ]
      : []),
  ];
  return lines.join('\n');
}

function unitText({ activeState, unitFileState }: HostView['units']['socket']): string {
  return unitFileState === '' ? activeState : `${activeState}, ${unitFileState}`;
}

function answerText(answer: HostView['answer'], installed: boolean, style: Style): readonly string[] {
  switch (answer.kind) {
    case 'not-asked':
      return ['only root may ask the daemon: sudo vgpu-agent host status'];
    case 'silent':
      return installed
        ? [`${style.bad('no answer')}: ${oneLine(answer.message)}: journalctl -u vgpu-hostd says why`]
        : [];
    case 'answers':
      return daemonText(answer.daemon, style);
  }
}

function daemonText(daemon: HostDaemon, style: Style): readonly string[] {
  const { version, wire, devices, sessions, totals, draining, refusedConfig = null } = daemon;
  return [
    `vgpu-hostd ${oneLine(version)} (wire ${wire})${draining ? ', draining' : ''}`,
    ...devices.map(
      ({ index, name, memory, used }) =>
        `device ${index}: ${oneLine(name)}, ${bytes(used)} of ${bytes(memory)} in use`,
    ),
    ...(refusedConfig === null
      ? []
      : [
          `${style.caution('configuration')}: refused at ${oneLine(refusedConfig.at)}, so the former rules stay in force: ${oneLine(refusedConfig.reason)}; correct it, then: vgpu-hostd reload`,
        ]),
    `${plural(sessions.length, 'session')} of at most ${totals.most}; ${totals.begun} begun, ${totals.turnedAway} refused`,
    ...sessions.map(sessionText),
  ];
}

function sessionText({ session, peer, claimed, age, memory, launches }: HostDaemonSession): string {
  const seconds = Math.floor(age / 1000);
  return `  ${session}: ${peer.kind}:${peer.id}, ${oneLine(claimed.program)} (process ${claimed.pid} there), ${seconds} s, ${bytes(memory)}, ${plural(launches, 'kernel')}`;
}
