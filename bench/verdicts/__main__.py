"""How well koff's verdicts fit groups whose truth is known, beside other rules. Needs nothing but koff.

Without files, lives of all kinds are generated, lived and scored. Prints JSON: for each rule, the incidents
that were found, how often the verdict changed, and so on (`bench.verdicts.score`). Compared with Burrow's
rule, with two thresholds and with a rule of growth.

With files of lives (`bench.verdicts.lives` has the format), prints a line of JSON for each sample, with the
verdict and the cause; and with --labels the score at the end.

    python -m bench.verdicts --seeds 3
    python -m bench.verdicts lives.jsonl.gz --labels lives.labels.json
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from bench.verdicts.kinds import HEALTHY, ILL, KEPT_APART
from bench.verdicts.lives import LifeError, judge_life, read_lives
from bench.verdicts.run import THIS, run_lives, score_life
from bench.verdicts.score import Score

ALL = (*HEALTHY, *ILL)
PROGRESS_S = 10.0


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--labels", type=click.Path(exists=True, path_type=Path), help="The truth of the files.")
@click.option("--days", default=2.0, help="How long each life is.", show_default=True)
@click.option("--seeds", default=3, help="How many lives of each kind.", show_default=True)
@click.option("--kinds", default=",".join(ALL), help="Only these kinds, by comma.", show_default="all")
def main(files: tuple[Path, ...], labels: Path | None, days: float, seeds: int, kinds: str) -> None:
    """Score the verdicts on groups whose truth is known."""
    if files:
        _judge_files(files, labels)
        return
    chosen = kinds.split(",")
    if unknown := set(chosen) - set(ALL):
        raise click.UsageError(f"there is no kind {', '.join(sorted(unknown))}: there are {', '.join(ALL)}")
    lives = run_lives(chosen, range(seeds), days, with_rivals=True, progress=_show_progress())
    known = run_lives(chosen, range(seeds), days, with_objectives=True, progress=_show_progress())
    rules = {rule: _score(lives, chosen, rule) for rule in lives[0].verdicts}
    figures: dict[str, Any] = {"kinds": len(chosen), "seeds": seeds, "days": days, "rules": rules}
    figures["with_objectives"] = _score(known, chosen)
    if apart := [kind for kind in chosen if kind in KEPT_APART]:
        figures["kept_apart"] = _score(lives, apart)
    figures["by_kind"] = {kind: _score(lives, [kind]) for kind in chosen}
    click.echo(json.dumps(figures, indent=1))


def _score(lives: Any, kinds: list[str], rule: str = THIS) -> dict[str, Any]:
    score = Score()
    for life in lives:
        if life.script.kind in kinds:
            score_life(score, life, rule)
    return score.build()


def _show_progress() -> Any:
    shown_s = time.monotonic()

    def show(done: int, of: int) -> None:
        nonlocal shown_s
        if time.monotonic() >= shown_s + PROGRESS_S:
            shown_s = time.monotonic()
            click.echo(f"{done} of {of} steps", err=True)

    return show


def _judge_files(files: tuple[Path, ...], labels: Path | None) -> None:
    truth = {each["life"]: each for each in json.loads(labels.read_text())} if labels else {}
    score = Score()
    try:
        for life in (life for file in files for life in read_lives(file)):
            judged = list(judge_life(life))
            for line in judged:
                click.echo(json.dumps(line))
            if (told := truth.get(life.name)) is not None and judged:
                times_s, verdicts, causes = (
                    [line[name] for line in judged] for name in ("t", "verdict", "cause")
                )
                score.add(times_s, verdicts, causes, told["spans"], told["causes"])
    except LifeError as error:
        raise click.ClickException(str(error)) from None
    if truth:
        click.echo(json.dumps(score.build()))


if __name__ == "__main__":
    sys.exit(main())
