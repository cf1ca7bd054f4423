import path from 'node:path';
import { Command } from 'commander';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { userProfiles } from '../../lib/paths.js';
import { oneLine, type Style, wrap } from '../../lib/text.js';
import { listProfiles, loadProfile, type ProfileName } from '../../profile/load.js';
import { examples, type Outcome, type Run } from './common.js';

export function profilesCommand(run: Run): Command {
  return new Command('profiles')
    .description('list the profiles, and where each comes from')
    .option('--names', 'print only the names, one on each line')
    .addHelpText(
      'after',
      examples(
        ['vgpu-agent profiles', 'what install --profile takes'],
        ['vgpu-agent profiles --json | jq -r ".profiles[].unit"', 'the services, in a script'],
      ),
    )
    .action((options: { readonly names?: true }) => run(async () => profiles(options.names === true)));
}

function profiles(namesOnly: boolean): Outcome {
  const found = listProfiles().map(listed);
  return {
    exitCode: ExitCode.done,
    document: { schema: 1, command: 'profiles', profiles: found },
    text: (style) =>
      namesOnly
        ? found.map(({ name }) => name).join('\n')
        : found.map((one) => profileText(one, style)).join('\n\n'),
  };
}

/** Of a file that does not fit, `problem` says why. */
function listed({ name, path: file }: ProfileName) {
  const place = { name, path: file, from: path.dirname(file) === userProfiles ? 'administrator' : 'shipped' };
  try {
    const { unit, description, notRun = null } = loadProfile(name);
    return { ...place, unit, description, problem: null, notRun };
  } catch (error) {
    if (!(error instanceof VgpuError)) throw error;
    return { ...place, unit: null, description: null, problem: error.message, notRun: null };
  }
}

function profileText(
  { name, path: file, from, unit, description, problem, notRun }: ReturnType<typeof listed>,
  style: Style,
): string {
  const said = problem === null ? (description ?? '') : `${style.bad('cannot be read')}: ${oneLine(problem)}`;
  return [
    `${style.bold(name)}  ${oneLine(unit ?? '')}`.trimEnd(),
    `  ${wrap(problem === null ? oneLine(said) : said, style.width - 2, '  ')}`,
    ...(notRun === null ? [] : [`  ${wrap(`not run: ${oneLine(notRun)}`, style.width - 2, '  ')}`]),
    `  ${style.dim(`${from}: ${oneLine(file)}`)}`,
  ].join('\n');
}
