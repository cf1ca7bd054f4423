/**
 * The committed corpora: what libFuzzer found worth keeping, few enough that CI goes through them in seconds, each in
 * one file (test/shim/fuzz/corpus/NAME.gz). Made again, from a directory that a long run has filled, by
 *
 *   node dist/test/shim/fuzz/corpus.js NAME DIRECTORY
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';
import { ROOT } from '../cuda/private_programs.js';

function packed(fuzzer: string): string {
  return path.join(ROOT, 'test/shim/fuzz/corpus', `${fuzzer}.gz`);
}

/** Inputs, each behind its length as a u32. */
export function pack(inputs: readonly Buffer[]): Buffer {
  const parts = inputs.flatMap((input) => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(input.length);
    return [length, input];
  });
  return gzipSync(Buffer.concat(parts), { level: 9 });
}

export function unpack(bytes: Buffer): Buffer[] {
  const all = gunzipSync(bytes);
  const inputs: Buffer[] = [];
  for (let at = 0; at < all.length; ) {
    const length = all.readUInt32LE(at);
    inputs.push(all.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return inputs;
}

/** The committed inputs of a fuzzer. It may have none. */
export function committed(fuzzer: string): Buffer[] {
  return existsSync(packed(fuzzer)) ? unpack(readFileSync(packed(fuzzer))) : [];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [fuzzer, directory] = process.argv.slice(2);
  if (fuzzer === undefined || directory === undefined) throw new Error('usage: corpus.js NAME DIRECTORY');
  const inputs = readdirSync(directory)
    .sort()
    .map((name) => readFileSync(path.join(directory, name)));
  mkdirSync(path.dirname(packed(fuzzer)), { recursive: true });
  writeFileSync(packed(fuzzer), pack(inputs));
  process.stdout.write(`${inputs.length} inputs\n`);
}
