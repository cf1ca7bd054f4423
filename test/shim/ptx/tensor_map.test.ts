import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { buildProgram, runProgram } from '../cuda/private_programs.js';
import { builtFile, type Host, SHIM, scratchDirectory, startHost, VARIANT } from '../shim_host.js';

const skip = VARIANT === 'shim' ? false : 'a program that is not sanitized cannot load a sanitized library';

/**
 * Only a driver with a GPU makes these descriptors, so here stands one in for it that writes down what it was
 * given: what the shim has to show is that every parameter arrives and the answer comes back.
 */
describe('descriptors of tensors', { skip }, () => {
  const scratch = scratchDirectory();
  let behind: Host | undefined;
  let front: Host | undefined;
  let driver = '';
  let program = '';

  before(async () => {
    driver = await buildProgram({
      name: 'libtensor-driver.so',
      sources: ['test/shim/programs/tensor_driver.c', builtFile('libcuda.so.1')],
      sanitize: 'none',
      soname: 'libtensor-driver.so',
    });
    program = await buildProgram({
      name: 'tensor-calls',
      sources: ['test/shim/programs/tensor_calls.c'],
      sanitize: 'none',
    });
    behind = await startHost({ listen: `unix:${scratch.path}/behind` });
    front = await startHost({
      device: 'cuda',
      listen: `unix:${scratch.path}/s`,
      args: ['--cuda-library', driver, '--nvml-library', builtFile('libnvidia-ml.so.1')],
      env: { VGPU_HOST: behind.address, LD_LIBRARY_PATH: SHIM },
    });
  });
  after(async () => {
    await front?.stop();
    await behind?.stop();
    scratch.remove();
  });

  const start = async (host: Host | undefined, words: readonly string[]): Promise<string[]> => {
    assert.ok(host);
    const ended = await runProgram(program, words, {
      env: { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM },
    });
    assert.deepEqual([ended.code, ended.stderr], [0, '']);
    return ended.stdout.trim().split('\n');
  };

  it('are what the driver at the host makes of the same parameters', async () => {
    const direct = await start(behind, [driver]);
    assert.deepEqual(await start(front, ['libcuda.so.1']), direct);
    assert.equal(new Set(direct).size, direct.length, 'each parameter counts');
    assert.match(direct.join('\n'), /^judged 1 /m);
  });

  it('are refused when the parameters cannot be read', async () => {
    const lines = await start(front, ['libcuda.so.1', 'mistakes']);
    assert.deepEqual(
      lines.slice(-7).map((line) => line.replace(/ +0$/, '')),
      ['unaligned 1', 'no place 1', 'rank 0 1', 'rank 6 1', 'no box 1', 'flat im2col 1', 'nothing moved 1'],
    );
  });

  it('are made by the software device for tiles; interleaved layouts it does not have', async () => {
    const lines = await start(behind, ['libcuda.so.1']);
    assert.deepEqual(
      lines.map((line) => line.split(' ', 3).slice(0, 2).join(' ')),
      [
        'supported 1',
        ...Array.from({ length: 5 }, () => 'tiled 0'),
        'tiled without',
        'moved 0',
        ...Array.from({ length: 3 }, () => ['im2col 801', 'wide 801']).flat(),
        'judged 1',
      ],
    );
    assert.match(lines[6] ?? '', /^tiled without strides 0 /);
  });

  it('let a kernel copy the columns of images, and only in their own mode', async () => {
    assert.ok(behind);
    const copy = await buildProgram({
      name: 'tensor-im2col',
      sources: ['test/shim/programs/tensor_im2col.c'],
      sanitize: 'none',
    });
    const ended = await runProgram(copy, [], {
      env: { VGPU_HOST: behind.address, LD_LIBRARY_PATH: SHIM },
    });
    assert.deepEqual([ended.code, ended.stderr], [0, '']);
    const lines = ended.stdout.trim().split('\n');
    const copied = lines.filter((line) => / (?:load|store|reduce) /.test(line));
    assert.equal(copied.length, 28);
    assert.deepEqual(
      copied.filter((line) => !line.endsWith(' 0 complete 1 wrong 0')),
      [],
    );
    assert.deepEqual(lines.slice(copied.length), [
      'as it is 0',
      'no channels 1',
      '12 bytes 1',
      '257 channels 1',
      'no pixels 1',
      '1024 pixels 0',
      '1025 pixels 1',
      'corner -128 0',
      'corner -129 1',
      'corner 128 1',
      'corner -129 of 3 0',
      'corner 16 of 5 1',
      'interleaved 801',
      'as a tile 719',
    ]);
  });

  it('let a kernel that has them as parameters copy tiles, beyond the edges too', async () => {
    assert.ok(behind);
    const copy = await buildProgram({
      name: 'tensor-copy',
      sources: ['test/shim/programs/tensor_copy.c'],
      sanitize: 'none',
    });
    const ended = await runProgram(copy, [], {
      env: { VGPU_HOST: behind.address, LD_LIBRARY_PATH: SHIM },
    });
    assert.deepEqual(
      [ended.code, ended.stderr, ended.stdout],
      [0, '', 'copied 0 wrong 0\nmoved 0 wrong 0\noutside 719\n'],
    );
  });
});
