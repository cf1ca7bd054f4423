/** The machines that an install may meet. */
import { buildElf, type Tree } from '../../guest/support.js';
import { fragment, makeShim, multiarch, World, type WorldOptions } from './world.js';

export const shimA = makeShim('0.1.0');
export const shimB = makeShim('0.2.0');

const inDirectory = (names: Tree): Tree => ({ [multiarch]: names });
const library = (soname: string): Buffer => buildElf({ soname, tail: `NVIDIA ${soname}` });

const unitText =
  '[Unit]\nDescription=Ollama\n[Service]\nExecStart=/usr/local/bin/ollama serve\nUser=ollama\n';

const base: Tree = {
  'etc/os-release': 'ID=debian\nVERSION_ID="12"\n',
  'etc/ld.so.conf': 'include /etc/ld.so.conf.d/*.conf\n',
  'etc/ld.so.conf.d/libc.conf': '/usr/local/lib\n',
  'etc/ld.so.conf.d/x86_64-linux-gnu.conf':
    '/usr/local/lib/x86_64-linux-gnu\n/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n',
  [fragment]: unitText,
  lib: { link: 'usr/lib' },
  lib64: { link: 'usr/lib64' },
  'usr/lib64': {},
  'usr/local/lib': {},
  'usr/lib/x86_64-linux-gnu': { 'libother.so.1': library('libother.so.1') },
  opt: {},
  'var/lib/dpkg/alternatives': {},
  'var/lib/dpkg/info': {},
  'etc/alternatives': {},
};

export interface StartingState {
  readonly name: string;
  make(options?: WorldOptions): Promise<World>;
}

function plain(name: string, content: Tree): StartingState {
  return { name, make: async (options) => new World(shimA, { ...base, ...content }, options) };
}

const nvidia = '/usr/lib/x86_64-linux-gnu/nvidia/current';
const legacy = '/usr/lib/x86_64-linux-gnu/nvidia/legacy';

/** As libcuda1, libnvidia-ml1 and nvidia-alternative leave it. */
function debian(name: string, manual: boolean): StartingState {
  return {
    name,
    make: async (options) => {
      const world = new World(
        shimA,
        {
          ...base,
          [`${nvidia}/libcuda.so.1`]: { link: 'libcuda.so.550.163.01' },
          [`${nvidia}/libcuda.so`]: { link: 'libcuda.so.1' },
          [`${nvidia}/libcuda.so.550.163.01`]: library('libcuda.so.1'),
          [`${nvidia}/libnvidia-ml.so.1`]: library('libnvidia-ml.so.1'),
          [`${legacy}/libcuda.so.1`]: library('libcuda.so.1'),
          'usr/lib/nvidia/current/nvidia-smi': 'smi',
          'usr/lib/nvidia/legacy/nvidia-smi': 'old smi',
          'usr/bin': {},
        },
        options,
      );
      const slaves = (directory: string, tools: string, all: boolean): string[] =>
        [
          ['/usr/bin/nvidia-smi', 'nvidia--nvidia-smi', `${tools}/nvidia-smi`],
          [`${multiarch}/libcuda.so.1`, 'nvidia--libcuda.so.1-x86_64-linux-gnu', `${directory}/libcuda.so.1`],
          ...(all
            ? [
                [`${multiarch}/libcuda.so`, 'nvidia--libcuda.so-x86_64-linux-gnu', `${directory}/libcuda.so`],
                [
                  `${multiarch}/libnvidia-ml.so.1`,
                  'nvidia--libnvidia-ml.so.1-x86_64-linux-gnu',
                  `${directory}/libnvidia-ml.so.1`,
                ],
              ]
            : []),
        ].flatMap(([link = '', slave = '', file = '']) => ['--slave', link, slave, file]);
      const add = (path: string, priority: string, more: string[]): string =>
        world.alternatives('--install', '/usr/lib/nvidia/nvidia', 'nvidia', path, priority, ...more);
      add('/usr/lib/nvidia/current', '550', slaves(nvidia, '/usr/lib/nvidia/current', true));
      add('/usr/lib/nvidia/legacy', '390', slaves(legacy, '/usr/lib/nvidia/legacy', false));
      if (manual) world.alternatives('--set', 'nvidia', '/usr/lib/nvidia/legacy');
      return world;
    },
  };
}

export const bare = plain('a bare machine', {});

export const ubuntu = plain(
  'Ubuntu’s layout',
  inDirectory({
    'libcuda.so.550.54.14': library('libcuda.so.1'),
    'libcuda.so.1': { link: 'libcuda.so.550.54.14' },
    'libcuda.so': { link: 'libcuda.so.1' },
    'libnvidia-ml.so.550.54.14': library('libnvidia-ml.so.1'),
    'libnvidia-ml.so.1': { link: 'libnvidia-ml.so.550.54.14' },
    'libnvidia-ml.so': { link: 'libnvidia-ml.so.1' },
  }),
);

export const debianAuto = debian('Debian’s alternatives', false);
export const debianManual = debian('Debian’s alternatives with a choice made by hand', true);

export const userDropIn = plain('a unit with LD_* and a guest.conf of the user’s own', {
  [fragment]: `${unitText}Environment="LD_PRELOAD=/usr/lib/libjemalloc.so" OTHER=1\n`,
  'etc/systemd/system/ollama.service.d/override.conf':
    '[Service]\nEnvironment="LD_LIBRARY_PATH=/opt/own/lib:/opt/more" "OLLAMA_HOST=0.0.0.0"\n',
  'usr/lib/libjemalloc.so': library('libjemalloc.so.2'),
  'etc/vgpu/guest.conf': '# mine\nhost=vsock:2:14833\n',
});

/** Installed with an older shim; install is then an upgrade. */
export const upgrade: StartingState = {
  name: 'an older version of the shim',
  make: async (options) => {
    const world = await bare.make(options);
    await world.install();
    world.shim = shimB;
    return world;
  },
};

export const startingStates: readonly StartingState[] = [
  bare,
  plain('dangling links', {
    ...inDirectory({
      'libcuda.so.1': { link: '/nowhere/libcuda.so.1' },
      'libcuda.so': { link: 'libcuda.so.1' },
    }),
    'usr/local/lib/libcuda.so': { link: 'libcuda.so.1' },
  }),
  plain(
    'a loop, a regular file and an empty directory in the way',
    inDirectory({
      'libcuda.so': { link: 'libcuda.so.1' },
      'libcuda.so.1': { link: 'libcuda.so' },
      'libnvidia-ml.so.1': library('libnvidia-ml.so.1'),
      'libnvidia-ml.so': {},
    }),
  ),
  plain('links to a wrong library', {
    ...inDirectory({
      'libcuda.so.1': { link: '/opt/wrong/libcuda.so.1' },
      'libnvidia-ml.so.1': { link: '../../../opt/wrong/libcuda.so.1' },
    }),
    'opt/wrong/libcuda.so.1': library('libcuda.so.1'),
  }),
  ubuntu,
  debianAuto,
  debianManual,
  userDropIn,
];
