/** The file system of a test's virtual machine: modules, the first program, the shim, and programs of the tests. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile } from '../shim_host.js';
import { type ImageFile, makeImage, modulesInOrder } from './image.js';
import { QEMU_LIBRARIES, VM } from './qemu.js';

/** For a machine that reaches its host over a virtio device. */
const GUEST_MODULES = ['virtio_pci', 'virtio_blk', 'vmw_vsock_virtio_transport'];

export interface InitrdOptions {
  readonly commands: readonly string[];
  /** Further programs, and files that they read (.json), for /bin: paths here. */
  readonly programs?: readonly string[];
  /** Kernel modules; what they need is loaded before them. Left out: those of a guest. */
  readonly modules?: readonly string[];
  /** Further files as they are. */
  readonly files?: readonly ImageFile[];
  /** Only what is needed to hand over to the systemd of a disk. */
  readonly handsOver?: boolean;
}

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((item) => item.isFile())
    .map((item) => path.join(item.parentPath, item.name));
}

/** A program and the libraries it is linked with, where it will look for them. */
export function withLibraries(program: string): string[] {
  if (program.endsWith('.json')) return [];
  const env = program.startsWith(VM) ? { LD_LIBRARY_PATH: QEMU_LIBRARIES } : {};
  const listed = execFileSync('ldd', [program], { encoding: 'utf8', env: { ...process.env, ...env } });
  return [...listed.matchAll(/(\/\S+) \(0x/g)].map(([, file]) => file ?? '');
}

/** The first program of a VM. Each test file compiles its own, because several files run at once. */
function compileInit(): Buffer {
  const directory = path.join(ROOT, 'build/test-programs');
  const init = path.join(directory, `vm_init.${process.pid}`);
  mkdirSync(directory, { recursive: true });
  try {
    execFileSync('cc', ['-static', '-O2', '-D_GNU_SOURCE', '-o', init, 'test/shim/programs/vm_init.c'], {
      cwd: ROOT,
    });
    return readFileSync(init);
  } finally {
    rmSync(init, { force: true });
  }
}

export function makeInitrd(options: InitrdOptions): Buffer {
  const modules = new Map(
    filesBelow(path.join(VM, 'lib/modules'))
      .filter((file) => file.endsWith('.ko'))
      .map((file) => [path.basename(file, '.ko').replaceAll('-', '_'), file]),
  );
  const order = modulesInOrder(modules, options.modules ?? GUEST_MODULES);
  const files: ImageFile[] = [
    { name: 'init', content: compileInit(), executable: true },
    { name: 'modules', content: Buffer.from(`${order.join('\n')}\n`) },
    { name: 'commands', content: Buffer.from(`${options.commands.join('\n')}\n`) },
    ...order.map((name) => ({
      name: `modules.d/${name}`,
      content: readFileSync(modules.get(name) ?? ''),
    })),
    ...(options.files ?? []),
  ];
  if (options.handsOver === true)
    return makeImage([...files, { name: 'disk/empty', content: Buffer.alloc(0) }]);
  const programs = [
    builtFile('vgpu-probe'),
    builtFile('programs/ptx_guest'),
    builtFile('programs/driver_shell'),
    ...(options.programs ?? []),
  ];
  for (const file of programs)
    files.push({ name: `bin/${path.basename(file)}`, content: readFileSync(file), executable: true });
  for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1'])
    files.push({ name: `lib/vgpu/${name}`, content: readFileSync(builtFile(name)) });
  const libraries = new Set([...programs, builtFile('libcuda.so.1')].flatMap(withLibraries));
  for (const file of libraries) {
    if (file.startsWith(ROOT) && !file.startsWith(VM)) continue;
    const name = file.replace(VM, '').slice(1);
    files.push({ name, content: readFileSync(realpathSync(file)), executable: true });
  }
  const kernels = path.join(ROOT, 'test/shim/kernels/ptx');
  for (const name of readdirSync(kernels).filter((file) => file.includes('compute_80')))
    files.push({ name: `ptx/${name}`, content: readFileSync(path.join(kernels, name)) });
  return makeImage(files);
}
