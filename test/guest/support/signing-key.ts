// A key that signs the apt source of the packages under test, in a keyring of its own.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runOk } from './process.js';

export class SigningKey {
  readonly fingerprint: string;
  /** The name by which `gpg` finds the key. */
  readonly env: Readonly<Record<string, string>>;

  private constructor(home: string, fingerprint: string) {
    this.env = { GNUPGHOME: home };
    this.fingerprint = fingerprint;
  }

  static async make(): Promise<SigningKey> {
    const home = mkdtempSync(join(tmpdir(), 'vgpu-test-key-'));
    const env = { GNUPGHOME: home };
    const who = 'tests <tests@vgpu-agent.invalid>';
    const made = ['--batch', '--passphrase', '', '--quick-generate-key', who, 'ed25519', 'sign', 'never'];
    await runOk('gpg', made, { env });
    const { stdout } = await runOk('gpg', ['--batch', '--with-colons', '--list-secret-keys'], { env });
    return new SigningKey(home, /^fpr:+([0-9A-F]{40}):/m.exec(stdout)?.[1] ?? '');
  }

  /** Also ends the agent that `gpg` has started. */
  remove(): void {
    const env = { ...process.env, ...this.env };
    spawnSync('gpgconf', ['--kill', 'gpg-agent'], { env });
    rmSync(this.env['GNUPGHOME'] ?? '', { recursive: true, force: true });
  }
}
