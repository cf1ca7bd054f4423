// States in which the consumer's unit or our own places hold something already.

import type { Guest } from '../support/guest.js';
import { multiarch, type StartingState } from './state.js';

/** A library that can be preloaded into anything, under a name of the user's. */
export const ownLibrary = '/srv/mine/libmine.so';
export const ownDirectory = '/srv/mine';

async function ownDropIn(guest: Guest, name: string): Promise<void> {
  await guest.must('bash', '-ec', `install -D -m 0755 ${multiarch}/libm.so.6 ${ownLibrary}`);
  await guest.write(
    `/etc/systemd/system/ollama.service.d/${name}`,
    `# mine\n[Service]\nEnvironment="LD_LIBRARY_PATH=${ownDirectory}" LD_PRELOAD=${ownLibrary}\nEnvironment=OLLAMA_KEEP_ALIVE=1h\n`,
    0o600,
  );
  await guest.must('systemctl', 'daemon-reload');
}

/** Read before ours. */
export const earlyDropIn: StartingState = {
  name: "a user's own drop-in that sorts before ours",
  design: 3,
  skip: false,
  prepare: (guest) => ownDropIn(guest, '10-mine.conf'),
};

/** The file of `systemctl edit`; it sorts after 50-vgpu.conf and so would win. */
export const lateDropIn: StartingState = {
  name: "a user's own drop-in that sorts after ours",
  design: 2,
  skip: false,
  prepare: (guest) => ownDropIn(guest, 'override.conf'),
};

/** A user keeps files where the store goes. */
export const foreignStore: StartingState = {
  name: "foreign files in our store's place",
  design: 3,
  skip: false,
  prepare: async (guest) => {
    await guest.write('/opt/vgpu/README', 'of another product\n', 0o600);
    await guest.write('/opt/vgpu/versions/1.2/libcuda.so.1', 'another libcuda\n');
    await guest.write('/etc/vgpu/other.conf', 'theirs = true\n', 0o640);
  },
};

/** Another product's link under our name. */
export const foreignCurrent: StartingState = {
  name: "another product's /opt/vgpu/current",
  design: 3,
  skip: false,
  expect: { refused: /\/opt\/vgpu\/current points to releases\/7/ },
  prepare: async (guest) => {
    await guest.must('bash', '-ec', 'mkdir -p /opt/vgpu/releases/7; ln -s releases/7 /opt/vgpu/current');
  },
};
