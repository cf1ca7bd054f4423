// podman in a guest, with Debian 12 at /run/image as the image of its containers.

/** podman as it runs in a guest: no overlay on an overlay, and no pids controller. */
export const prepare = `
rm -f /etc/systemd/system-generators/podman-system-generator
mkdir -p /etc/containers/systemd /var/lib/containers
mount -t tmpfs tmpfs /var/lib/containers
printf '[containers]\\npids_limit=0\\n' >/etc/containers/containers.conf
printf '[storage]\\ndriver="vfs"\\nrunroot="/run/containers/storage"\\ngraphroot="/var/lib/containers/storage"\\n' \
  >/etc/containers/storage.conf
useradd -m person
mkdir -p /run/user/1000 /home/person/.config/containers
printf '[storage]\\ndriver="vfs"\\n' >/home/person/.config/containers/storage.conf
# All that a program that computes needs: the C library.
root=/home/person/root/usr/lib/x86_64-linux-gnu
mkdir -p $root /home/person/root/{dev,etc,proc,sys,tmp,run} /home/person/root/usr/{bin,lib64}
cp /run/image/usr/lib/x86_64-linux-gnu/{libc.so.6,libm.so.6,libdl.so.2,libpthread.so.0,librt.so.1,ld-linux-x86-64.so.2} $root/
ln -s usr/lib /home/person/root/lib
ln -s usr/lib64 /home/person/root/lib64
ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 /home/person/root/usr/lib64/ld-linux-x86-64.so.2
cp /run/image/usr/bin/sleep /home/person/root/usr/bin/
chown -R person: /home/person /run/user/1000
`;

export function quadlet(lines: string): string {
  return `[Container]\nRootfs=/run/image:O\n${lines}\n[Service]\nTimeoutStopSec=2\n`;
}
