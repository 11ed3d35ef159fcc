"""One command-line option for each setting, made from the fields of Job."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from attempt_runner.settings import flag_of, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from dataclasses import Field

    from attempt_runner.settings import Stage

_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_KINDS: Final[dict[str, Any]] = {
    "Path": str | None,  # Path("") would be the working directory
    "Path | None": str | None,
    "bool": bool | None,
    "float": float | None,
    "int": int | None,
    "str": str | None,
    "str | None": str | None,
    "tuple[Path, ...]": list[str] | None,
    "tuple[int, ...]": str | None,
    "tuple[str, ...]": list[str] | None,
}


def job_command(
    *stages: Stage, words: inspect.Parameter | None = None, more: Sequence[inspect.Parameter] = ()
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command `function(ctx, config, flags, ...)` an option for each setting it reads.

    An option that is not given is left out of `flags`, so that job.toml or the default can
    speak. The words after `--` are the setting `scorer`, or the parameter `words`; that and
    `more` reach the function by name.
    """
    own = [item for item in (words, *more) if item]

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        def command(ctx: typer.Context, config: Path | None, **given: Any) -> int:
            named = {item.name: given.pop(item.name) for item in own}
            # An empty value is a value, to be refused: `--agent "$UNSET"` must not mean none.
            flags = {name: value for name, value in given.items() if value not in (None, [], ())}
            return function(ctx, config, flags, **named)

        context = inspect.Parameter("ctx", _KEYWORD, annotation=typer.Context)
        parameters = [context, parameter("config", Path | None, _CONFIG), *more]
        parameters += [item for item in _options(*stages) if not words or item.name != "scorer"]
        parameters += [words] if words else []
        command.__doc__ = function.__doc__
        command.__annotations__ = {item.name: item.annotation for item in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


_CONFIG: Final = typer.Option(
    "--config",
    metavar="FILE",
    help="job.toml with tables [job], [agent] and [scorer]; keys are the flags' names, and a "
    "flag wins over its key.",
    show_default=False,
)


def _options(*stages: Stage) -> Iterator[inspect.Parameter]:
    for item in settings(*stages):
        if item.name == "scorer":
            yield parameter(item.name, list[str] | None, _words(item))
        else:
            yield parameter(item.name, _KINDS[str(item.type)], _option(item))


def _words(item: Field[Any]) -> Any:
    return typer.Argument(
        metavar="[-- SCORER ARG...]", help=item.metadata["help"], show_default=False
    )


def _option(item: Field[Any]) -> Any:
    flag = f"--{flag_of(item.name)}"
    if item.type == "bool":
        return typer.Option(flag, help=item.metadata["help"], show_default=False)
    return typer.Option(
        flag,
        metavar=item.metadata["metavar"],
        help=item.metadata["help"] + _default_text(item),
        show_default=False,
    )


def _default_text(item: Field[Any]) -> str:
    if item.default in (MISSING, None, ()):
        return ""
    values = item.default if isinstance(item.default, tuple) else (item.default,)
    return f" Default: {','.join(f'{v:g}' if isinstance(v, float) else str(v) for v in values)}."


def parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    """Return a parameter that typer makes an option or argument of."""
    return inspect.Parameter(name, _KEYWORD, default=default, annotation=Annotated[kind, option])
