"""`moregpu completion`: a script for the shell, made from the commands; it starts no Python when Tab is hit."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from moregpu.cli.show import JsonOption, print_json

Shell = Literal["bash", "zsh", "fish", "powershell"]

HINTS = {
    "bash": 'moregpu completion bash > ~/.local/share/bash-completion/completions/moregpu',
    "zsh": 'moregpu completion zsh > "${fpath[1]}/_moregpu"',
    "fish": "moregpu completion fish > ~/.config/fish/completions/moregpu.fish",
    "powershell": "moregpu completion powershell >> $PROFILE",
}  # fmt: skip


def completion(
    shell: Annotated[Shell, typer.Argument(help="For which shell.")],
    as_json: JsonOption = False,
) -> None:
    """Print the completion script of a shell.

    moregpu completion bash > ~/.local/share/bash-completion/completions/moregpu
    """
    table = words()
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish, "powershell": _powershell}[shell](table)
    if as_json:
        print_json({"shell": shell, "script": script, "install": HINTS[shell]})
    else:
        typer.echo(script, nl=False)


def words() -> dict[str, list[str]]:
    """What may follow which words: "" → the commands, "worker" → its commands, "worker set" → its options."""
    from moregpu.cli.reference import commands

    table: dict[str, list[str]] = {"": []}
    for command in commands():
        for depth, word in enumerate(command.words):
            known = table.setdefault(" ".join(command.words[:depth]), [])
            if word not in known:
                known.append(word)
        options = [name for names, _, _, _ in command.options for name in names]
        values = [value for _, _, _, values in command.options for value in values]
        stands = [value for _, _, values in command.arguments for value in values]
        table[" ".join(command.words)] = list(dict.fromkeys([*stands, *options, "--help", *values]))
    return table


def _bash(table: dict[str, list[str]]) -> str:
    cases = "".join(
        f"    '{before}') words='{' '.join(after)}'{' files=' if _takes_a_command(table, before) else ''} ;;\n"
        for before, after in table.items()
    )
    # As bash 3.2 reads it, too: macOS has no later one.
    return f"""# bash completion of moregpu
_moregpu() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before="${{COMP_WORDS[*]:1:2}}" words='' files=yes
  ((COMP_CWORD <= 2)) && before="${{COMP_WORDS[*]:1:COMP_CWORD-1}}"
  case "$before" in
{_commands_alone(table)}  esac
  case "$before" in
{cases}  esac
  local IFS=$'\\n'
  COMPREPLY=($(IFS=' '; compgen -W "$words" -- "$current"))
  [[ -n $files && $current != -* ]] && COMPREPLY+=($(compgen -f -- "$current"))
  return 0
}}
complete -o filenames -F _moregpu moregpu
"""


def _commands_alone(table: dict[str, list[str]]) -> str:
    """A command that has no commands below it is meant by its first word, whatever follows."""
    alone = [before for before in table if before and " " not in before and not _has_below(table, before)]
    return "".join(f"    '{word} '*) before='{word}' ;;\n" for word in alone)


def _takes_a_command(table: dict[str, list[str]], before: str) -> bool:
    """Whether the name of a command comes next, and no file."""
    return not before or _has_below(table, before)


def _has_below(table: dict[str, list[str]], word: str) -> bool:
    return any(before.startswith(f"{word} ") for before in table)


def _zsh(table: dict[str, list[str]]) -> str:
    cases = "".join(
        f"    '{before}') candidates=({' '.join(after)}){' files=' if _takes_a_command(table, before) else ''} ;;\n"
        for before, after in table.items()
    )
    return f"""#compdef moregpu
_moregpu() {{
  local -a candidates
  local files=yes
  local before="${{words[2,3]}}"
  ((CURRENT <= 3)) && before="${{words[2,CURRENT-1]}}"
  case "$before" in
{_commands_alone(table)}  esac
  case "$before" in
{cases}  esac
  compadd -- $candidates
  [[ -n $files ]] && _files
}}
compdef _moregpu moregpu
# Loaded by the first Tab itself, this file is what completes then.
if [[ $funcstack[1] == _moregpu ]]; then _moregpu "$@"; fi
"""


def _fish(table: dict[str, list[str]]) -> str:
    lines = ["# fish completion of moregpu"]
    for before, after in table.items():
        seen = [f"__fish_seen_subcommand_from {word}" for word in before.split()]
        condition = "; and ".join(seen) if seen else "__fish_use_subcommand"
        if before and " " not in before and _has_below(table, before):
            condition += f"; and not __fish_seen_subcommand_from {' '.join(after)}"
        no_files = "-f " if _takes_a_command(table, before) else ""
        lines.append(f"complete -c moregpu -n '{condition}' {no_files}-a '{' '.join(after)}'")
    return "\n".join(lines) + "\n"


def _powershell(table: dict[str, list[str]]) -> str:
    cases = "".join(
        f"    '{before}' = @({', '.join(repr(word) for word in after)})\n" for before, after in table.items()
    )
    return f"""# PowerShell completion of moregpu
Register-ArgumentCompleter -Native -CommandName moregpu -ScriptBlock {{
  param($current, $ast, $position)
  $table = @{{
{cases}  }}
  $typed = @($ast.CommandElements | Select-Object -Skip 1 | ForEach-Object {{ $_.ToString() }})
  if ($current) {{ $typed = @($typed | Select-Object -SkipLast 1) }}
  $before = ($typed | Select-Object -First 2) -join ' '
  if (-not $table.ContainsKey($before)) {{ $before = "$($typed | Select-Object -First 1)" }}
  $table[$before] | Where-Object {{ $_ -like "$current*" }} | ForEach-Object {{
    [System.Management.Automation.CompletionResult]::new($_)
  }}
}}
"""
