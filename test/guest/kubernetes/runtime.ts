// containerd in a guest, asked by its CRI as a kubelet asks it: pods of manifests, with what the device plugin granted.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client, credentials, type ServiceError } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import type { Guest } from '../support/guest.js';
import { at } from '../support/installed.js';
import { run, until } from '../support/process.js';
import { repository } from '../support/repository.js';

/** containerd as it runs in a guest: without limits by cgroups. Its socket is where the test can connect to it. */
const configuration = `version = 2
[grpc]
  address = "/var/lib/kubelet/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  sandbox_image = "registry.k8s.io/pause:3.9"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_cgroup = true
`;

/** An OCI image of /run/image with this machine's Node, by the names that the manifests have. */
const image = `
set -e
: >/etc/resolv.conf
mkdir -p /var/lib/containerd /etc/containerd && mount -t tmpfs -o size=2g tmpfs /var/lib/containerd
mkdir -p /var/lib/containerd/made/blobs/sha256 && cd /var/lib/containerd/made
mkdir -p node/usr/local/bin && cp -L "$(command -v node)" node/usr/local/bin/node
tar -cf layer -C /run/image --exclude=./usr/share --exclude=./var --exclude=./usr/sbin --exclude=./usr/lib/systemd \\
  --exclude='./usr/lib/x86_64-linux-gnu/perl*' --exclude=./usr/lib/x86_64-linux-gnu/gconv .
tar -rf layer -C node usr/local/bin/node
add() { sum=$(sha256sum "$1" | cut -d ' ' -f 1); size=$(stat -c %s "$1"); mv "$1" "blobs/sha256/$sum"; }
add layer
printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["sleep","infinity"],"Env":["PATH=/usr/local/bin:/usr/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$sum" >config
layer="{\\"mediaType\\":\\"application/vnd.oci.image.layer.v1.tar\\",\\"digest\\":\\"sha256:$sum\\",\\"size\\":$size}"
add config
config="{\\"mediaType\\":\\"application/vnd.oci.image.config.v1+json\\",\\"digest\\":\\"sha256:$sum\\",\\"size\\":$size}"
printf '{"schemaVersion":2,"config":%s,"layers":[%s]}' "$config" "$layer" >manifest
add manifest
names=''
for name in registry.k8s.io/pause:3.9 docker.io/library/node:22-trixie-slim docker.io/library/debian:trixie-slim; do
  names="$names\${names:+,}{\\"mediaType\\":\\"application/vnd.oci.image.manifest.v1+json\\",\\"digest\\":\\"sha256:$sum\\",\\"size\\":$size,\\"annotations\\":{\\"io.containerd.image.name\\":\\"$name\\"}}"
done
printf '{"schemaVersion":2,"manifests":[%s]}' "$names" >index.json
printf '{"imageLayoutVersion":"1.0.0"}' >oci-layout
systemctl start containerd
tar -c blobs index.json oci-layout | ctr -a /var/lib/kubelet/containerd.sock -n k8s.io images import --all-platforms -
`;

export async function startContainerd(guest: Guest): Promise<void> {
  await guest.must('mkdir', '-p', '/etc/containerd');
  await guest.write('/etc/containerd/config.toml', configuration);
  await guest.must('bash', '-c', image);
}

const yamlRoot = join(repository, '.cache/roots/yaml/usr/lib/python3/dist-packages');

/** The first document of a manifest, read by PyYAML. */
export async function manifest(name: string): Promise<unknown> {
  const text = readFileSync(join(repository, 'units/kubernetes', name), 'utf8');
  const program = 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)';
  const ran = await run('python3', ['-c', program], {
    stdin: text,
    env: { ...process.env, PYTHONPATH: yamlRoot },
  });
  if (ran.code !== 0) throw new Error(ran.stderr);
  return JSON.parse(ran.stdout);
}

const proto = loadSync(join(repository, 'test/fixtures/kubernetes/cri.proto'), {
  keepCase: true,
  enums: String,
  bytes: String,
});

/** A kubelet's additions to the specification of a container. */
interface Granted {
  readonly envs: Readonly<Record<string, string>>;
  readonly devices: readonly string[];
}

interface Pod {
  readonly sandbox: string;
  readonly config: object;
}

export class Runtime {
  readonly #client: Client;
  readonly #guest: Guest;

  constructor(guest: Guest, socket: string) {
    this.#guest = guest;
    this.#client = new Client(`unix:${socket}`, credentials.createInsecure());
  }

  close(): void {
    this.#client.close();
  }

  call(name: string, request: object): Promise<unknown> {
    const service = proto['runtime.v1.RuntimeService'];
    const method = service === undefined || 'format' in service ? undefined : service[name];
    if (method === undefined) throw new Error(name);
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        { deadline: Date.now() + 60_000 },
        (error: ServiceError | null, answer: unknown) => (error === null ? resolve(answer) : reject(error)),
      );
    });
  }

  /** In the guest's network, because there is no CNI here. */
  async pod(name: string): Promise<Pod> {
    const config = {
      metadata: { name, uid: name, namespace: 'default' },
      log_directory: '/var/log/pods',
      linux: { security_context: { namespace_options: { network: 'NODE', pid: 'CONTAINER' } } },
    };
    const answer = await this.call('RunPodSandbox', { config });
    return { sandbox: String(at(answer, 'pod_sandbox_id')), config };
  }

  /** Starts the first container of a pod's `spec` as it stands there; returns its ID. */
  async start({ sandbox, config }: Pod, spec: unknown, granted?: Granted): Promise<string> {
    const container = at(spec, 'containers', 0);
    const context = at(container, 'securityContext');
    const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
    const limit = /^(\d+)Mi$/.exec(String(at(container, 'resources', 'limits', 'memory')))?.[1];
    const paths = new Map(
      list(at(spec, 'volumes')).map((one) => [at(one, 'name'), at(one, 'hostPath', 'path')]),
    );
    const user = at(context, 'runAsUser');
    const name = String(at(container, 'name'));
    const answer = await this.call('CreateContainer', {
      pod_sandbox_id: sandbox,
      sandbox_config: config,
      config: {
        metadata: { name },
        image: { image: at(container, 'image') },
        command: at(container, 'command'),
        envs: Object.entries(granted?.envs ?? {}).map(([key, value]) => ({ key, value })),
        mounts: list(at(container, 'volumeMounts')).map((mount) => ({
          container_path: at(mount, 'mountPath'),
          host_path: paths.get(at(mount, 'name')),
          readonly: at(mount, 'readOnly') === true,
        })),
        log_path: `${name}.log`,
        linux: {
          resources: { memory_limit_in_bytes: limit === undefined ? 0 : Number(limit) * 1024 * 1024 },
          security_context: {
            capabilities: { drop_capabilities: at(context, 'capabilities', 'drop') },
            namespace_options: { network: 'NODE', pid: 'CONTAINER' },
            ...(user === undefined ? {} : { run_as_user: { value: user } }),
            readonly_rootfs: at(context, 'readOnlyRootFilesystem') === true,
            no_new_privs: at(context, 'allowPrivilegeEscalation') === false,
            seccomp: { profile_type: at(context, 'seccompProfile', 'type') ?? 'Unconfined' },
          },
        },
        CDI_devices: (granted?.devices ?? []).map((device) => ({ name: device })),
      },
    });
    const id = String(at(answer, 'container_id'));
    await this.call('StartContainer', { container_id: id });
    return id;
  }

  async state(id: string): Promise<unknown> {
    return at(await this.call('ContainerStatus', { container_id: id }), 'status');
  }

  /** Its exit status. */
  ended(id: string): Promise<number> {
    return until('the container ends', 60_000, async () => {
      const status = await this.state(id);
      return at(status, 'state') === 'CONTAINER_EXITED' ? Number(at(status, 'exit_code') ?? 0) : undefined;
    });
  }

  /** The output of a container. */
  async log(name: string): Promise<string> {
    return (await this.#guest.read(`/var/log/pods/${name}.log`)).replaceAll(
      /^\S+ std(?:out|err) [FP] /gm,
      '',
    );
  }
}
