#!/usr/bin/env node
import { runCommandLine } from './cli/commands/command-line.js';

process.exitCode = await runCommandLine(process.argv.slice(2), process);
