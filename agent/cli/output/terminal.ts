/**
 * Renders the event stream as talk on standard error. On a terminal one line at the bottom spins and counts
 * while something is waited for; elsewhere every step is a line of its own, and waiting says so every ten
 * seconds.
 */
import type { Event } from '../../contracts/events.js';
import { changeTitle } from '../../install/plan/change-title.js';
import { errnoOf, VgpuError } from '../../lib/errors.js';
import { duration, hanging, oneLine, type Style, wrap } from '../../lib/text.js';
import { planText, warningText } from './plan-text.js';

export type Volume = 'quiet' | 'normal' | 'verbose';

export type Talk = ReturnType<typeof terminalTalk>;

const frames = ['|', '/', '-', '\\'];
const frameMs = 120;
const plainEveryMs = 10_000;

interface Activity {
  readonly text: string;
  readonly since: number;
  readonly limitMs: number | null;
}

/** False under apt, which logs every redrawn frame of a maintainer script as a line. */
export function redraws(env: Readonly<Record<string, string | undefined>>): boolean {
  return env['TERM'] !== 'dumb' && env['DPKG_MAINTSCRIPT_PACKAGE'] === undefined;
}

export function terminalTalk(
  sink: Sink,
  style: Style,
  volume: Volume,
  now: () => number = () => performance.now(),
) {
  let activity: Activity | null = null;
  let frame = 0;
  let shown = false;
  let stepsStay = !sink.isTty;
  let timer: NodeJS.Timeout | null = null;
  let lastPlain = { text: '', at: 0 };
  // Two files may have the same trouble, and the plan warns of what applying it meets: once is enough.
  const noted = new Set<string>();

  const erase = (): void => {
    if (shown) sink.write('\r\u001b[2K');
    shown = false;
  };
  const draw = (): void => {
    if (activity === null) return;
    frame = (frame + 1) % frames.length;
    const limit = activity.limitMs === null ? '' : ` of at most ${duration(activity.limitMs)}`;
    const clock = `${duration(now() - activity.since)}${limit}`;
    const room = style.width - clock.length - 5;
    const text = activity.text.length > room ? `${activity.text.slice(0, room - 3)}...` : activity.text;
    erase();
    sink.write(`${frames[frame] ?? ''} ${text}  ${style.dim(clock)}`);
    shown = true;
  };
  const line = (text: string): void => {
    erase();
    sink.write(`${text}\n`);
    draw();
  };
  const pause = (): void => {
    if (timer !== null) clearInterval(timer);
    timer = null;
    activity = null;
    erase();
  };
  const busy = (text: string, elapsedMs: number, limitMs: number | null): void => {
    if (volume === 'quiet') return;
    if (!sink.isTty) {
      plain(text, elapsedMs, limitMs);
      return;
    }
    activity = { text: oneLine(text), since: now() - elapsedMs, limitMs };
    if (timer === null) {
      timer = setInterval(draw, frameMs);
      // The spinner must not keep the process alive.
      timer.unref();
    }
    draw();
  };
  const plain = (text: string, elapsedMs: number, limitMs: number | null): void => {
    if (limitMs !== null && text === lastPlain.text && now() - lastPlain.at < plainEveryMs) return;
    lastPlain = { text, at: now() };
    const clock = limitMs === null ? '' : ` (${duration(elapsedMs)} of at most ${duration(limitMs)})`;
    sink.write(`${oneLine(text)}${clock}\n`);
  };

  const emit = (event: Event): void => {
    switch (event.kind) {
      case 'phase':
        busy(phaseText(event), 0, null);
        return;
      case 'waiting':
        busy(`waiting for ${event.text}`, event.elapsedMs, event.limitMs);
        return;
      case 'plan':
        pause();
        for (const { message } of event.plan.warnings) noted.add(message);
        if (volume !== 'quiet')
          sink.write(`${planText(event.plan, style, { full: volume === 'verbose' })}\n`);
        else for (const warning of event.plan.warnings) sink.write(`${warningText(warning, style)}\n`);
        return;
      case 'change-started':
        if (sink.isTty) busy(step(event, changeTitle(event.change)), 0, null);
        return;
      case 'change-done':
        if (volume === 'verbose') {
          line(`${step(event, changeTitle(event.change))}: done, ${duration(event.milliseconds)}`);
        } else if (volume === 'normal' && stepsStay) line(step(event, changeTitle(event.change)));
        return;
      case 'change-undone':
        if (volume !== 'quiet') line(`undone: ${changeTitle(event.change)}`);
        return;
      case 'note':
        note(event);
        return;
      case 'facts':
        if (volume === 'verbose') line(wrap(factsLine(event), style.width, '  '));
        return;
      case 'verdict':
        // The result goes to standard output; here only the wait for it ends.
        pause();
        return;
    }
  };

  const note = (event: Extract<Event, { kind: 'note' }>): void => {
    if (event.level === 'info' && volume !== 'verbose') return;
    if (noted.has(event.text)) return;
    noted.add(event.text);
    const label = event.level === 'warning' ? 'warning' : 'note';
    const width = label.length + 2;
    const painted = event.level === 'warning' ? style.caution(label) : label;
    line(hanging(`${painted}: `, event.text, style, width));
    if (event.remedy !== null) line(hanging(' '.repeat(width), event.remedy, style));
  };

  const keepSteps = (): void => {
    stepsStay = true;
  };

  return { emit, pause, keepSteps };
}

function phaseText({ phase, text }: Extract<Event, { kind: 'phase' }>): string {
  switch (phase) {
    case 'apply':
      return `applying ${text}`;
    case 'restart':
      return `restarting ${text}`;
    case 'recover':
      return `cleaning up: ${text}`;
    case 'rollback':
      return `undoing: ${text}`;
    case 'inspect':
    case 'confirm':
    case 'service':
      return text;
  }
}

function step(event: { readonly index: number; readonly of: number }, title: string): string {
  return `[${event.index + 1}/${event.of}] ${title}`;
}

function factsLine(event: Extract<Event, { kind: 'facts' }>): string {
  const { distribution, unit, host, shim } = event.facts;
  return oneLine(
    `${distribution.prettyName}, ${distribution.architecture}; ${unit.name} is ${unit.kind}; ` +
      `host ${host.endpoint} (from ${host.from}): ${host.answer.kind}; shim ${shim.version} ${shim.id}`,
  );
}

/** Where text goes. `write` never throws; text for a reader that has gone is dropped. */
export interface Sink {
  readonly isTty: boolean;
  readonly columns: number | undefined;
  write(text: string): void;
  /** Resolves when all is written. Throws a VgpuError (`failed`) when it could not be, EPIPE excepted. */
  flush(): Promise<void>;
}

/** EPIPE (`| head`) ends the output quietly; a full disk is reported by `flush`. */
export function streamSink(stream: NodeJS.WriteStream, name: string): Sink {
  let failure: Error | null = null;
  stream.on('error', (error: Error) => {
    failure ??= error;
  });
  return {
    get isTty() {
      return stream.isTTY === true;
    },
    get columns() {
      return stream.columns;
    },
    write(text) {
      if (failure === null) stream.write(text);
    },
    async flush() {
      // Written in order: when this empty text is through, so is everything before it.
      if (failure === null) await new Promise<void>((resolve) => stream.write('', () => resolve()));
      if (failure === null || errnoOf(failure) === 'EPIPE') return;
      throw new VgpuError(`cannot write to ${name}: ${errnoOf(failure) ?? String(failure)}`, {
        kind: 'failed',
        operation: `write ${name}`,
        path: name,
        cause: failure,
      });
    },
  };
}
