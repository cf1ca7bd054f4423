/** Part of the build: writes the completion scripts of vgpu-agent beside the bundle, from the commands as they are. */
import { Command, type Option } from 'commander';
import { outputFileSync } from 'fs-extra/esm';
import { describeProgram } from '../agent/cli/commands/command-line.js';
import { completionFile, type Shell, shells } from '../agent/cli/commands/completion.js';

const program = new Command('vgpu-agent');
await describeProgram(program, async () => {}, { write: () => {} });
for (const shell of shells) outputFileSync(completionFile(shell), completionText(shell));

function completionText(shell: Shell): string {
  switch (shell) {
    case 'bash':
      return bash();
    case 'zsh':
      return zsh();
    case 'fish':
      return fish();
  }
}

/** The possible arguments of an option, where they can be completed. */
function follows(option: Option): 'profile' | 'file' | 'unit' | 'something' | 'nothing' {
  if (!option.required && !option.optional) return 'nothing';
  if (option.long === '--profile') return 'profile';
  if (option.long === '--unit') return 'unit';
  return option.long === '--report' ? 'file' : 'something';
}

function optionsOf(command: Command): readonly Option[] {
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

function header(comment: string): string {
  return `${comment} Completion for vgpu-agent(8), written by: vgpu-agent completion\n`;
}

function bash(): string {
  const names = program.commands.map((command) => command.name());
  const cases = program.commands.map(
    (command) =>
      `    ${command.name()}) words='${[...partsOf(command), words(optionsOf(command))].join(' ')}' ;;`,
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
    '') words='${[...names, words(optionsOf(program))].join(' ')}' ;;
${cases.join('\n')}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _vgpu_agent vgpu-agent
`;
}

function zsh(): string {
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
    const all = [...optionsOf(command).flatMap(argument), ...rest];
    return `        ${command.name()}) _arguments ${all.join(' ')} ;;`;
  });
  return `#compdef vgpu-agent
${header('#')}_vgpu_agent() {
  local -a commands
  commands=(
${commands.join('\n')}
  )
  _arguments -C ${optionsOf(program).flatMap(argument).join(' ')} '1:command:->command' '*::argument:->argument'
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

function fish(): string {
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
