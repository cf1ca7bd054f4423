// The doctor on what of ours lies on the disk: links, the store, the drop-in. One guest, broken in turn.

import { breakages } from './support/doctor.js';
import type { Guest } from './support/guest.js';
import { publicLink } from './support/service.js';

const right = '/opt/vgpu/current/libcuda.so.1';
const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
const fixIt = /^sudo vgpu-agent doctor --fix --profile ollama$/;

const setLink = (guest: Guest): Promise<string> => guest.must('ln', '-sfn', right, publicLink);

breakages('the doctor on links, store and drop-in', [
  {
    name: 'a public link that is missing',
    break: (guest) => guest.must('rm', publicLink),
    undo: setLink,
    check: 'public-links',
    evidence: [/libcuda\.so\.1: it was there after the last install and has been removed since/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a public link that dangles',
    break: (guest) => guest.must('ln', '-sfn', '/nonexistent', publicLink),
    undo: setLink,
    check: 'public-links',
    evidence: [/libcuda\.so\.1: it points to \/nonexistent, and \/nonexistent does not exist/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a drop-in that was removed, and a service started without it',
    break: (guest) =>
      guest.must('sh', '-c', `mv ${dropIn} /root/; systemctl daemon-reload; systemctl restart ollama`),
    undo: (guest) =>
      guest.must(
        'sh',
        '-c',
        `mv /root/50-vgpu.conf ${dropIn}; systemctl daemon-reload; systemctl restart ollama`,
      ),
    check: 'drop-in',
    cause: /is missing/,
    evidence: [/50-vgpu\.conf/],
    command: fixIt,
    fix: true,
  },
]);
