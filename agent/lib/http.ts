/**
 * node:http, not imported as a module: importing it reads every name that it exports, and in Node 22 some of them load
 * undici and its WebAssembly. The service runs without WebAssembly (--jitless), and would end there.
 */
const http = process.getBuiltinModule('node:http');

export const { createServer, get } = http;
