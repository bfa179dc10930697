"""The scripts of `forebay completion`, one for each shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NAMES = frozenset({"run", "submit"})
"""Commands whose words are names of requests."""

IDS = frozenset(
    {"show", "why", "logs", "items", "wait", "result", "cancel", "retry", "replay", "prune"}
)
"""Commands whose words are ids."""

Tree = dict[str, tuple[str, list[str]]]
"""Summary and words of each command; those of the top level under ""."""

ASKED = "|".join(sorted(IDS | NAMES))


def bash(tree: Tree) -> str:
    """For bash 4 and later."""
    cases = "\n".join(
        f'        {name}) words="{" ".join(words)}" ;;' for name, (_, words) in tree.items() if name
    )
    return f"""\
_forebay() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" command="" words="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$word" in -*) ;; *) command="$word"; break ;; esac
    done
    case "$command" in
        "") words="{" ".join(tree[""][1])}" ;;
{cases}
    esac
    case "$command" in
        {ASKED})
            if [[ "$current" != -* ]]; then
                words="$(forebay completion bash --words "$command" 2>/dev/null)"
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _forebay forebay
"""


def zsh(tree: Tree) -> str:
    """For zsh; the file is to be called _forebay."""
    commands = "\n".join(
        f"        '{name}:{_quoted(summary)}'" for name, (summary, _) in tree.items() if name
    )
    cases = "\n".join(
        f"        {name}) options=({' '.join(words)}) ;;"
        for name, (_, words) in tree.items()
        if name
    )
    return f"""\
#compdef forebay
_forebay() {{
    local -a commands options
    commands=(
{commands}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
    case "${{words[2]}}" in
        {ASKED})
            if [[ "${{words[CURRENT]}}" != -* ]]; then
                options=(${{(f)"$(forebay completion zsh --words ${{words[2]}} 2>/dev/null)"}})
            fi ;;
    esac
    compadd -- $options || _files
}}
compdef _forebay forebay
"""


def fish(tree: Tree) -> str:
    """For fish 3 and later."""
    lines = ["complete -c forebay -f"]
    for name, (summary, words) in tree.items():
        if not name:
            continue
        text = _quoted(summary)
        lines.append(f"complete -c forebay -n __fish_use_subcommand -a {name} -d '{text}'")
        condition = f"'__fish_seen_subcommand_from {name}'"
        for word in words:
            kind = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c forebay -n {condition} {kind}")
        if name in IDS | NAMES:
            asked = f"'(forebay completion fish --words {name} 2>/dev/null)'"
            lines.append(f"complete -c forebay -n {condition} -a {asked}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Text for single quotes; a colon would end a zsh description."""
    return text.replace("'", "").replace(":", " -")


SCRIPTS: Final[dict[str, Callable[[Tree], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
