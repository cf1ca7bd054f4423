/** `vgpu-agent cdi`: the device that containers ask for, as a file of the Container Device Interface. */
import { Command } from 'commander';
import { type CdiSpec, cdiKind, cdiNvidiaKind, devicesIn } from '../../containers/cdi.js';
import type { MachineFacts } from '../../contracts/facts.js';
import { chooseOne } from '../../install/pipeline/choose.js';
import { cdiSpec, deviceCount } from '../../install/plan/container.js';
import { ExitCode } from '../../lib/errors.js';
import { oneLine, type Style } from '../../lib/text.js';
import {
  type CommandContext,
  endpoint,
  examples,
  hostHelp,
  namedHosts,
  type Outcome,
  type Run,
  withWorkplace,
} from './common.js';

interface GenerateOptions {
  readonly host?: readonly string[];
  readonly nvidia?: true;
}

export function cdiCommand(run: Run): Command {
  const command = new Command('cdi')
    .description('show the CDI device for containers')
    .addHelpText(
      'after',
      examples(
        ['vgpu-agent cdi list', 'the devices, and how to request them'],
        ['vgpu-agent cdi generate', 'the file that install writes to /etc/cdi/vgpu.json'],
      ),
    );
  command
    .command('generate')
    .description('print the CDI file for this machine')
    .option('--host <address>', hostHelp, endpoint)
    .option('--nvidia', `name the device ${cdiNvidiaKind} instead of ${cdiKind}`)
    .action((options: GenerateOptions) => run((context) => generate(options, context)));
  command
    .command('list')
    .description('list the devices for containers, and how podman, docker and compose files request them')
    .action(() => run(list));
  return command;
}

async function generate(options: GenerateOptions, context: CommandContext): Promise<Outcome> {
  const facts = await lookedAt(namedHosts(options.host));
  context.talk.emit({ kind: 'facts', facts });
  const document: CdiSpec = cdiSpec({
    kind: options.nvidia === true ? cdiNvidiaKind : cdiKind,
    storeId: facts.shim.id,
    endpoint: facts.host.endpoint,
    devices: deviceCount(facts),
  });
  // The output is the file itself, with and without --json.
  return { exitCode: ExitCode.done, document, text: () => JSON.stringify(document, null, 2) };
}

async function list(): Promise<Outcome> {
  const { containers } = await lookedAt(null);
  const files = containers === undefined ? [] : [containers.spec, containers.nvidia];
  const offers = files.flatMap(({ path, content }) =>
    content === null ? [] : [{ path, names: devicesIn(content) }],
  );
  const found = {
    devices: offers.flatMap(({ path, names }) => names.map((name) => ({ name, file: path }))),
    // A person or a program has changed them.
    broken: offers.filter(({ names }) => names.length === 0).map(({ path }) => path),
    nvidiaFrom: containers?.nvidiaFrom ?? null,
  };
  const document = { schema: 1, command: 'cdi list', ...found };
  return { exitCode: ExitCode.done, document, text: (style) => listText(found, style) };
}

async function lookedAt(host: string | null): Promise<MachineFacts> {
  return withWorkplace(async (work) => {
    const [installed] = (await work.manifest())?.consumers ?? [];
    return await work.inspect(
      await chooseOne(work, installed === undefined ? {} : { unit: installed.unit }),
      host,
    );
  });
}

interface Offers {
  readonly devices: readonly { readonly name: string; readonly file: string }[];
  readonly broken: readonly string[];
  /** The file of another owner that offers nvidia.com/gpu; null: there is none. */
  readonly nvidiaFrom: string | null;
}

function listText({ devices, broken, nvidiaFrom }: Offers, style: Style): string {
  const [first] = devices;
  const repair = broken.map((file) => `${file} offers no device: sudo vgpu-agent install writes it again`);
  if (first === undefined) {
    const absent =
      'No device for containers: vgpu-agent install writes the file only if podman, docker, containerd or /etc/cdi exists.';
    return broken.length === 0 ? absent : repair.join('\n');
  }
  const offered = devices.map(({ name, file }) => `${style.bold(name)}  ${style.dim(file)}`);
  const foreign =
    nvidiaFrom === null ? [] : [`${cdiNvidiaKind} is defined by ${oneLine(nvidiaFrom)}, not by vgpu-agent`];
  return [...offered, ...repair, ...foreign, '', ...usage(first.name)].join('\n');
}

function usage(name: string): readonly string[] {
  return [
    `podman run --device ${name} IMAGE`,
    `docker run --device ${name} IMAGE            (Docker 28.3; from 25 with "features": {"cdi": true} in daemon.json)`,
    '',
    'quadlet, in [Container]:    (install --unit NAME does it by a drop-in with podman 5 and later)',
    `  AddDevice=${name}`,
    '',
    'compose file of docker, in the service:',
    '  deploy:',
    '    resources:',
    '      reservations:',
    '        devices:',
    '          - driver: cdi',
    `            device_ids: [${name}]`,
    '            capabilities: [gpu]',
    '',
    'compose file of podman-compose, in the service:',
    '  devices:',
    `    - ${name}`,
    '',
    'Docker and containerd forbid vsock in containers: there the host must be reached by unix: or tcp:, or the',
    'container needs a seccomp profile that allows AF_VSOCK. podman allows it.',
  ];
}
