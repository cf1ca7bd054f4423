// On what the numbers were measured.

import { execFileSync } from 'node:child_process';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { repository } from './paths.js';

export interface MachineFacts {
  readonly cores: number;
  readonly processor: string;
  readonly memoryBytes: number;
  readonly kernel: string;
  readonly node: string;
  readonly systemd: string;
  /** Of the last minute, before the benchmark began: others that work here blur the numbers. */
  readonly loadBefore: number;
  /** The commit of the checkout; null where it is none. */
  readonly commit: string | null;
  /** Files differ from the commit. */
  readonly modified: boolean;
}

export function machineFacts(): MachineFacts {
  const processors = cpus();
  const status = git('status', '--porcelain');
  return {
    cores: processors.length,
    processor: processors[0]?.model ?? 'unknown',
    memoryBytes: totalmem(),
    kernel: release(),
    node: process.versions.node,
    systemd: firstLine('systemctl', ['--version']) ?? 'unknown',
    loadBefore: loadavg()[0] ?? 0,
    commit: git('rev-parse', '--short', 'HEAD'),
    modified: status !== null && status !== '',
  };
}

function git(...args: readonly string[]): string | null {
  return firstLine('git', ['-c', 'safe.directory=*', '-C', repository, ...args]);
}

function firstLine(command: string, args: readonly string[]): string | null {
  try {
    const said = execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return said.split('\n')[0] ?? '';
  } catch {
    return null; // not installed, or not a checkout
  }
}
