/**
 * A virtual machine for tests and the benchmark: qemu and Debian's cloud kernel (scripts/fetch-packages vm vm-vsock),
 * whose CID 2 port 14833 is a vgpu-hostd here. Nothing is installed, nothing needs root. VGPU_TEST_KVM=1: with KVM.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, type Host, startHost, until } from '../shim_host.js';
import { makeVmMemory } from '../support/vm_memory.js';
import { type ImageFile, makeImage, modulesInOrder } from './image.js';

const VM = path.join(ROOT, '.cache/roots/vm');
const VSOCK = path.join(ROOT, '.cache/roots/vm-vsock/usr/bin/vhost-device-vsock');
const CID = 33;
const BOOT_LIMIT = 240_000;

/** Why there can be no machine here; false: there can. */
export const whyNoMachine: string | false =
  (!existsSync(path.join(VM, '.complete')) || !existsSync(VSOCK)) &&
  'no virtual machine: scripts/fetch-packages vm vm-vsock';

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((item) => item.isFile())
    .map((item) => path.join(item.parentPath, item.name));
}

/** A program and the libraries it is linked with, where it will look for them. */
function withLibraries(program: string): string[] {
  if (program.endsWith('.json')) return [];
  const listed = execFileSync('ldd', [program], { encoding: 'utf8' });
  return [...listed.matchAll(/(\/\S+) \(0x/g)].map(([, file]) => file ?? '');
}

async function makeInitrd(commands: readonly string[], more: readonly string[]): Promise<Buffer> {
  const init = path.join(ROOT, 'build/test-programs/vm_init');
  mkdirSync(path.dirname(init), { recursive: true });
  execFileSync('cc', ['-static', '-O2', '-D_GNU_SOURCE', '-o', init, 'test/shim/programs/vm_init.c'], {
    cwd: ROOT,
  });
  const modules = new Map(
    filesBelow(path.join(VM, 'lib/modules'))
      .filter((file) => file.endsWith('.ko'))
      .map((file) => [path.basename(file, '.ko').replaceAll('-', '_'), file]),
  );
  const order = modulesInOrder(modules, ['virtio_pci', 'vmw_vsock_virtio_transport']);
  const files: ImageFile[] = [
    { name: 'init', content: readFileSync(init), executable: true },
    { name: 'modules', content: Buffer.from(`${order.join('\n')}\n`) },
    { name: 'commands', content: Buffer.from(`${commands.join('\n')}\n`) },
    ...order.map((name) => ({
      name: `modules.d/${name}`,
      content: readFileSync(modules.get(name) ?? ''),
    })),
  ];
  const programs = [
    builtFile('vgpu-probe'),
    builtFile('programs/ptx_guest'),
    builtFile('programs/driver_shell'),
    ...more,
  ];
  for (const file of programs)
    files.push({ name: `bin/${path.basename(file)}`, content: readFileSync(file), executable: true });
  for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1'])
    files.push({ name: `lib/vgpu/${name}`, content: readFileSync(builtFile(name)) });
  const libraries = new Set([...programs, builtFile('libcuda.so.1')].flatMap(withLibraries));
  for (const file of libraries) {
    if (file.startsWith(ROOT)) continue;
    files.push({ name: file.slice(1), content: readFileSync(realpathSync(file)), executable: true });
  }
  const kernels = path.join(ROOT, 'test/shim/kernels/ptx');
  for (const name of readdirSync(kernels).filter((file) => file.includes('compute_80')))
    files.push({ name: `ptx/${name}`, content: readFileSync(path.join(kernels, name)) });
  return makeImage(files);
}

export interface MachineOptions {
  /** Memory that VMs share with the host, MiB: a power of two. */
  readonly shared?: number;
  /** Memory of a VM, MiB. */
  readonly memory?: number;
  /** Further programs, and files that they read (.json), for /bin: paths here. */
  readonly programs?: readonly string[];
}

/** A host, the vsock of a VM, and the VM, which can be booted again and again. */
export interface Machine {
  readonly host: Host;
  /** Boots, runs the commands, powers off; what the console showed. `shared`: with the memory of the host. */
  boot(commands: readonly string[], shared?: boolean): Promise<string>;
  stop(): Promise<void>;
}

/** Starts all but the VM; files are put into `directory`. */
export async function startMachine(directory: string, options: MachineOptions = {}): Promise<Machine> {
  const { shared: megabytes = 64, memory: size = 384, programs = [] } = options;
  const started: ChildProcess[] = [];
  const libraries = [`${VM}/usr/lib/x86_64-linux-gnu`, `${VM}/lib/x86_64-linux-gnu`].join(':');
  const start = (file: string, args: readonly string[], log: string): ChildProcess => {
    const child = spawn(file, args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, LD_LIBRARY_PATH: libraries },
    });
    let said = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      writeFileSync(`${directory}/${log}`, said);
    });
    child.on('error', (error) => writeFileSync(`${directory}/${log}`, String(error)));
    started.push(child);
    return child;
  };
  const ended = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null;
  const said = (log: string): string =>
    existsSync(`${directory}/${log}`) ? readFileSync(`${directory}/${log}`, 'utf8') : '';

  const proxy = start(
    VSOCK,
    ['--guest-cid', `${CID}`, '--socket', `${directory}/vhost`, '--uds-path', `${directory}/uds`],
    'vsock',
  );
  await until('its socket', () => existsSync(`${directory}/vhost`) || ended(proxy), 20_000);
  assert.equal(ended(proxy), false, said('vsock'));
  const memory = makeVmMemory(directory, megabytes);
  writeFileSync(`${directory}/conf`, `allow unix pid=${proxy.pid} sessions=8 vm-memory=${memory.path}\n`);
  const host = await startHost({
    listen: `unix:${directory}/uds_14833`,
    args: ['--config', `${directory}/conf`],
  });

  const boot: Machine['boot'] = async (commands, shared = true) => {
    writeFileSync(`${directory}/initrd`, await makeInitrd(commands, programs));
    const kernel = readdirSync(`${VM}/boot`).find((name) => name.startsWith('vmlinuz-'));
    assert.ok(kernel !== undefined, 'a kernel');
    const kvm = process.env['VGPU_TEST_KVM'] === '1';
    const qemu = start(
      `${VM}/usr/bin/qemu-system-x86_64`,
      [
        ...['-L', `${VM}/usr/share/qemu`, '-L', `${VM}/usr/share/seabios`],
        ...['-accel', kvm ? 'kvm' : 'tcg,thread=multi', '-cpu', kvm ? 'host' : 'max'],
        ...['-M', 'q35,memory-backend=mem', '-m', `${size}`, '-smp', '2'],
        ...['-object', `memory-backend-memfd,id=mem,size=${size}M,share=on`],
        ...['-kernel', `${VM}/boot/${kernel}`, '-initrd', `${directory}/initrd`],
        // A machine without KVM on a busy one has no timer to speak of: that is no reason to panic.
        ...['-append', 'console=ttyS0 panic=-1 quiet mitigations=off no_timer_check'],
        ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
        ...['-serial', `file:${directory}/console`],
        ...['-chardev', `socket,id=vh,path=${directory}/vhost`],
        ...['-device', 'vhost-user-vsock-pci,chardev=vh'],
        ...(shared
          ? ['-object', `memory-backend-file,id=vgpu,mem-path=${memory.path},size=${megabytes}M,share=on`]
          : []),
        ...(shared ? ['-device', 'ivshmem-plain,memdev=vgpu'] : []),
      ],
      'qemu',
    );
    await until(
      'the machine to power off',
      () => ended(qemu) || said('console').includes('vm: done'),
      BOOT_LIMIT,
    );
    assert.match(said('console'), /vm: done/, `${said('qemu')}\n${said('console')}\n${said('vsock')}`);
    await until('qemu to end', () => ended(qemu), 60_000);
    return said('console').replaceAll('\r', '');
  };
  return {
    host,
    boot,
    stop: async () => {
      for (const child of started) child.kill('SIGKILL');
      await host.stop();
      memory.remove();
    },
  };
}
