#!/usr/bin/env node
/** Becomes dist/bundle/main.js, the command that people run. */
import path from 'node:path';
import { load } from './load.js';

const { runCommandLine } = load(path.join(import.meta.dirname, 'command.cjs')).exports;
process.exitCode = await runCommandLine(process.argv.slice(2), process);
