import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { buildProgram, runProgram } from './private_programs.js';

const hex = (text: string): string => Buffer.from(text, 'latin1').toString('hex');

describe('the digests under the integrity answer', () => {
  let program = '';
  before(async () => {
    program = await buildProgram({
      name: 'private_digest',
      sources: [
        'test/shim/programs/private_digest.c',
        'shim-src/guest/private/md2.c',
        'shim-src/guest/private/hmac.c',
        'shim-src/guest/private/integrity.c',
      ],
    });
  });

  async function digest(...args: string[]): Promise<string> {
    const ended = await runProgram(program, args);
    assert.equal(ended.code, 0, ended.stderr);
    return ended.stdout.trim();
  }

  // RFC 1319, appendix A.5.
  const md2Vectors: readonly (readonly [string, string])[] = [
    ['', '8350e5a3e24c153df2275c9f80692773'],
    ['a', '32ec01ec4a6dac72c0ab96fb34c0b5d1'],
    ['abc', 'da853b0d3f88d99b30283a69e6ded6bb'],
    ['message digest', 'ab4f496bfb2a530b219ff33031fe06b0'],
    ['abcdefghijklmnopqrstuvwxyz', '4e8ddff3650292ab5a4108c3aa47940b'],
    ['ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789', 'da33def2a42df13975352846c30338cd'],
    [
      '12345678901234567890123456789012345678901234567890123456789012345678901234567890',
      'd5976f79d83d3a0dc9806c3c66f3efd8',
    ],
  ];
  for (const [text, expected] of md2Vectors) {
    it(`MD2 of ${JSON.stringify(text.slice(0, 20))} (${text.length} bytes) is that of RFC 1319`, async () => {
      assert.equal(await digest('md2', hex(text)), expected);
    });
  }

  // RFC 2104's own vectors are for MD5. This one for MD2 is published in several cryptographic libraries;
  // its key is longer than a block, so it takes the RFC's other branch too.
  it('HMAC-MD2 with a key longer than a block is the published one', async () => {
    assert.equal(await digest('hmac', '0b'.repeat(20), hex('Hi There')), 'dc1923ef5f161d35bef839ca8c807808');
  });

  it('HMAC-MD2 is what RFC 2104 composes from MD2, for keys and texts of all lengths about a block', async () => {
    const padded = (key: Buffer, pad: number): Buffer => {
      const block = Buffer.alloc(16);
      key.copy(block);
      return block.map((byte) => byte ^ pad) as Buffer;
    };
    for (const keyLength of [0, 1, 15, 16]) {
      for (const textLength of [0, 1, 15, 16, 17, 48]) {
        const key = Buffer.from(Array.from({ length: keyLength }, (_, i) => (i * 37 + 11) & 255));
        const text = Buffer.from(Array.from({ length: textLength }, (_, i) => (i * 91 + 5) & 255));
        const inner = await digest('md2', Buffer.concat([padded(key, 0x36), text]).toString('hex'));
        const outer = await digest('md2', padded(key, 0x5c).toString('hex') + inner);
        assert.equal(await digest('hmac', key.toString('hex'), text.toString('hex')), outer);
      }
    }
  });

  const uuid = '00112233445566778899aabbccddeeff';
  const question = (version: number, extra: readonly string[] = []): string[] => {
    const numbers = ['13000', String(version), '4711', '0xf79c1740', '0x7ffff6958240', '0x7ffff6958220'];
    return ['answer', ...numbers, '0x7ffff2aaf4a0', '0x682b9cee', ...extra];
  };

  it('versions that end in 0 and 1 have constant answers', async () => {
    const zero = '5c67cb031c184133e8d14c1faa83d38e';
    const one = '5c67cb031c184118e8d14c1faa83d38e';
    assert.equal(await digest(...question(13000)), zero);
    assert.equal(await digest(...question(12080, [uuid, '0', '1', '0'])), zero);
    assert.equal(await digest(...question(13001)), one);
  });

  it('other versions have the HMAC of the message as it is documented, field by field', async () => {
    const key = '146addae53a9a752aa0841360bf55a9f';
    const message = Buffer.alloc(48 + 28);
    for (const [index, value] of [13000, 13002, 4711, 0xf79c1740].entries()) {
      message.writeUInt32LE(value, index * 4);
    }
    for (const [index, value] of [0x7ffff6958240n, 0x7ffff6958220n, 0x7ffff2aaf4a0n, 0x682b9ceen].entries()) {
      message.writeBigUInt64LE(value, 16 + index * 8);
    }
    Buffer.from(uuid, 'hex').copy(message, 48);
    for (const [index, value] of [3, 65, 2].entries()) message.writeInt32LE(value, 64 + index * 4);
    const expected = await digest('hmac', key, message.toString('hex'));
    assert.equal(await digest(...question(13002, [uuid, '3', '65', '2'])), expected);
  });
});
