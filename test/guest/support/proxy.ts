/**
 * A web proxy that signs with a certificate authority of its own, as companies have them, for scripts/lib/bare-run:
 *
 *   proxy.js serve SOCKET DIR    makes DIR/authority.crt and listens; prints the requested hosts
 *   proxy.js forward SOCKET PORT forwards a port of the loopback interface to SOCKET, in a network namespace
 *                                without other interfaces
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer, request } from 'node:http';
import { createServer, connect as plainConnect, type Socket } from 'node:net';
import path from 'node:path';
import type { Duplex } from 'node:stream';
import { connect, createSecureContext, type SecureContext, TLSSocket } from 'node:tls';

function openssl(...args: readonly string[]): void {
  execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'inherit'] });
}

const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** Certificates of hosts, each made at its first request. */
function authority(directory: string): (host: string) => SecureContext {
  const at = (name: string): string => path.join(directory, name);
  mkdirSync(directory, { recursive: true });
  const subject = ['-subj', '/CN=Proxy of a test', '-days', '2'];
  openssl('req', '-x509', ...key, ...subject, '-keyout', at('authority.key'), '-out', at('authority.crt'));
  const made = new Map<string, SecureContext>();
  return (host) => {
    const known = made.get(host);
    if (known !== undefined) return known;
    writeFileSync(at('names'), `subjectAltName=DNS:${host}\n`);
    openssl('req', ...key, '-subj', `/CN=${host}`, '-keyout', at('host.key'), '-out', at('host.csr'));
    const signed = [
      '-CA',
      at('authority.crt'),
      '-CAkey',
      at('authority.key'),
      '-CAcreateserial',
      '-days',
      '2',
    ];
    openssl(
      'x509',
      '-req',
      '-in',
      at('host.csr'),
      ...signed,
      '-extfile',
      at('names'),
      '-out',
      at('host.crt'),
    );
    const context = createSecureContext({
      key: readFileSync(at('host.key')),
      cert: readFileSync(at('host.crt')),
    });
    made.set(host, context);
    return context;
  };
}

/** Both ways until one of them ends. */
function join(one: Duplex, other: Duplex): void {
  one.pipe(other);
  other.pipe(one);
  one.on('error', () => other.destroy());
  other.on('error', () => one.destroy());
}

function serve(socket: string, directory: string): void {
  const certificate = authority(directory);
  const told = (text: string): void => void process.stderr.write(`${text}\n`);
  const server = createHttpServer((asked, answer) => {
    const url = new URL(asked.url ?? '');
    told(url.host);
    const { 'proxy-connection': _, ...headers } = asked.headers;
    const passed = request(url, { method: asked.method ?? 'GET', headers }, (got) => {
      answer.writeHead(got.statusCode ?? 502, got.headers);
      got.pipe(answer);
    });
    passed.on('error', () => answer.destroy());
    asked.pipe(passed);
  });
  server.on('connect', (asked, client: Socket) => {
    const [host = '', port = '443'] = (asked.url ?? '').split(':');
    told(asked.url ?? '');
    client.write('HTTP/1.1 200 Connection established\r\n\r\n');
    const inside = new TLSSocket(client, { isServer: true, secureContext: certificate(host) });
    join(inside, connect({ host, port: Number(port), servername: host }));
  });
  server.listen(socket);
}

function forward(socket: string, port: number): void {
  createServer((client) => join(client, plainConnect(socket))).listen(port, '127.0.0.1');
}

const [role, socket = '', where = ''] = process.argv.slice(2);
if (role === 'serve') serve(socket, where);
else if (role === 'forward') forward(socket, Number(where));
