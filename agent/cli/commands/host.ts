/** `vgpu-agent host`: sets a machine up to serve its GPU, shows it, and undoes it. */
import { Command } from 'commander';
import { hostInstallCommand } from './host-install.js';
import { hostStatusCommand } from './host-status.js';
import { hostUninstallCommand } from './host-uninstall.js';
import { examples } from './options.js';
import type { Run } from './types.js';

export function hostCommand(run: Run): Command {
  const command = new Command('host')
    .description('serve the GPU of this machine to its virtual machines')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host install --device cuda', 'this machine serves its GPU'],
        ['vgpu-agent host status', 'what is installed, and which guests are served'],
        ['sudo vgpu-agent host uninstall', 'restore everything as it was before'],
      ),
    );
  for (const part of [hostInstallCommand(run), hostStatusCommand(run), hostUninstallCommand(run)]) {
    command.addCommand(part);
  }
  return command;
}
