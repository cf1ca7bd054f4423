// Directories of a guest in which writing fails, for real: mounts, quotas, flags and missing privileges. All of it
// happens in the guest's own mount namespace and its overlay.

import type { Guest } from './guest.js';

/**
 * - `read-only`: EROFS, the directory's own content under a read-only bind mount
 * - `no-space`: ENOSPC for content; there are inodes left, so links and directories can be made
 * - `no-inodes`: ENOSPC for every new file
 * - `immutable`: EPERM, chattr +i on the directory
 * - `forbidden`: EACCES, mode 0555 for a process without CAP_DAC_OVERRIDE
 */
export type Spoiling = 'read-only' | 'no-space' | 'no-inodes' | 'immutable' | 'forbidden';

export const spoilings: readonly Spoiling[] = [
  'read-only',
  'no-space',
  'no-inodes',
  'immutable',
  'forbidden',
];

/** The agent's expected message about it. */
export const symptom: Readonly<Record<Spoiling, RegExp>> = {
  'read-only': /read-only/i,
  'no-space': /no space left/i,
  'no-inodes': /no space left/i,
  immutable: /operation not permitted/i,
  forbidden: /permission denied/i,
};

/** Where a limited file system is mounted while a directory is on it. */
const limited = '/run/limited';

/** Makes writes below `directory` fail, runs `work` and undoes that. Rejects if this kernel cannot do it. */
export async function whileSpoilt<T>(
  guest: Guest,
  directory: string,
  how: Spoiling,
  work: () => Promise<T>,
): Promise<T> {
  await guest.must('bash', '-ec', spoil(directory, how));
  try {
    return await work();
  } finally {
    await guest.must('bash', '-ec', repair(directory, how));
  }
}

/**
 * Why a fault cannot be made in this guest, or false: chattr +i needs a tmpfs with flags (Linux 6.6), a limited layer
 * a root that is no overlay itself. Any other failure is one of this file, and rejects.
 */
export async function whyNotSpoilable(guest: Guest, how: Spoiling): Promise<string | false> {
  try {
    await whileSpoilt(guest, '/opt', how, async () => undefined);
    return false;
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (/not supported|wrong fs type|inappropriate ioctl/i.test(text)) {
      return `${how} cannot be made here: ${text}`;
    }
    throw error;
  }
}

/** The directory's content, and `pages` pages of room (4 KiB each) for changes; ENOSPC after that. */
export async function whileShortOfRoom<T>(
  guest: Guest,
  directory: string,
  pages: number,
  work: () => Promise<T>,
): Promise<T> {
  await guest.must('bash', '-ec', mountLimited(directory, `size=${pages * 4}k`));
  try {
    return await work();
  } finally {
    await guest.must('bash', '-ec', unmountLimited(directory));
  }
}

/** The command's prefix for this fault: root ignores a mode, so the command runs without CAP_DAC_OVERRIDE. */
export function asAffected(how: Spoiling): readonly string[] {
  return how === 'forbidden' ? ['setpriv', '--bounding-set=-dac_override'] : [];
}

function spoil(directory: string, how: Spoiling): string {
  switch (how) {
    case 'read-only':
      return `mount --bind ${directory} ${directory}; mount -o remount,ro,bind ${directory}`;
    case 'no-space':
      return `${mountLimited(directory, 'size=64k')}
        dd if=/dev/zero of=${limited}/filler bs=4k status=none 2>/dev/null || true`;
    case 'no-inodes':
      // The first inode is the root, three more are upper, work and what overlayfs makes in it.
      return `${mountLimited(directory, 'size=64k,nr_inodes=16')}
        for ((i = 0; i < 20; i++)); do touch ${limited}/filler-$i 2>/dev/null || break; done`;
    case 'immutable':
      // The mode is set first: it makes the overlay's own copy, which has the flag; the one below may have others.
      return `chmod "$(stat -c %a ${directory})" ${directory}; chattr +i ${directory}`;
    case 'forbidden':
      return `stat -c %a ${directory} >${limited}.mode; chmod 0555 ${directory}`;
  }
}

function repair(directory: string, how: Spoiling): string {
  switch (how) {
    case 'read-only':
      return `umount -l ${directory}`;
    case 'no-space':
    case 'no-inodes':
      return unmountLimited(directory);
    case 'immutable':
      return `chattr -i ${directory}`;
    case 'forbidden':
      return `chmod "$(cat ${limited}.mode)" ${directory}; rm ${limited}.mode`;
  }
}

/** An overlay on the directory itself, so that nothing is copied. */
function mountLimited(directory: string, options: string): string {
  return `mkdir ${limited}
    mount -t tmpfs -o mode=0755,${options} limited ${limited}
    mkdir -m "$(stat -c %a ${directory})" ${limited}/upper
    mkdir ${limited}/work
    mount -t overlay limited -o lowerdir=${directory},upperdir=${limited}/upper,workdir=${limited}/work ${directory}`;
}

/** Fails if anything was left in the limited layer: the listing of the guest cannot see what was under the mount. */
function unmountLimited(directory: string): string {
  return `cp -a ${limited}/upper ${limited}.left
    umount -l ${directory}
    umount -l ${limited}
    rmdir ${limited}
    cd ${limited}.left
    left=$(find . -mindepth 1 | while read -r path; do
      below=${directory}/$path
      if [ -L "$path" ]; then [ "$(readlink "$path")" = "$(readlink "$below")" ]
      elif [ -d "$path" ]; then [ -d "$below" ]
      else cmp -s "$path" "$below"; fi || echo "$path"
    done)
    cd /
    rm -r ${limited}.left
    [ -z "$left" ] || { echo "left behind in ${directory}: $left" >&2; exit 1; }`;
}
