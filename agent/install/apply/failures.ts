import { errnoOf, VgpuError } from '../../lib/errors.js';

const remedies: Readonly<Record<string, string>> = {
  ENOSPC: 'make room on that file system, then run the same command again',
  EDQUOT: 'make room in that quota, then run the same command again',
  EROFS: 'mount that file system read-write (mount -o remount,rw ...), then run the same command again',
  EACCES: 'run as root; if you are root, something (SELinux, AppArmor, a network file system) forbids it',
  EPERM: 'run as root; if you are root, look for the immutable flag (lsattr) or a security module',
  EIO: 'look at the kernel log (dmesg): the disk reports errors',
};

const phrases: Readonly<Record<string, string>> = {
  ENOSPC: 'no space left on the device',
  EDQUOT: 'disk quota exceeded',
  EROFS: 'the file system is read-only',
  EACCES: 'permission denied',
  EPERM: 'operation not permitted',
  EIO: 'input/output error',
};

interface Failure {
  readonly text: string;
  readonly operation: string;
  readonly path: string | undefined;
  readonly remedy: string | undefined;
}

export function failureOf(error: unknown): Failure {
  const code = errnoOf(error) ?? (error instanceof Error ? errnoOf(error.cause) : undefined);
  if (error instanceof VgpuError) {
    return {
      text: error.message,
      operation: error.operation,
      path: error.path,
      remedy: error.remedy ?? (code === undefined ? undefined : remedies[code]),
    };
  }
  if (code !== undefined && error instanceof Error) {
    const path = textOf(error, 'dest') ?? textOf(error, 'path');
    const operation = textOf(error, 'syscall') ?? 'write';
    return {
      text: `cannot ${operation} ${path ?? 'a file'}: ${phrases[code] ?? code} (${code})`,
      operation,
      path,
      remedy: remedies[code],
    };
  }
  return {
    text: error instanceof Error ? error.message : String(error),
    operation: 'apply the plan',
    path: undefined,
    remedy: undefined,
  };
}

function textOf(error: Error, key: string): string | undefined {
  const value: unknown = Reflect.get(error, key);
  return typeof value === 'string' ? value : undefined;
}

export function rolledBack(error: unknown): VgpuError {
  const failure = failureOf(error);
  const interrupted = error instanceof VgpuError && error.kind === 'interrupted';
  return new VgpuError(`${failure.text}; everything was undone`, {
    ...failure,
    kind: interrupted ? 'interrupted' : 'rolled-back',
    cause: error,
  });
}

export function undecided(error: unknown, intent: 'install' | 'uninstall'): VgpuError {
  const failure = failureOf(error);
  return new VgpuError(
    `${failure.text}; every change of the ${intent} is made, but the disk did not confirm the last record. Nothing more was changed: the next vgpu-agent install or uninstall finishes it or takes it back`,
    {
      ...failure,
      kind: 'failed',
      remedy:
        'look for errors of the disk (dmesg), then run vgpu-agent install or vgpu-agent uninstall again',
      cause: error,
    },
  );
}

export function undoFailed(error: unknown, undoError: unknown): VgpuError {
  const [first, second] = [failureOf(error), failureOf(undoError)];
  return new VgpuError(
    `${first.text}; undoing it failed too: ${second.text}. No data is lost: the next vgpu-agent install or uninstall continues from there`,
    {
      ...second,
      kind: 'failed',
      remedy: second.remedy ?? 'run vgpu-agent install or vgpu-agent uninstall again',
      cause: undoError,
    },
  );
}
