/**
 * From a real virtual machine over vsock: qemu without KVM and Debian's cloud kernel (scripts/fetch-packages vm
 * vm-vsock), whose CID 2 port 14833 is a vgpu-hostd here. Nothing is installed, nothing needs root.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, type Host, scratchDirectory, startHost, until } from '../shim_host.js';
import { makeVmMemory, type VmMemory } from '../support/vm_memory.js';
import { type ImageFile, makeImage, modulesInOrder } from './image.js';

const VM = path.join(ROOT, '.cache/roots/vm');
const VSOCK = path.join(ROOT, '.cache/roots/vm-vsock/usr/bin/vhost-device-vsock');
const CID = 33;
const BOOT_LIMIT = 240_000;

const skip =
  (!existsSync(path.join(VM, '.complete')) || !existsSync(VSOCK)) &&
  'no virtual machine: scripts/fetch-packages vm vm-vsock';

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((item) => item.isFile())
    .map((item) => path.join(item.parentPath, item.name));
}

/** A program and the libraries it is linked with, where it will look for them. */
function withLibraries(program: string): string[] {
  const listed = execFileSync('ldd', [program], { encoding: 'utf8' });
  return [...listed.matchAll(/(\/\S+) \(0x/g)].map(([, file]) => file ?? '');
}

async function makeInitrd(commands: readonly string[]): Promise<Buffer> {
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

describe('a program in a virtual machine', { skip }, () => {
  const scratch = scratchDirectory();
  const started: ChildProcess[] = [];
  let host: Host;
  let proxy: ChildProcess;
  let memory: VmMemory;
  const libraries = [`${VM}/usr/lib/x86_64-linux-gnu`, `${VM}/lib/x86_64-linux-gnu`].join(':');

  const start = (file: string, args: readonly string[], log: string): ChildProcess => {
    const child = spawn(file, args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, LD_LIBRARY_PATH: libraries },
    });
    let said = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      writeFileSync(`${scratch.path}/${log}`, said);
    });
    child.on('error', (error) => writeFileSync(`${scratch.path}/${log}`, String(error)));
    started.push(child);
    return child;
  };
  const ended = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null;
  const said = (log: string): string =>
    existsSync(`${scratch.path}/${log}`) ? readFileSync(`${scratch.path}/${log}`, 'utf8') : '';

  /** Boots, runs the commands, powers off; what the console showed. */
  const boot = async (commands: readonly string[], shared = true): Promise<string> => {
    writeFileSync(`${scratch.path}/initrd`, await makeInitrd(commands));
    const kernel = readdirSync(`${VM}/boot`).find((name) => name.startsWith('vmlinuz-'));
    assert.ok(kernel !== undefined, 'a kernel');
    const qemu = start(
      `${VM}/usr/bin/qemu-system-x86_64`,
      [
        ...['-L', `${VM}/usr/share/qemu`, '-L', `${VM}/usr/share/seabios`],
        ...[
          '-accel',
          'tcg,thread=multi',
          '-cpu',
          'max',
          '-M',
          'q35,memory-backend=mem',
          '-m',
          '384',
          '-smp',
          '2',
        ],
        ...['-object', 'memory-backend-memfd,id=mem,size=384M,share=on'],
        ...['-kernel', `${VM}/boot/${kernel}`, '-initrd', `${scratch.path}/initrd`],
        // A machine without KVM on a busy one has no timer to speak of: that is no reason to panic.
        ...['-append', 'console=ttyS0 panic=-1 quiet mitigations=off no_timer_check'],
        ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
        ...['-serial', `file:${scratch.path}/console`],
        ...['-chardev', `socket,id=vh,path=${scratch.path}/vhost`],
        ...['-device', 'vhost-user-vsock-pci,chardev=vh'],
        ...(shared
          ? ['-object', `memory-backend-file,id=vgpu,mem-path=${memory.path},size=64M,share=on`]
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

  before(async () => {
    proxy = start(
      VSOCK,
      ['--guest-cid', `${CID}`, '--socket', `${scratch.path}/vhost`, '--uds-path', `${scratch.path}/uds`],
      'vsock',
    );
    await until('its socket', () => existsSync(`${scratch.path}/vhost`) || ended(proxy), 20_000);
    assert.equal(ended(proxy), false, said('vsock'));
    memory = makeVmMemory(scratch.path, 64);
    writeFileSync(
      `${scratch.path}/conf`,
      `allow unix pid=${proxy.pid} sessions=8 vm-memory=${memory.path}\n`,
    );
    host = await startHost({
      listen: `unix:${scratch.path}/uds_14833`,
      args: ['--config', `${scratch.path}/conf`],
    });
  });
  after(async () => {
    for (const child of started) child.kill('SIGKILL');
    await host.stop();
    memory.remove();
    scratch.remove();
  });

  it('finds the device and computes on it through vsock:2:14833, and through memory of its host', async () => {
    const console = await boot([
      '/bin/vgpu-probe --library /lib/vgpu/libcuda.so.1',
      '/bin/ptx_guest /ptx 80',
      'VGPU_VM_MEMORY=none /bin/ptx_guest /ptx 80',
    ]);
    if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined)
      process.stderr.write(`${console}\n${host.log()}\n`);
    assert.match(console, /NVIDIA H100 80GB HBM3 \(simulated\)/);
    assert.match(console, /"roundTrip":\{"bytes":1048576,"ok":true/);
    assert.equal((console.match(/vector_add 0 wrong 0/g) ?? []).length, 2);
    assert.equal((console.match(/fault 700 again 700/g) ?? []).length, 2);
    assert.equal((console.match(/vm: exit 0/g) ?? []).length, 3, console);
    const how = [...console.matchAll(/at vsock:2:14833: 1 device\(s\), (.*)/g)].map(([, way]) => way);
    assert.deepEqual([how.at(-2), how.at(-1)], ["through the VM's shared memory", 'over the socket']);
    await host.logged(/libcuda ptx_guest \(guest pid \d+\) begins, in its VM's shared memory/);
  });

  it('computes through vsock alone where the VM has no such device', async () => {
    const console = await boot(['/bin/ptx_guest /ptx 80'], false);
    assert.match(console, /vector_add 0 wrong 0/);
    assert.match(console, /at vsock:2:14833: 1 device\(s\), over the socket/);
  });
});
