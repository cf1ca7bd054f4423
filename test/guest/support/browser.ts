// Chromium without a window in a guest, driven over the DevTools protocol by a pipe: no port, no network but the guest's.

import type { ChildProcess } from 'node:child_process';
import type { Afterwards, Guest } from './guest.js';
import { at } from './installed.js';
import { until } from './process.js';

/** An answer takes milliseconds; on a busy machine the first answer takes seconds. */
const answerMs = 60_000;

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class Browser {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, Waiting>();
  #session = '';
  #last = 0;
  #rest = '';
  #log = '';

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.stderr?.on('data', (chunk: Buffer) => {
      this.#log += chunk.toString();
    });
    child.stdout?.setEncoding('utf8');
    child.stdout?.on('data', (chunk: string) => {
      // Messages end with a zero byte.
      const messages = (this.#rest + chunk).split('\0');
      this.#rest = messages.pop() ?? '';
      for (const message of messages) this.#hear(message);
    });
    child.once('close', () => {
      for (const { reject } of this.#waiting.values())
        reject(new Error(`the browser has ended:\n${this.#log}`));
      this.#waiting.clear();
    });
  }

  /** A browser with one empty page. It reads descriptor 3 and writes 4; the guest passes 0 and 1 on. */
  static async start(guest: Guest, t: Afterwards): Promise<Browser> {
    const options = '--no-sandbox --disable-gpu --ignore-certificate-errors --user-data-dir=$(mktemp -d)';
    const command = `exec chromium-headless-shell ${options} --remote-debugging-pipe about:blank 3<&0 4>&1 0</dev/null 1>&2`;
    const child = guest.spawn(['bash', '-c', command], { stdio: ['pipe', 'pipe', 'pipe'] });
    const browser = new Browser(child);
    t.after(async () => {
      child.kill('SIGKILL');
    });
    const targets = await browser.#send('Target.getTargets', {});
    const targetId = at(targets, 'targetInfos', 0, 'targetId');
    const attached = await browser.#send('Target.attachToTarget', { targetId, flatten: true });
    browser.#session = String(at(attached, 'sessionId'));
    return browser;
  }

  async open(url: string): Promise<void> {
    const answer = await this.#send('Page.navigate', { url });
    const failed = at(answer, 'errorText');
    if (failed !== undefined) throw new Error(`${url}: ${String(failed)}`);
  }

  /** Types into the field that has the focus, as a keyboard does. */
  async type(text: string): Promise<void> {
    await this.#send('Input.insertText', { text });
  }

  /** Returns the value of an expression in the page. Waits for a promise. */
  async evaluate(expression: string): Promise<unknown> {
    const options = { expression, returnByValue: true, awaitPromise: true };
    const answer = await this.#send('Runtime.evaluate', options);
    const thrown = at(answer, 'exceptionDetails');
    if (thrown !== undefined) throw new Error(`${expression}: ${JSON.stringify(thrown)}`);
    return at(answer, 'result', 'value');
  }

  /** Waits until an expression is true. The error has the text of the page. */
  async shows(what: string, expression: string, timeoutMs = 60_000): Promise<void> {
    try {
      await until(what, timeoutMs, async () => {
        // A page that loads cannot be queried.
        const value = await this.evaluate(expression).catch(() => false);
        return value === true ? true : undefined;
      });
    } catch (error) {
      const all = `[document, ...[...document.querySelectorAll('iframe')].map((one) => one.contentDocument)]
        .map((one) => one?.body?.innerText).join('\\n---\\n')`;
      const shown = await this.evaluate(all).catch(String);
      throw new Error(
        `${error instanceof Error ? error.message : String(error)}; it shows:\n${String(shown)}`,
      );
    }
  }

  #send(method: string, params: object): Promise<unknown> {
    this.#last += 1;
    const id = this.#last;
    const message = { id, method, params, ...(this.#session === '' ? {} : { sessionId: this.#session }) };
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new Error(`${method}: no answer of the browser in ${answerMs} ms:\n${this.#log}`));
      }, answerMs);
      this.#waiting.set(id, {
        resolve: (result) => {
          clearTimeout(late);
          resolve(result);
        },
        reject: (error) => {
          clearTimeout(late);
          reject(error);
        },
      });
      this.#child.stdin?.write(`${JSON.stringify(message)}\0`);
    });
  }

  #hear(text: string): void {
    const message: unknown = JSON.parse(text);
    const id = at(message, 'id');
    if (typeof id !== 'number') return;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    const error = at(message, 'error', 'message');
    if (error === undefined) waiting?.resolve(at(message, 'result'));
    else waiting?.reject(new Error(String(error)));
  }
}
