"""`moregpu config`: the settings in config.toml, and where everything lies."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from moregpu.cli.show import JsonOption, print_facts, print_json, say
from moregpu.errors import InvalidRequest
from moregpu.platform import paths
from moregpu.platform.settings import part_folder, read_section, write_section

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

SECTIONS = ("pool", "worker", "console")
NameArgument = Annotated[str, typer.Argument(help="SECTION.KEY, such as worker.ceiling.", metavar="SECTION.KEY")]


@app.callback()
def config() -> None:
    """Read and change config.toml."""


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Show every setting, and where files lie."""
    settings = {section: read_section(section) for section in SECTIONS}
    places = {
        "config": str(paths.config_file()),
        "profiles": str(paths.config_folder() / "profiles"),
        "coordinator": str(part_folder("pool")),
        "worker": str(part_folder("worker")),
        "logs": str(paths.log_folder()),
    }
    if as_json:
        print_json({"settings": settings, "places": places})
        return
    print_facts(
        [
            *[(f"{section}.{key}", _text(value)) for section in SECTIONS for key, value in settings[section].items()],
            *places.items(),
        ]
    )


@app.command()
def get(name: NameArgument, as_json: JsonOption = False) -> None:
    """Print one setting; nothing where it is not set."""
    section, key = _split(name)
    value = read_section(section).get(key)
    if as_json:
        print_json(value)
    elif value is not None:
        say("{}", _text(value))


@app.command("set")
def change(
    name: NameArgument,
    value: Annotated[str, typer.Argument(help="A number, true, false, a TOML list, or text.")],
    as_json: JsonOption = False,
) -> None:
    """Change one setting; programs read it when they next start."""
    section, key = _split(name)
    settings = read_section(section) | {key: _value(value)}
    check(section, settings)
    write_section(section, settings)
    print_json(settings) if as_json else say("{} = {}", name, _text(settings[key]))


@app.command()
def unset(name: NameArgument, as_json: JsonOption = False) -> None:
    """Forget one setting: its default holds again."""
    section, key = _split(name)
    settings = read_section(section)
    settings.pop(key, None)
    write_section(section, settings)
    print_json(settings) if as_json else say("{} is not set", name)


def _split(name: str) -> tuple[str, str]:
    section, dot, key = name.partition(".")
    if not dot or section not in SECTIONS or not key.isidentifier():
        raise InvalidRequest(f"{name[:60]!r} names no setting", f"SECTION.KEY, with {', '.join(SECTIONS)}")
    return section, key


def _value(text: str) -> Any:
    """A value as TOML writes it, or plain text. Raises `InvalidRequest` for what is no text."""
    import tomllib

    try:
        text.encode()
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{text[:60]!r} is no text: it holds what UTF-8 cannot") from error


def check(section: str, settings: dict[str, Any]) -> None:
    """Refuse what worker or coordinator would refuse at their start."""
    if section == "pool":
        from moregpu.cli.serve import checked_pool

        checked_pool(**settings)
    if section == "worker":
        from moregpu.worker.config import WorkerConfig

        WorkerConfig.checked(**settings)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
