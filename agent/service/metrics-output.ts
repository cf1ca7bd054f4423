/** Where metrics go besides the bus: a file for node_exporter, a listener on a unix socket or loopback. */
import { lstatSync, rmSync } from 'node:fs';
import type { Server } from 'node:http';
import path from 'node:path';
import type { AgentConfig } from '../guest/agent-conf.js';
import { errnoOf, VgpuError } from '../lib/errors.js';
import { createServer } from '../lib/http.js';
import { openDirectory, replaceFile } from '../lib/trust/files.js';
import { reportUnexpected } from '../lib/unexpected.js';

export interface MetricsOutput {
  /** Follows the configuration; what is not wanted any more goes. */
  configure(metrics: AgentConfig['metrics']): void;
  /** Something changed: the file is written again, at most once a second. */
  changed(): void;
  close(): void;
}

const writeEveryMs = 1_000;
/** Any user may connect, and descriptors are needed for repairs. */
const mostConnections = 32;

export function metricsOutput(
  text: () => Promise<string>,
  complain: (message: string) => void,
): MetricsOutput {
  let textfile: string | null = null;
  let listen: string | null = null;
  let server: Server | null = null;
  let timer: NodeJS.Timeout | null = null;
  let complained = '';

  const complainOnce = (message: string): void => {
    if (message !== complained) complain(message);
    complained = message;
  };
  const write = async (): Promise<void> => {
    timer = null;
    if (textfile === null) return;
    const file = textfile;
    try {
      const body = await text();
      // The setting was removed or changed while the text was made: it must not come back.
      if (textfile !== file) return;
      // The directory may belong to node_exporter's user: never write through an existing file or link there.
      const directory = openDirectory(path.dirname(file));
      try {
        replaceFile(directory, path.basename(file), body, 0o644);
      } finally {
        directory.close();
      }
      complained = '';
    } catch (error) {
      const why = error instanceof VgpuError ? error.message : (errnoOf(error) ?? String(error));
      complainOnce(
        `cannot write ${file}: ${why}; add its directory to ReadWritePaths= of vgpu-agent.service (systemctl edit vgpu-agent)`,
      );
    }
  };
  const stopListening = (): void => {
    server?.close();
    server?.closeAllConnections();
    if (server !== null && listen?.startsWith('unix:')) removeSocket(listen.slice('unix:'.length));
    server = null;
  };
  const startListening = (address: string): void => {
    const created = createServer((request, response) => {
      if (request.method !== 'GET' || !['/metrics', '/'].includes(request.url ?? '')) {
        response.writeHead(404).end();
        return;
      }
      text()
        .then(
          (body) => response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4' }).end(body),
          (error: unknown) => response.writeHead(500).end(String(error)),
        )
        .catch(reportUnexpected);
    });
    created.maxConnections = mostConnections;
    created.on('error', (error) => complainOnce(`cannot listen on ${address}: ${error.message}`));
    if (address.startsWith('unix:')) {
      const socket = address.slice('unix:'.length);
      removeSocket(socket);
      // Every user may connect. Not by chmod: the name could refer to another file by then. bind(2) has finished when
      // this returns.
      const umask = process.umask(0o111);
      try {
        created.listen(socket);
      } finally {
        process.umask(umask);
      }
    } else {
      const at = address.lastIndexOf(':');
      const host = address.slice('tcp:'.length, at).replace(/^\[|\]$/g, '');
      created.listen(Number(address.slice(at + 1)), host);
    }
    server = created;
  };

  return {
    configure(metrics) {
      if (metrics.textfile !== textfile) {
        if (textfile !== null) removeFile(textfile);
        textfile = metrics.textfile;
        if (textfile !== null) void write();
      }
      if (metrics.listen !== listen) {
        stopListening();
        listen = metrics.listen;
        if (listen !== null) startListening(listen);
      }
    },
    changed() {
      if (textfile === null || timer !== null) return;
      timer = setTimeout(() => void write(), writeEveryMs);
    },
    close() {
      if (timer !== null) clearTimeout(timer);
      // A value that is not updated any more must not be scraped forever.
      if (textfile !== null) removeFile(textfile);
      textfile = null;
      stopListening();
    },
  };
}

/** A name in a directory that root chose; what it may lead to stays. */
function removeFile(file: string): void {
  try {
    const directory = openDirectory(path.dirname(file));
    try {
      rmSync(directory.entry(path.basename(file)), { force: true });
    } finally {
      directory.close();
    }
  } catch {
    // It cannot be reached, or a directory is in its place: then the service did not make it.
  }
}

/** Remove only a socket that a former service left: an error in the configuration must not delete a user's file. */
function removeSocket(socket: string): void {
  if (lstatSync(socket, { throwIfNoEntry: false })?.isSocket() === true) rmSync(socket, { force: true });
}
