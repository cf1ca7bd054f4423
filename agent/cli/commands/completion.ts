/** `vgpu-agent completion`: what a shell needs to complete the words of this command, made of the commands themselves. */
import { Argument, Command, type Option } from 'commander';
import { ExitCode } from '../../lib/errors.js';
import { examples } from './options.js';
import type { Run } from './types.js';

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

/** `program` is asked for its commands only when the text is made: this command is one of them. */
export function completionCommand(run: Run, program: () => Command): Command {
  return new Command('completion')
    .description('print the completion script for a shell (install --service installs it)')
    .addArgument(new Argument('<shell>', 'bash, zsh or fish').choices(shells))
    .addHelpText(
      'after',
      examples([
        'vgpu-agent completion bash >~/.local/share/bash-completion/completions/vgpu-agent',
        'for yourself',
      ]),
    )
    .action((shell: Shell) =>
      run(async () => ({
        exitCode: ExitCode.done,
        document: { schema: 1, command: 'completion', shell, text: completionText(shell, program()) },
        text: () => completionText(shell, program()).trimEnd(),
      })),
    );
}

export function completionText(shell: Shell, program: Command): string {
  switch (shell) {
    case 'bash':
      return bash(program);
    case 'zsh':
      return zsh(program);
    case 'fish':
      return fish(program);
  }
}

/** The possible arguments of an option, where they can be completed. */
function follows(option: Option): 'profile' | 'file' | 'unit' | 'something' | 'nothing' {
  if (!option.required && !option.optional) return 'nothing';
  if (option.long === '--profile') return 'profile';
  if (option.long === '--unit') return 'unit';
  return option.long === '--report' ? 'file' : 'something';
}

function optionsOf(command: Command, program: Command): readonly Option[] {
  return ownOptions(command).concat(command === program ? [] : program.options);
}

/** Those of its parts too, each once: which part it is stands elsewhere on the line. */
function ownOptions(command: Command): Option[] {
  const all = command.parent === null ? [command] : [command, ...command.commands];
  const options = all.flatMap((one) => one.createHelp().visibleOptions(one));
  return options.filter((option, at) => options.findIndex(({ long }) => long === option.long) === at);
}

function partsOf(command: Command): readonly string[] {
  return command.commands.map((part) => part.name());
}

function words(options: readonly Option[]): string {
  return options.flatMap(({ short, long }) => [short, long].filter((word) => word !== undefined)).join(' ');
}

const header = (comment: string): string =>
  `${comment} Completion for vgpu-agent(8), written by: vgpu-agent completion\n`;

function bash(program: Command): string {
  const names = program.commands.map((command) => command.name());
  const cases = program.commands.map(
    (command) =>
      `    ${command.name()}) words='${[...partsOf(command), words(optionsOf(command, program))].join(' ')}' ;;`,
  );
  return `${header('#')}_vgpu_agent() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} command='' words word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      ${names.join(' | ')})
        command=$word
        break
        ;;
    esac
  done
  case $prev in
    --profile | -p)
      words=$(vgpu-agent profiles --names 2>/dev/null)
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
      return
      ;;
    --unit)
      words=$(systemctl list-unit-files --type=service --no-legend --no-pager 2>/dev/null | while read -r word _; do echo "$word"; done)
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
      return
      ;;
    --report | explain-log)
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
      ;;
    --)
      mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      return
      ;;
    completion)
      mapfile -t COMPREPLY < <(compgen -W '${shells.join(' ')}' -- "$cur")
      return
      ;;
  esac
  case $command in
    '') words='${[...names, words(optionsOf(program, program))].join(' ')}' ;;
${cases.join('\n')}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _vgpu_agent vgpu-agent
`;
}

function zsh(program: Command): string {
  const quote = (text: string): string => text.replaceAll("'", "'\\''").replaceAll(/[[\]:]/g, '\\$&');
  const action = {
    profile: ':profile:($(vgpu-agent profiles --names 2>/dev/null))',
    file: ':file:_files',
    unit: ':unit:',
    something: ':value:',
    nothing: '',
  } as const;
  const restOf: Readonly<Record<string, readonly string[]>> = {
    completion: [`'1:shell:(${shells.join(' ')})'`],
    run: ["'*:::command:_normal'"],
  };
  const argument = (option: Option): readonly string[] =>
    [option.short, option.long]
      .filter((flag) => flag !== undefined)
      .map((flag) => `'${flag}[${quote(option.description)}]${action[follows(option)]}'`);
  const commands = program.commands.map(
    (command) => `    '${command.name()}:${quote(command.description())}'`,
  );
  const cases = program.commands.map((command) => {
    const parts = partsOf(command);
    const rest =
      parts.length > 0 ? [`'1:word:(${parts.join(' ')})'`] : (restOf[command.name()] ?? ["'*:file:_files'"]);
    const all = [...optionsOf(command, program).flatMap(argument), ...rest];
    return `        ${command.name()}) _arguments ${all.join(' ')} ;;`;
  });
  return `#compdef vgpu-agent
${header('#')}_vgpu_agent() {
  local -a commands
  commands=(
${commands.join('\n')}
  )
  _arguments -C ${optionsOf(program, program).flatMap(argument).join(' ')} '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $words[1] in
${cases.join('\n')}
      esac
      ;;
  esac
}
_vgpu_agent "$@"
`;
}

function fish(program: Command): string {
  const quote = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const value = {
    profile: " -x -a '(vgpu-agent profiles --names 2>/dev/null)'",
    file: ' -r',
    unit: ' -x',
    something: ' -x',
    nothing: '',
  } as const;
  const line = (condition: string, option: Option): string => {
    const short = option.short === undefined ? '' : ` -s ${option.short.slice(1)}`;
    const long = option.long === undefined ? '' : ` -l ${option.long.slice(2)}`;
    return `complete -c vgpu-agent${condition}${short}${long}${value[follows(option)]} -d ${quote(option.description)}`;
  };
  const lines = program.options.map((option) => line('', option));
  for (const command of program.commands) {
    const name = command.name();
    lines.push(
      `complete -c vgpu-agent -n __fish_use_subcommand -f -a ${name} -d ${quote(command.description())}`,
    );
    const seen = ` -n '__fish_seen_subcommand_from ${name}'`;
    for (const option of ownOptions(command)) lines.push(line(seen, option));
    if (command.commands.length > 0) {
      lines.push(`complete -c vgpu-agent${seen} -f -a '${partsOf(command).join(' ')}'`);
    }
  }
  lines.push(
    "complete -c vgpu-agent -n '__fish_seen_subcommand_from run' -a '(__fish_complete_subcommand)'",
    `complete -c vgpu-agent -n '__fish_seen_subcommand_from completion' -f -a '${shells.join(' ')}'`,
  );
  return `${header('#')}${lines.join('\n')}\n`;
}
