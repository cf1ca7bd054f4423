// The part of the benchmark that runs in the guest: `node inside.js ENTRY ROUNDS` measures one entry and prints
// its comparisons as JSON.

import { entries } from './entries/all.js';

const [name, rounds] = process.argv.slice(2);
const entry = entries.find((one) => one.name === name);
if (entry === undefined) throw new Error(`no such entry: ${name}`);
process.stdout.write(JSON.stringify(await entry.measure(Number(rounds))));
