/**
 * Part of the build: "node code-cache.js BUNDLE COMMAND..." runs the command and writes the byte code of the functions
 * that it called to BUNDLE.cache. Without the cache, compiling them takes a third of a short command's processor time.
 */
import { writeFileSync } from 'node:fs';
import { load } from './load.js';

const [, , file = '', ...command] = process.argv;
const { script, exports } = load(file);
process.once('exit', () => writeFileSync(`${file}.cache`, script.createCachedData()));
await exports.runCommandLine(command, process);
