/** `vgpu-agent host`: sets a machine up to serve its GPU, shows it, and undoes it. */
import { Command } from 'commander';
import { hostInstallCommand } from './host-install.js';
import { hostStatusCommand } from './host-status.js';
import { hostUninstallCommand } from './host-uninstall.js';
import { examples } from './options.js';
import type { Run } from './types.js';

export function hostCommand(run: Run): Command {
  const command = new Command('host')
    .description('on the machine that has the GPU: serve it to the virtual machines')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host install --device cuda', 'this machine serves its GPU'],
        ['vgpu-agent host status', 'what is installed, and who is served'],
        ['sudo vgpu-agent host uninstall', 'everything as it was before'],
      ),
    );
  for (const part of [hostInstallCommand(run), hostStatusCommand(run), hostUninstallCommand(run)]) {
    command.addCommand(part);
  }
  return command;
}
