/** `vgpu-agent kubernetes`: the device plugin of a node, as units/kubernetes/daemonset.yaml starts it. */
import { Command, InvalidArgumentError } from 'commander';
import { ExitCode } from '../../lib/errors.js';
import { type CommandContext, examples, type Outcome, type Run, requireRoot } from './common.js';

interface KubernetesOptions {
  readonly kubelet: string;
}

export function kubernetesCommand(run: Run): Command {
  return new Command('kubernetes')
    .description("offer the host's GPUs to this node's kubelet (a device plugin)")
    .option('--kubelet <directory>', 'the --root-dir of the kubelet', directory, '/var/lib/kubelet')
    .addHelpText(
      'after',
      `\nIt runs until it is stopped, and logs to standard error. Pods request vgpu.org/gpu.\n${examples(
        ['sudo vgpu-agent install', 'first: writes the CDI file that containerd or CRI-O reads'],
        ['kubectl apply -f units/kubernetes/daemonset.yaml', 'runs this command on each node'],
        ['sudo vgpu-agent kubernetes --kubelet /var/lib/k0s/kubelet', 'with the kubelet of k0s'],
      )}`,
    )
    .action((options: KubernetesOptions) =>
      run((context) => kubernetes(options, context), { stoppable: true }),
    );
}

async function kubernetes({ kubelet }: KubernetesOptions, context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'kubernetes');
  const { runKubernetes } = await import('../../kubernetes/run.js');
  await runKubernetes({ kubelet, signal: context.signal, line: context.say });
  return { exitCode: ExitCode.done, document: { schema: 1, command: 'kubernetes' }, text: () => '' };
}

function directory(value: string): string {
  if (value.startsWith('/')) return value;
  throw new InvalidArgumentError('It must be an absolute path.');
}
